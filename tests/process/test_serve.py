"""The service as processes: how it starts, what it logs, and how it ends, whichever process is killed."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path

import httpx
import pytest
from redis import Redis

from app.store.server.embedded import EmbeddedRedis
from tests.e2e.processes import command_line, descendants, is_running, wait_until
from tests.process.test_command_line import lachesis

ROOT = Path(__file__).parents[2]
PATHS = f"{ROOT}{os.pathsep}{ROOT / 'clients'}"
LINE = re.compile(r"Lachesis \S+ listening on (https?://\S+:\d+) · (\d+) API process(?:es)? · (.+) · (.+)\n")


class Served:
    """A service as a process, on a free port, with what it printed. It reads a `.env` file beside its folder.

    With ``files``, its processes can open no more.
    """

    def __init__(self, folder: Path, module: list[str], wait: bool, files: int | None, **settings: str) -> None:
        self.data_dir = Path(settings.get("LACHESIS_DATA_DIR", folder / "data"))
        self._out, self._err = folder / "stdout", folder / "stderr"
        own = {name: value for name, value in os.environ.items() if not name.startswith("LACHESIS_")}
        env = {"LACHESIS_PORT": "0", "LACHESIS_DATA_DIR": str(self.data_dir), "PYTHONPATH": PATHS, **settings}
        limited = [] if files is None else ["bash", "-c", f'ulimit -n {files}; exec "$@"', "bash"]
        command = [*limited, sys.executable, "-m", *module]
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(
                command, cwd=folder.parent, env=own | env, stdout=out, stderr=err, start_new_session=True
            )
        if wait:
            wait_until("it listens or ends", lambda: "\n" in self.said or self.process.poll() is not None)

    @property
    def said(self) -> str:
        return self._out.read_text()

    @property
    def complained(self) -> str:
        return self._err.read_text()

    @property
    def url(self) -> str:
        match = LINE.fullmatch(self.said)
        assert match, (self.said, self.complained)
        return match[1]

    @property
    def descendants(self) -> list[int]:
        return list(descendants(self.process.pid))

    @property
    def redis_pid(self) -> int:
        return int((self.data_dir / "redis" / "redis.pid").read_text())

    def worker_pids(self, count: int) -> set[int]:
        """Ask until ``count`` different processes have answered."""
        found: set[int] = set()

        def all_answered() -> bool:
            found.add(self.ask())
            return len(found) == count

        wait_until(f"{count} workers answer", all_answered)
        return found

    def ask(self, path: str = "/pid") -> int:
        return int(httpx.get(self.url + path, timeout=30, trust_env=False).raise_for_status().text)

    def refuses(self) -> bool:
        """Return whether it takes no new connection."""
        try:
            socket.create_connection(("127.0.0.1", httpx.URL(self.url).port or 0)).close()
        except ConnectionRefusedError:
            return True
        return False

    @property
    def begun(self) -> bool:
        """Whether a slow request has begun since this was last asked."""
        with Redis(unix_socket_path=str(self.data_dir / "redis" / "redis.sock")) as client:
            return client.getdel("begun") is not None

    def in_flight(self, path: str) -> Callable[[], int]:
        """Begin a request, and once a worker is at it give back what waits for its answer."""
        answers: list[int] = []
        thread = threading.Thread(target=lambda: answers.append(self.ask(path)), daemon=True)
        thread.start()
        wait_until("a worker is at it", lambda: self.begun)

        def answer() -> int:
            thread.join()
            return answers[0]

        return answer

    def end(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        if (self.data_dir / "redis" / "redis.pid").exists() and is_running(self.redis_pid):
            os.kill(self.redis_pid, signal.SIGKILL)


Serve = Callable[..., Served]
pytestmark = pytest.mark.long


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Serve the small application of `serve_app.py` with these settings; what runs is ended with the test."""
    started: list[Served] = []

    def start(module: list[str] | None = None, wait: bool = True, files: int | None = None, **settings: str) -> Served:
        folder = tmp_path / str(len(started))
        folder.mkdir()
        started.append(Served(folder, module or ["tests.serve_app"], wait, files, **settings))
        return started[-1]

    yield start
    for service in started:
        service.end()


workers = pytest.mark.parametrize("workers", ["1", "2"])


# Starting


