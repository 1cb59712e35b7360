"""JWTs of a real issuer against the real service."""

import asyncio
import base64
import datetime
import ipaddress
import json
import re
import ssl
import tomllib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from redis.asyncio import Redis

from app.core.access.claim_rules import parse_rules
from app.core.access.claims import Grant, grant_of
from app.core.access.identity import matches
from lachesis.wire.limits import QueueLimitSettings, RateLimitSettings
from tests.api.access.conftest import Tokens, bearer, id_of
from tests.api.conftest import Start
from tests.api.log_capture import LogLines
from tests.issuer import AUDIENCE, KEYS, Issuer, now_s, running

RUN = {"name": "math-1", "batch_size": 4}

RULES = """
[[rule]]
claim = "groups"
value = "rl-operators"
role = "operator"

[[rule]]
claim = "sub"
value = "worker-*"
role = "environment"
runs = ["math-*"]
"""


@pytest.fixture
async def issuer() -> AsyncIterator[Issuer]:
    async with running(Issuer()) as issuer:
        yield issuer


@pytest.fixture
def settings(issuer: Issuer, tmp_path: Path) -> dict[str, Any]:
    """Settings of a service that trusts the issuer."""
    rules = tmp_path / "rules.toml"
    rules.write_text(RULES)
    return {"jwt_issuer": issuer.issuer, "jwt_audience": AUDIENCE, "jwt_rules": rules}


async def test_a_jwt_has_the_role_and_the_runs_of_its_rule(
    start: Start, issuer: Issuer, settings: dict[str, Any]
) -> None:
    client = await start(**settings)
    assert (await client.get("/v1/runs")).status_code == 401
    operator = bearer(issuer.sign(issuer.claims(groups=["rl-operators"])))
    for name in ("math-1", "code"):
        reply = await client.post("/v1/runs", json=RUN | {"name": name}, headers=operator)
        assert reply.status_code == 201
    worker = issuer.sign()
    for auth in ((worker, ""), ("worker", worker)):
        joined = await client.post("/v1/runs/math-1/environments", json={"name": "gsm8k", "group_size": 2}, auth=auth)
        assert joined.is_success
    assert (await client.delete("/v1/runs/math-1", headers=bearer(worker))).status_code == 403
    foreign = await client.post("/v1/runs/code/environments", json={"name": "gsm8k"}, headers=bearer(worker))
    assert foreign.status_code == 404
    assert issuer.fetches == 1


async def test_tokens_of_the_service_work_beside_jwts(
    start: Start, settings: dict[str, Any], tokens: Tokens, tmp_path: Path
) -> None:
    admin = tmp_path / "admin"
    admin.write_text("a.b." + "c" * 32)  # it has the form of a JWT
    client = await start(**settings, admin_token_file=admin)
    for token in (await tokens.make("operator"), admin.read_text()):
        assert (await client.get("/v1/runs", headers=bearer(token))).status_code == 200
    assert (await client.get("/v1/runs", headers=bearer("a.b." + "d" * 32))).status_code == 401


async def test_three_senders_named_admin_can_be_told_apart(
    start: Start, issuer: Issuer, settings: dict[str, Any], tokens: Tokens, tmp_path: Path, log_lines: LogLines
) -> None:
    """An issuer, or who creates tokens, may choose any name."""
    file = tmp_path / "admin"
    file.write_text("c" * 32)
    client = await start(**settings, admin_token_file=file)
    jwt = issuer.sign(issuer.claims(sub="admin", groups=["rl-operators"]))
    token = await tokens.make("operator", name="admin")
    for number, secret in enumerate((file.read_text(), jwt, token)):
        reply = await client.post("/v1/runs", json=RUN | {"name": f"math-{number}"}, headers=bearer(secret))
        assert reply.status_code == 201
    listed = (await client.get("/v1/audit", headers=bearer(token))).json()["entries"]
    shown = [(entry["run"], entry["identity"], entry["kind"], entry["token"]) for entry in listed]
    assert shown == [
        ("math-2", "admin", "token", id_of(token)),
        ("math-1", "admin", "jwt", None),
        ("math-0", "admin", "file", None),
    ]
    assert [line["identified_by"] for line in log_lines.of("run created")] == ["file", "jwt", "token"]


@pytest.mark.parametrize("kind", ["expired", "audience", "unsigned", "unknown key", "oversized", "two"])
async def test_a_refused_jwt_gets_a_reason_and_shows_nowhere(
    start: Start, issuer: Issuer, settings: dict[str, Any], redis_client: Redis, log_lines: LogLines, kind: str
) -> None:
    claims = issuer.claims(sub="worker-canary", canary="canary-7")
    token = {
        "expired": lambda: issuer.sign(claims | {"exp": int(now_s()) - 60}),
        "audience": lambda: issuer.sign(claims | {"aud": "other"}),
        "unsigned": lambda: (
            ".".join(
                base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")
                for part in ({"alg": "none", "kid": "canary"}, claims)
            )
            + "."
        ),
        "unknown key": lambda: issuer.sign(claims, kid="canary"),
        "oversized": lambda: issuer.sign(claims | {"padding": "canary" * 2000})[:16_000],
        "two": lambda: issuer.sign(claims),
    }[kind]()
    client = await start(**settings)
    sent = [("Authorization", f"Bearer {token}")] * (2 if kind == "two" else 1)
    reply = await client.get("/v1/runs", headers=sent)
    assert reply.status_code == 401
    assert reply.json()["detail"] in {
        "the token has expired",
        "the token is for another audience",
        "the algorithm of the token is not supported: use RS*, PS*, ES* or EdDSA",
        "the issuer has no key with the key id (kid) of the token",
        "the token is over 8192 bytes",
        "the request has more than one Authorization header",
    }
    operator = bearer(issuer.sign(issuer.claims(groups=["rl-operators"])))
    metrics = (await client.get("/metrics", headers=operator)).text
    stored = [(key, await redis_client.dump(key)) for key in await redis_client.keys()]
    everywhere = f"{reply.text} {reply.headers} {metrics} {stored} {log_lines.all}"
    for part in [part for part in token.split(".") if len(part) > 30] + ["canary"]:
        assert part[:40] not in everywhere


