"""TLS, and client certificates as identities."""

import asyncio
import os
import ssl
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from redis.asyncio import Redis

import lachesis
from app.api.http.connection.certificates import TlsContexts, TlsFiles
from app.logs import LogBackoff
from app.services.access.authentication import Authenticator
from app.services.access.certificates import CertificateSource
from app.services.access.credentials import GivenCredentials, PeerCertificate
from app.services.access.token_source import TokenSource
from app.settings import ServiceSettings
from app.store.access.store import AccessStore
from app.store.redis.client import RedisClient
from lachesis.wire.errors import StoreMisconfigured, Unauthorized
from lachesis.wire.limits import QueueLimitSettings, RateLimitSettings
from tests.api.access.conftest import Tokens, bearer
from tests.api.conftest import Start
from tests.api.log_capture import LogLines
from tests.authority import Authority
from tests.scenarios.native_calls import group

RULES = """
[[rule]]
claim = "uri"
value = "spiffe://lab/trainer/*"
role = "trainer"
runs = ["math-*"]

[[rule]]
claim = "dns"
value = "ops.example.org"
role = "operator"
"""
REFUSED = (httpx.TransportError, ssl.SSLError)
RUN = {"name": "math-1", "batch_size": 4}


class Lab:
    """An authority, a service certificate and rules."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = Authority(folder)
        self.service = self.authority.issue("service", "127.0.0.1")
        self.rules = folder / "rules.toml"
        self.rules.write_text(RULES)
        self.clients = folder / "clients.pem"
        self.clients.write_bytes(self.authority.file.read_bytes())

    @property
    def plain_tls(self) -> dict[str, Any]:
        return {"tls_cert": self.service[0], "tls_key": self.service[1]}

    @property
    def mutual_tls(self) -> dict[str, Any]:
        return self.plain_tls | {"tls_client_ca": self.clients, "tls_rules": self.rules}

    def client(self, service: httpx.AsyncClient, *names: str, by: Authority | None = None, **options: Any) -> Any:
        """Return a client whose certificate has these names, or that has none."""
        cert = (by or self.authority).issue("client", *names, **options) if names else None
        context = self.authority.client_context(cert)
        return httpx.AsyncClient(base_url=service.base_url, verify=context, trust_env=False, timeout=30)


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


async def test_tls_needs_no_client_certificate(start: Start, lab: Lab, tokens: Tokens) -> None:
    service = await start(**lab.plain_tls)
    assert service.base_url.scheme == "https"
    async with lab.client(service) as client:
        assert (await client.post("/v1/runs", json=RUN)).status_code == 201
        token = await tokens.make("viewer", "math-*")
        assert (await client.get("/v1/runs/math-1", headers=bearer(token))).status_code == 200


async def test_bodies_of_many_records_pass_both_ways(start: Start, lab: Lab) -> None:
    service = await start(**lab.plain_tls)
    async with lab.client(service) as client:
        await client.post("/v1/runs", json={"name": "math-1", "batch_size": 1})
        long = [list(range(300_000))]
        reply = await client.post("/v1/runs/math-1/groups", json=group("g", 1) | {"tokens": long, "masks": long})
        assert reply.status_code == 201, reply.text
        batch = await client.post("/v1/runs/math-1/batches", json={"trainer": "t"})
        assert batch.status_code == 201, batch.text
        assert len(batch.content) > 1_000_000


async def test_the_sdk_says_at_once_that_it_does_not_trust_a_certificate(start: Start, lab: Lab) -> None:
    service = await start(**lab.plain_tls)
    settings = lachesis.Settings(str(service.base_url), run="math-1", retry_budget_s=3600)
    with pytest.raises(lachesis.UntrustedCertificate, match="LACHESIS_CA_FILE"):
        async with lachesis.AsyncTrainer(settings) as trainer:
            await trainer.status()
    async with lachesis.AsyncTrainer(replace(settings, ca_file=str(lab.authority.file))) as trainer:
        await trainer.create_run(batch_size=4)


async def test_the_sdk_says_that_a_service_without_tls_may_need_another_url(start: Start) -> None:
    service = await start()
    url = str(service.base_url).replace("http://", "https://")
    async with lachesis.AsyncTrainer(lachesis.Settings(url, run="math-1", retry_budget_s=0)) as trainer:
        with pytest.raises(lachesis.Unreachable, match="use http:// in the URL"):
            await trainer.status()


@pytest.mark.parametrize(
    ("name", "run", "status"),
    [
        ("spiffe://lab/trainer/a", "math-1", 201),
        ("spiffe://lab/trainer/a", "code", 404),
        ("ops.example.org", "code", 201),
    ],
)
async def test_rules_map_names_to_roles(start: Start, lab: Lab, name: str, run: str, status: int) -> None:
    service = await start(**lab.mutual_tls)
    async with lab.client(service, name) as client:
        assert (await client.post("/v1/runs", json=RUN | {"name": run})).status_code == status


async def test_without_a_certificate_a_token_identifies(start: Start, lab: Lab, tokens: Tokens) -> None:
    service = await start(**lab.mutual_tls)
    async with lab.client(service) as client:
        refused = await client.get("/v1/runs")
        assert (refused.status_code, "no credentials" in refused.text) == (401, True)
        assert (await client.get("/healthz")).status_code == 200
        operator = await tokens.make("operator")
        assert (await client.get("/v1/runs", headers=bearer(operator))).status_code == 200


async def test_a_token_goes_before_the_certificate_of_its_connection(start: Start, lab: Lab, tokens: Tokens) -> None:
    service = await start(**lab.mutual_tls)
    viewer = await tokens.make("viewer", "math-*")
    async with lab.client(service, "ops.example.org") as client:
        assert (await client.post("/v1/runs", json=RUN)).status_code == 201
        assert (await client.post("/v1/runs", json=RUN, headers=bearer(viewer))).status_code == 403
        assert (await client.get("/v1/runs", headers=bearer("wrong"))).status_code == 401


async def test_a_name_without_a_rule_is_refused_with_a_reason(start: Start, lab: Lab) -> None:
    service = await start(**lab.mutual_tls)
    async with lab.client(service, "spiffe://lab/other", "else.example.org") as client:
        refused = await client.get("/v1/runs")
    assert refused.status_code == 401
    assert "spiffe://lab/other, else.example.org" in refused.json()["detail"]


async def test_certificates_of_another_authority_or_time_are_refused_in_the_handshake(start: Start, lab: Lab) -> None:
    service = await start(**lab.mutual_tls)
    stranger = Authority(lab.folder, "stranger")
    for options in ({"by": stranger}, {"days": -1.0}):
        async with lab.client(service, "ops.example.org", **options) as client:
            with pytest.raises(REFUSED):
                await client.get("/v1/runs")


async def test_changed_rules_hold_for_the_next_request(start: Start, lab: Lab, log_lines: LogLines) -> None:
    service = await start(**lab.mutual_tls)
    async with lab.client(service, "ops.example.org") as client:
        assert (await client.get("/v1/runs")).status_code == 200
        lab.rules.write_text("[[rule]]\nrole = 1")
        assert (await client.get("/v1/runs")).status_code == 200
        lab.rules.write_text(RULES.replace("ops.example.org", "other.example.org"))
        assert (await client.get("/v1/runs")).status_code == 401


async def test_each_certificate_has_the_limits_of_its_rule_and_a_change_needs_no_restart(
    start: Start, lab: Lab
) -> None:
    limited = RULES.replace('["math-*"]', '["math-*"]\nmax_requests_per_s = 0.001')
    lab.rules.write_text(limited)
    service = await start(**lab.mutual_tls)
    async with lab.client(service, "ops.example.org") as operator:
        assert (await operator.post("/v1/runs", json=RUN)).status_code == 201
    async with (
        lab.client(service, "spiffe://lab/trainer/a") as one,
        lab.client(service, "spiffe://lab/trainer/b") as two,
    ):
        assert (await one.get("/v1/runs/math-1")).status_code == 200
        refused = await one.get("/v1/runs/math-1")
        assert (refused.status_code, int(refused.headers["retry-after"]) > 1) == (429, True)
        detail = "certificate 'spiffe://lab/trainer/a' has reached max_requests_per_s=0.001"
        assert refused.json()["detail"] == detail
        assert (await two.get("/v1/runs/math-1")).status_code == 200
        lab.rules.write_text(limited.replace("0.001", "1000"))
        for _ in range(2):
            assert (await one.get("/v1/runs/math-1")).status_code == 200
        lab.rules.write_text(limited.replace("0.001", "0.002"))
        assert (await one.get("/v1/runs/math-1")).status_code == 200, "a changed limit begins unused"
        assert (await one.get("/v1/runs/math-1")).status_code == 429


async def test_a_change_of_limits_ends_no_request_that_waits(lab: Lab) -> None:
    source = CertificateSource(lab.rules)
    shown = GivenCredentials(certificate=PeerCertificate(dns=("ops.example.org",), expires_at_s=1e12))
    before = await source.identify(shown)
    assert before is not None
    lab.rules.write_text(RULES + "max_queued_groups = 3\nmax_bytes_per_s = 7\n")
    assert await source.is_valid(before)
    now = await source.identify(shown)
    assert now is not None
    assert now.limits == RateLimitSettings(max_bytes_per_s=7)
    assert now.queue is not None
    assert (now.queue.name, now.queue.limits) == (
        "certificate 'ops.example.org'",
        QueueLimitSettings(max_queued_groups=3),
    )


async def test_who_showed_a_certificate_that_has_expired_since_is_not_valid_any_more(
    redis_url: str, redis_client: Redis, lab: Lab
) -> None:
    """Its connection may last, and what waits in it must end."""
    connection = RedisClient(redis_url, 5.0)
    source = CertificateSource(lab.rules)
    authenticator = Authenticator(TokenSource(AccessStore(connection)), [source], insecure=False)
    for expires_at_s, is_valid in ((1e12, True), (1.0, False)):
        shown = PeerCertificate(dns=("ops.example.org",), expires_at_s=expires_at_s)
        identity = await source.identify(GivenCredentials(certificate=shown))
        assert identity is not None
        assert await authenticator.is_valid(identity) is is_valid
    await connection.aclose()


async def serial_of(service: httpx.AsyncClient, trust: ssl.SSLContext) -> int:
    """Connect, and return the serial number of the certificate that the service shows."""
    _, writer = await asyncio.open_connection(service.base_url.host, service.base_url.port, ssl=trust)
    shown = writer.get_extra_info("ssl_object").getpeercert()
    writer.close()
    return int(shown["serialNumber"], 16)


async def test_new_connections_use_a_changed_certificate(start: Start, lab: Lab) -> None:
    service = await start(**lab.plain_tls)
    trust = lab.authority.client_context()
    async with lab.client(service) as client:
        assert (await client.get("/healthz")).status_code == 200
        before = await serial_of(service, trust)
        lab.authority.issue("service", "127.0.0.1")
        assert await serial_of(service, trust) == before + 1
        assert (await client.get("/healthz")).status_code == 200, "on its old connection"


async def test_a_broken_new_certificate_keeps_the_old_one(start: Start, lab: Lab, log_lines: LogLines) -> None:
    service = await start(**lab.plain_tls)
    trust = lab.authority.client_context()
    before = await serial_of(service, trust)
    for break_it in (lambda path: path.write_text("no certificate"), lambda path: path.unlink()):
        break_it(lab.service[0])
        assert await serial_of(service, trust) == before
        assert await serial_of(service, trust) == before
    lab.authority.issue("service", "127.0.0.1")
    assert await serial_of(service, trust) == before + 1


async def test_a_removed_authority_is_no_longer_trusted(start: Start, lab: Lab) -> None:
    """A resumed session would skip the check."""
    service = await start(**lab.mutual_tls)
    context = lab.authority.client_context(lab.authority.issue("client", "ops.example.org"))

    async def ask() -> httpx.Response:
        async with httpx.AsyncClient(base_url=service.base_url, verify=context, trust_env=False) as client:
            return await client.get("/v1/runs")

    assert (await ask()).status_code == 200
    lab.clients.write_bytes(Authority(lab.folder, "next").file.read_bytes())
    with pytest.raises(REFUSED):
        await ask()


async def test_plain_http_gets_an_answer_that_says_so(
    start: Start, lab: Lab, log_lines: LogLines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.api.http.connection.tls._failures", LogBackoff())  # no test before has used it
    service = await start(**lab.plain_tls)
    async with httpx.AsyncClient(trust_env=False, verify=False) as client:
        reply = await client.get(str(service.base_url).replace("https", "http"))
    assert reply.status_code == 400
    assert "https://" in reply.json()["detail"]
    assert "LACHESIS_CA_FILE" in reply.json()["remedy"], "and not that it takes plain text"
    assert log_lines.of("TLS failed") == [{"reason": "http_request", "caller": "127.0.0.1"}]


def test_tls_1_1_is_refused(lab: Lab) -> None:
    assert TlsContexts(TlsFiles(*lab.service, None)).current().minimum_version is ssl.TLSVersion.TLSv1_2


async def test_client_certificates_need_tls_1_3(start: Start, lab: Lab) -> None:
    """A client could resume a session of TLS 1.2 by its id, and would not be checked again."""
    service = await start(**lab.mutual_tls)
    context = lab.authority.client_context(lab.authority.issue("client", "ops.example.org"))
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    async with httpx.AsyncClient(base_url=service.base_url, verify=context, trust_env=False) as client:
        with pytest.raises(REFUSED):
            await client.get("/v1/runs")


def _contexts(settings: ServiceSettings) -> TlsContexts:
    files = TlsFiles.of(settings)
    assert files is not None
    return TlsContexts(files)


Spoil = Callable[[Lab, dict[str, Any]], None]


def _set(**settings: Any) -> Spoil:
    return lambda lab, given: given.update(settings)


def _write(name: str, text: str) -> Spoil:
    return lambda lab, given: (lab.folder / name).write_text(text) and None


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (_set(tls_cert=Path("/nowhere")), "LACHESIS_TLS_CERT=/nowhere: No such file"),
        (_set(tls_key=Path("/nowhere")), "LACHESIS_TLS_KEY=/nowhere: No such file"),
        (_set(tls_key=None), "LACHESIS_TLS_KEY is not set"),
        (_set(tls_client_ca=Path("/nowhere")), "LACHESIS_TLS_CLIENT_CA=/nowhere: No such file"),
        (_set(tls_cert=None), "needs LACHESIS_TLS_CERT"),
        (_set(tls_rules=None), "LACHESIS_TLS_CLIENT_CA and LACHESIS_TLS_RULES need each other"),
        (_set(tls_client_ca=None), "LACHESIS_TLS_CLIENT_CA and LACHESIS_TLS_RULES need each other"),
        (_write("service.crt", "x"), "LACHESIS_TLS_CERT="),
        (_write("clients.pem", "x"), "LACHESIS_TLS_CLIENT_CA="),
        (lambda lab, given: given.update(tls_key=lab.authority.issue("other", "x")[1]), "the key is not that of"),
    ],
)
def test_wrong_files_are_named(lab: Lab, spoil: Spoil, said: str) -> None:
    given = lab.mutual_tls
    spoil(lab, given)
    with pytest.raises(StoreMisconfigured, match=said):
        _contexts(ServiceSettings(**given))


async def test_the_source_leaves_others_alone(lab: Lab) -> None:
    source = CertificateSource(lab.rules)
    certificate = PeerCertificate(dns=("ops.example.org",), expires_at_s=1e12)
    assert await source.identify(GivenCredentials(b"secret", certificate)) is None
    identity = await source.identify(GivenCredentials(certificate=certificate))
    assert identity is not None
    assert (identity.kind, identity.name, identity.role) == ("certificate", "ops.example.org", "operator")
    assert await source.is_valid(identity)
    lab.rules.write_text(RULES.replace('"operator"', '"metrics"'))
    os.utime(lab.rules)
    assert not await source.is_valid(identity)
    with pytest.raises(Unauthorized):
        await source.identify(GivenCredentials(certificate=PeerCertificate()))


async def test_the_sdk_verifies_the_service_and_shows_its_certificate(start: Start, lab: Lab) -> None:
    service = await start(**lab.mutual_tls)
    cert, key = map(str, lab.authority.issue("client", "ops.example.org"))
    url, ca = str(service.base_url), str(lab.authority.file)
    shown = lachesis.Settings(url, run="math-1", ca_file=ca, client_cert=cert, client_key=key, retry_budget_s=0)
    async with lachesis.AsyncTrainer(shown) as trainer:
        await trainer.create_run(batch_size=4)
    nothing_shown = lachesis.Settings(url, run="math-1", ca_file=ca, retry_budget_s=0)
    async with lachesis.AsyncTrainer(nothing_shown) as trainer:
        with pytest.raises(Unauthorized):
            await trainer.status()
    other = str(Authority(lab.folder, "other").file)
    async with lachesis.AsyncTrainer(lachesis.Settings(url, ca_file=other, retry_budget_s=0)) as trainer:
        with pytest.raises(lachesis.Unreachable, match="CERTIFICATE_VERIFY_FAILED"):
            await trainer.status()


def test_the_sdk_names_the_setting_of_a_wrong_file(lab: Lab) -> None:
    for wrong in ({"ca_file": "/nowhere"}, {"client_cert": "/nowhere"}, {"client_cert": str(lab.rules)}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            lachesis.AsyncTrainer(lachesis.Settings("https://localhost", **wrong))


@pytest.mark.parametrize("shows_a_certificate", [False, True])
def test_the_sdk_names_the_variables_of_cas_that_cannot_be_read(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, shows_a_certificate: bool
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", "/nowhere")
    cert, key = map(str, lab.authority.issue("client", "ops.example.org"))
    shown = {"client_cert": cert, "client_key": key} if shows_a_certificate else {}
    with pytest.raises(ValueError, match="cannot use the CAs of SSL_CERT_FILE or SSL_CERT_DIR: No such file"):
        lachesis.AsyncTrainer(lachesis.Settings("https://localhost", **shown))


async def test_the_rules_of_the_documentation_map_a_spiffe_id(lab: Lab) -> None:
    page = (Path(__file__).parents[3] / "docs" / "security.md").read_text()
    section = page.partition("\n## mTLS")[2].partition("\n## ")[0]
    lab.rules.write_text(section.partition("```toml\n")[2].partition("```")[0])
    certificate = PeerCertificate(uris=("spiffe://cluster.local/ns/rl/sa/rollout-7",), expires_at_s=1e12)
    identity = await CertificateSource(lab.rules).identify(GivenCredentials(certificate=certificate))
    assert identity is not None
    assert (identity.role, identity.runs) == ("environment", ("math-*",))
    assert identity.queue_limits == QueueLimitSettings(max_queued_groups=500)