@workers
def test_one_line_names_address_redis_and_durability(serve: Serve, workers: str) -> None:
    service = serve(LACHESIS_WORKERS=workers)
    match = LINE.fullmatch(service.said)
    assert match
    assert match.group(2, 3, 4) == (
        workers,
        f"embedded Valkey 9.1.2 in {service.data_dir}/",
        "every acknowledged write is fsynced",
    )
    assert service.complained == ""
    assert service.ask() > 0, "the line is only said when it is true"


@workers
def test_a_low_limit_of_open_files_is_said_at_start_and_in_refusals(serve: Serve, workers: str) -> None:
    service = serve(["app", "serve"], files=108, LACHESIS_WORKERS=workers, LACHESIS_MAX_CONNECTIONS="200")
    (line,) = service.complained.splitlines()
    assert "may open 108 files, enough for 8 connections; LACHESIS_MAX_CONNECTIONS=200 needs 300 files: " in line
    with ExitStack() as stack:
        for _ in range(8 * int(workers) + 1):  # together the processes have room for all but one
            client = stack.enter_context(httpx.Client(base_url=service.url, timeout=30, trust_env=False))
            reply = client.get("/healthz")
            if reply.status_code == 429:
                break
    assert reply.json()["detail"].startswith("the process has 8 open connections, ")


def test_fsync_once_a_second_is_said_at_start_and_in_the_status(serve: Serve) -> None:
    service = serve(["app", "serve"], LACHESIS_FSYNC="everysec")
    promise = "written to disk once a second: a crash can lose 2 s of acknowledged writes"
    assert promise in service.said
    assert "LACHESIS_FSYNC=always" in service.complained
    status = httpx.get(f"{service.url}/status", timeout=30, trust_env=False).raise_for_status().json()
    assert promise in status["durability"]


def test_a_redis_of_the_users_is_named_without_its_password(serve: Serve, tmp_path: Path) -> None:
    with EmbeddedRedis.start(tmp_path / "theirs") as theirs, Redis.from_url(theirs.url) as client:
        client.acl_setuser("me", enabled=True, passwords=["+pa55word"], keys="*", commands=["+@all"])
        client.config_set("appendfsync", "everysec")
        url = theirs.url.replace("unix://", "unix://me:pa55word@")
        service = serve(LACHESIS_REDIS_URL=url)
        assert " · Valkey 9.1.2 at /" in service.said
        assert "written to disk once a second" in service.said
        assert "appendfsync always" in service.complained
        assert "pa55word" not in service.said + service.complained
        service.ask()
        assert client.get("requests") == b"1"
        assert not service.data_dir.exists()
        service.process.terminate()
        assert service.process.wait(10) == 0
        assert client.ping(), "it is theirs: it is not stopped"


def failed_start(service: Served) -> str:
    assert service.process.wait(20) == 1
    assert service.said == ""
    (line,) = service.complained.splitlines()
    return line


def test_a_redis_that_evicts_is_refused_in_one_line(serve: Serve, tmp_path: Path) -> None:
    with EmbeddedRedis.start(tmp_path / "theirs") as theirs, Redis.from_url(theirs.url) as client:
        client.config_set("maxmemory-policy", "allkeys-lru")
        assert "maxmemory-policy allkeys-lru" in failed_start(serve(LACHESIS_REDIS_URL=theirs.url))


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("redis://me:pa55word@127.0.0.1:1/0", "Redis at 127.0.0.1:1 does not answer"),
        ("redis://me:pa55word@127.0.0.1:1/0", "Start it. Check the address and the password"),
        ("http://me:pa55word@127.0.0.1:1", "LACHESIS_REDIS_URL is not a Redis URL"),
        ("redis://me:pa55word@127.0.0.1:port/0", "LACHESIS_REDIS_URL is not a Redis URL"),
    ],
)
def test_an_unreachable_redis_is_one_line_without_the_password(serve: Serve, url: str, complaint: str) -> None:
    line = failed_start(serve(LACHESIS_REDIS_URL=url, LACHESIS_STORE_PATIENCE_S="0.3"))
    assert complaint in line
    assert "pa55word" not in line