async def test_an_accepted_jwt_is_stored_nowhere(
    start: Start, issuer: Issuer, settings: dict[str, Any], redis_client: Redis, log_lines: LogLines
) -> None:
    client = await start(**settings)
    token = issuer.sign(issuer.claims(groups=["rl-operators"], canary="canary-7"))
    assert (await client.post("/v1/runs", json=RUN, headers=bearer(token))).status_code == 201
    stored = [(key, await redis_client.dump(key)) for key in await redis_client.keys()]
    assert "math-1" in str(stored)
    everywhere = f"{stored} {log_lines.all}"
    assert not any(part in everywhere for part in [*token.split("."), "canary"])


async def test_a_long_poll_ends_when_its_jwt_expires(start: Start, issuer: Issuer, settings: dict[str, Any]) -> None:
    client = await start(**settings)
    operator = issuer.claims(groups=["rl-operators"])
    assert (await client.post("/v1/runs", json=RUN, headers=bearer(issuer.sign(operator)))).status_code == 201
    ending = bearer(issuer.sign(operator | {"exp": int(now_s()) - 25}))  # 30 s of leeway
    async with asyncio.timeout(60):
        reply = await client.post("/v1/runs/math-1/batches", params={"wait_s": 600}, json={}, headers=ending)
    assert reply.status_code == 401


async def test_an_issuer_that_is_down_is_503(start: Start, settings: dict[str, Any], issuer: Issuer) -> None:
    issuer.override = b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    client = await start(**settings)
    reply = await client.get("/v1/runs", headers=bearer(issuer.sign()))
    assert (reply.status_code, reply.json()["code"]) == (503, "issuer_unavailable")
    assert int(reply.headers["retry-after"]) >= 5
    assert (await client.get("/readyz")).status_code == 200


def certificate(folder: Path) -> tuple[ssl.SSLContext, Path]:
    """A TLS context for 127.0.0.1, and the file with its certificate, which is its own CA."""
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "issuer")])
    start = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder(name, name, KEYS["p-256"].public_key(), x509.random_serial_number())
        .not_valid_before(start - datetime.timedelta(hours=1))
        .not_valid_after(start + datetime.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .sign(KEYS["p-256"], hashes.SHA256())
    )
    file, key = folder / "ca.pem", folder / "key.pem"
    file.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    form = serialization.PrivateFormat.PKCS8
    key.write_bytes(KEYS["p-256"].private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(file, key)
    return context, file


async def test_an_issuer_needs_a_certificate_of_the_given_ca(
    start: Start, settings: dict[str, Any], tmp_path: Path
) -> None:
    tls, ca = certificate(tmp_path)
    async with running(Issuer(), tls=tls) as issuer:
        settings |= {"jwt_issuer": issuer.issuer}
        distrusting = await start(**settings)
        operator = bearer(issuer.sign(issuer.claims(groups=["rl-operators"])))
        assert (await distrusting.get("/v1/runs", headers=operator)).status_code == 503
        trusting = await start(**settings, jwt_ca=ca)
        assert (await trusting.get("/v1/runs", headers=operator)).status_code == 200


def test_the_rules_of_the_documentation_map_service_accounts() -> None:
    page = (Path(__file__).parents[3] / "docs" / "security.md").read_text()
    (text,) = re.findall(r"```toml\n(.*?)```", page.partition("\n## JWT")[2], re.S)
    assert tomllib.loads(text)
    rules = parse_rules(text)

    def account(namespace: str, name: str) -> dict[str, Any]:
        return {
            "sub": f"system:serviceaccount:{namespace}:{name}",
            "kubernetes.io": {"namespace": namespace, "serviceaccount": {"name": name}},
        }

    assert grant_of(rules, account("rl-math", "gsm8k")) == Grant(
        *("environment", ("math-*",), "gsm8k", False),
        limits=RateLimitSettings(max_requests_per_s=50, max_bytes_per_s=20_000_000),
        queue_limits=QueueLimitSettings(max_queued_groups=500),
    )
    assert grant_of(rules, account("rl-code", "trainer")) == Grant("trainer", ("rl-code.*",), None, False)
    assert grant_of(rules, account("kube-system", "trainer")) is None
    ada = {"sub": "7", "groups": ["x", "rl-users"], "preferred_username": "ada"}
    assert grant_of(rules, ada) == Grant("viewer", ("ada.*",), None, True)
    trainer = grant_of(rules, account("rl-code", "trainer"))
    assert trainer is not None
    assert [matches(trainer.runs[0], run) for run in ("rl-code.1", "rl-code-prod.1")] == [True, False]