@workers
def test_an_address_in_use_is_reported_in_one_line(serve: Serve, workers: str) -> None:
    first = serve(LACHESIS_WORKERS=workers)
    second = serve(LACHESIS_WORKERS=workers, LACHESIS_PORT=str(httpx.URL(first.url).port))
    assert "the address is in use" in failed_start(second)
    assert first.ask()


def test_data_in_use_is_reported_in_one_line_that_names_the_process(serve: Serve) -> None:
    first = serve()
    second = serve(LACHESIS_DATA_DIR=str(first.data_dir))
    assert f"(pid {first.process.pid})" in failed_start(second)
    assert first.ask()


def test_a_host_that_is_no_name_is_reported_in_one_line(serve: Serve) -> None:
    assert "cannot listen on a..b:0: this is not a host name" in failed_start(serve(LACHESIS_HOST="a..b"))


def test_a_data_directory_that_cannot_be_written_is_reported_in_one_line(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "data" / "redis" / "redis.conf").mkdir(parents=True)
    line = failed_start(serve(LACHESIS_DATA_DIR=str(tmp_path / "data")))
    assert f"cannot start a server in LACHESIS_DATA_DIR={tmp_path}/data: " in line


@workers
def test_an_application_that_does_not_start_ends_the_service(serve: Serve, workers: str) -> None:
    service = serve(FAIL_IF="/", LACHESIS_WORKERS=workers)
    assert service.process.wait(20) == 1
    assert service.said == ""
    assert "as told" in service.complained
    assert not (service.data_dir / "redis" / "redis.pid").exists(), "Redis was stopped"


def test_without_authentication_only_this_machine_is_served(serve: Serve) -> None:
    complaint = failed_start(serve(["app", "serve"], LACHESIS_HOST="0.0.0.0"))
    assert "python -m app token create --role operator" in complaint
    assert "LACHESIS_INSECURE=1" in complaint


def test_a_container_that_is_published_on_a_network_needs_authentication(serve: Serve) -> None:
    complaint = failed_start(serve(["app", "serve"], LACHESIS_HOST="0.0.0.0", LACHESIS_PUBLISHED_ON="10.0.0.7"))
    assert "python -m app token create --role operator" in complaint


@pytest.mark.parametrize(
    "setting", [{"LACHESIS_INSECURE": "1"}, {"LACHESIS_PUBLISHED_ON": "127.0.0.1"}, {"LACHESIS_ADMIN_TOKEN_FILE": ""}]
)
def test_authentication_or_a_closed_port_lets_it_listen_anywhere(
    serve: Serve, setting: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("t" * 32)
    named = {name: value or str(tmp_path / "token") for name, value in setting.items()}
    service = serve(["app", "serve"], LACHESIS_HOST="0.0.0.0", **named)
    reply = httpx.get(f"http://127.0.0.1:{httpx.URL(service.url).port}/v1/runs", trust_env=False)
    assert reply.status_code == (401 if "LACHESIS_ADMIN_TOKEN_FILE" in setting else 200)
    warned = "publish the port on 127.0.0.1 alone (LACHESIS_PUBLISHED_ON" in service.complained
    assert warned == ("LACHESIS_PUBLISHED_ON" in setting)


def test_a_service_of_jwts_may_listen_anywhere_and_starts_while_the_issuer_is_down(
    serve: Serve, tmp_path: Path
) -> None:
    (tmp_path / "rules.toml").write_text('[[rule]]\nclaim = "sub"\nvalue = "*"\nrole = "operator"\n')
    jwt = {
        "LACHESIS_JWT_ISSUER": "http://127.0.0.1:9",
        "LACHESIS_JWT_AUDIENCE": "lachesis",
        "LACHESIS_JWT_RULES": str(tmp_path / "rules.toml"),
    }
    port = httpx.URL(serve(["app", "serve"], LACHESIS_HOST="0.0.0.0", **jwt).url).port
    assert httpx.get(f"http://127.0.0.1:{port}/v1/runs", trust_env=False).status_code == 401


def test_a_wrong_rule_for_jwts_stops_the_start_in_one_line(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "rules.toml").write_text('[[rule]]\nclaim = "sub"\nvalue = "*"\nrol = "operator"\n')
    jwt = {
        "LACHESIS_JWT_ISSUER": "https://issuer.example.org",
        "LACHESIS_JWT_AUDIENCE": "lachesis",
        "LACHESIS_JWT_RULES": str(tmp_path / "rules.toml"),
    }
    assert "rules.toml: line 4: rule 1: rol: unknown field" in failed_start(serve(["app", "serve"], **jwt))


@workers
def test_every_log_line_can_be_json(serve: Serve, workers: str) -> None:
    service = serve(["app", "serve"], LACHESIS_INSECURE="1", LACHESIS_LOG_FORMAT="JSON", LACHESIS_WORKERS=workers)
    port = httpx.URL(service.url).port or 0
    httpx.post(f"http://127.0.0.1:{port}/v1/runs", json={"name": "r", "batch_size": 8}, trust_env=False)
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(b"this is not HTTP\r\n\r\n")
        assert client.recv(100).startswith(b"HTTP/1.1 400")
    lines = [json.loads(line) for line in service.complained.splitlines()]
    assert [(line["logger"], line["level"]) for line in lines] == [
        *[("lachesis.access", "warning")] * int(workers),
        ("lachesis.events", "info"),
        ("lachesis.audit", "info"),
        ("lachesis.api", "warning"),
    ]
    assert all(datetime.fromisoformat(line["time"]).utcoffset() is not None for line in lines)
    assert (lines[-3]["message"], lines[-3]["run"]) == ("run created", "r")
    assert (lines[-1]["message"], lines[-1]["caller"]) == ("refused what is not HTTP", "127.0.0.1")


# Ending


@workers
def test_sigterm_finishes_a_request_in_flight_and_stops_redis_last(serve: Serve, workers: str) -> None:
    service = serve(LACHESIS_WORKERS=workers)
    redis = service.redis_pid
    answer = service.in_flight("/slow/1")
    service.process.terminate()
    assert answer() > 0
    assert service.process.wait(10) == 0
    assert not is_running(redis)
    assert service.complained == ""
    *_, last = service.said.splitlines()
    where = f"embedded Valkey 9.1.2 in {service.data_dir}/"
    assert last == f"Lachesis has stopped · {where} · every acknowledged write is fsynced"


@workers
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_all_processes_finishes_requests(serve: Serve, workers: str, number: signal.Signals) -> None:
    """As Ctrl-C and systemd send it."""
    service = serve(LACHESIS_WORKERS=workers)
    answer = service.in_flight("/slow/1")
    os.killpg(service.process.pid, number)
    assert answer() > 0
    assert service.process.wait(10) == 0
    assert service.complained == ""


@pytest.mark.skipif(signal.getsignal(signal.SIGHUP) is signal.SIG_IGN, reason="under nohup, the service ignores it")
@workers
def test_the_end_of_a_terminal_finishes_requests(serve: Serve, workers: str) -> None:
    """The kernel and the shell each send a signal."""
    service = serve(LACHESIS_WORKERS=workers)
    redis = service.redis_pid
    answer = service.in_flight("/slow/3")
    os.killpg(service.process.pid, signal.SIGHUP)
    wait_until("it is refused", service.refuses)
    os.killpg(service.process.pid, signal.SIGHUP)
    assert answer() > 0
    assert service.process.wait(10) == 0
    assert service.complained == ""
    assert not is_running(redis)


def is_importing(pid: int) -> bool:
    """Return whether a fork server is past the start of Python itself, so that Ctrl-C would leave a traceback."""
    maps = Path(f"/proc/{pid}/maps")
    return "forkserver" in command_line(pid) and maps.exists() and "hiredis" in maps.read_text()


def test_ctrl_c_while_workers_start_is_quiet(serve: Serve) -> None:
    service = serve(LACHESIS_WORKERS="2", wait=False)
    wait_until("the application is being imported", lambda: any(map(is_importing, service.descendants)))
    os.killpg(service.process.pid, signal.SIGINT)
    assert service.process.wait(60) == 0
    assert service.complained == ""


@workers
def test_new_connections_are_refused_during_shutdown(serve: Serve, workers: str) -> None:
    service = serve(LACHESIS_WORKERS=workers)
    answer = service.in_flight("/slow/6")
    service.process.terminate()
    wait_until("it is refused", service.refuses)
    assert answer() > 0


@workers
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_does_not_wait_for_requests(serve: Serve, workers: str, number: signal.Signals) -> None:
    service = serve(LACHESIS_WORKERS=workers)
    redis = service.redis_pid
    with socket.create_connection(("127.0.0.1", httpx.URL(service.url).port or 0)) as client:
        client.sendall(b"GET /slow/60 HTTP/1.1\r\nhost: x\r\n\r\n")
        wait_until("a worker is at it", lambda: service.begun)
        service.process.send_signal(number)
        wait_until("it is refused", service.refuses)
        assert service.process.poll() is None, "the first one waits"
        service.process.send_signal(number)
        service.process.wait(20)  # less than requests get after one signal
    assert service.process.returncode == 0
    assert service.complained == ""
    assert not is_running(redis)


def test_a_body_that_is_on_its_way_at_the_end_is_refused_in_time(serve: Serve) -> None:
    service = serve(["app", "serve"], LACHESIS_SHUTDOWN_GRACE_S="5")
    with socket.create_connection(("127.0.0.1", httpx.URL(service.url).port or 0)) as client:
        client.sendall(b"POST /v1/runs HTTP/1.1\r\nhost: localhost\r\ncontent-length: 99\r\n\r\n{")
        httpx.get(service.url + "/healthz", trust_env=False).raise_for_status()  # what came before has been read
        service.process.terminate()
        head, _, body = b"".join(iter(lambda: client.recv(65536), b"")).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 503 ")
    assert b"\r\nretry-after: 2\r\n" in head
    assert json.loads(body)["code"] == "service_stopping"
    assert service.process.wait(20) == 0
    assert "ERROR" not in service.complained


# Killing


@workers
def test_redis_killed_is_back_soon(serve: Serve, workers: str) -> None:
    service = serve(LACHESIS_WORKERS=workers)
    killed = service.redis_pid
    os.kill(killed, signal.SIGKILL)
    wait_until("another one runs", lambda: service.redis_pid != killed)
    wait_until("requests succeed", lambda: httpx.get(service.url + "/pid", trust_env=False).is_success)
    wait_until("it says so", lambda: "is back" in service.complained)


def test_workers_of_a_killed_service_end_and_its_redis_is_found(serve: Serve) -> None:
    service = serve(LACHESIS_WORKERS="2")
    orphans, redis = service.worker_pids(2), service.redis_pid
    busy = service.in_flight("/slow/0.5")
    service.process.kill()
    assert busy() in orphans, "what is quick is finished"
    wait_until("the workers end", lambda: not any(map(is_running, orphans)))
    assert is_running(redis)
    port = str(httpx.URL(service.url).port)
    again = serve(LACHESIS_PORT=port, LACHESIS_DATA_DIR=str(service.data_dir))
    assert again.redis_pid == redis
    assert again.ask() > 0
    again.process.terminate()
    assert again.process.wait(10) == 0
    assert not is_running(redis)


# The command line


def test_the_status_of_a_running_service_is_shown_as_a_table_and_raw(serve: Serve) -> None:
    service = serve(["app", "serve"])
    trainer = {"wandb_group": "g", "wandb_project": "p", "batch_size": 8, "max_token_len": 99, "checkpoint_dir": "c"}
    steps = {"save_checkpoint_interval": 1, "starting_step": 0, "num_steps": 9}
    environment = {"max_token_length": 99, "desired_name": "ma\x1bth", "weight": 1.0, "group_size": 4}
    with httpx.Client(base_url=service.url, trust_env=False) as client:
        client.post("/register", json=trainer | steps).raise_for_status()
        client.get("/batch").raise_for_status()
        client.post("/register-env", json=environment | {"min_batch_allocation": 0.5}).raise_for_status()
    shown = lachesis("status", "default", "--url", service.url)
    assert shown.returncode == 0, shown.stderr
    assert "batches of 8" in shown.stdout
    assert "blocked: " in shown.stdout
    assert "ma\\x1bth_0" in shown.stdout
    assert "50%" in shown.stdout
    raw = lachesis("status", "default", "--json", LACHESIS_PORT=str(httpx.URL(service.url).port))
    assert json.loads(raw.stdout)["batch_size"] == 8
    other = lachesis("status", "other", "--url", service.url)
    assert other.returncode == 1
    assert other.stderr.startswith("lachesis: there is no run other; there are: default. Create the run ")
    service.process.terminate()
    assert service.process.wait(10) == 0
