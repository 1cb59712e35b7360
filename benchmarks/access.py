"""Measure what authentication costs a request: CPU time in the API process, open, with a token and with a JWT.

    python -m benchmarks.access

A request passes `AccessControl` and the check of its route, on a real Redis. The rest of the request is left out. The
figure to compare with is the CPU time of a whole native submission (`python -m benchmarks`). A process verifies a JWT
once and then remembers it: there is a figure for each.
"""

import asyncio
import json
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa
from starlette.types import ASGIApp, Receive, Scope, Send

from app.api.http.access.control import AccessControl, identity_of, permit
from app.api.http.rate_limits import count_request
from app.api.pages.operators import is_page
from app.core.access.permissions import Permission
from app.services.access.factory import AccessServices
from app.services.access.tokens import NewToken
from app.settings import ServiceSettings
from app.store.access.audit import AuditStore
from app.store.access.rate_limits import LimitStore
from app.store.access.store import AccessStore
from app.store.redis.client import RedisClient
from app.store.server.embedded import EmbeddedRedis
from lachesis.wire.limits import RateLimitSettings

REQUESTS, NEW_JWTS, ROUNDS = 20_000, 1_000, 9
RULES = '[[rule]]\nclaim = "sub"\nvalue = "*"\nrole = "environment"\nruns = ["math-*"]\n'


class Issuer:
    """An issuer in this process, with one RSA key: what a request costs does not depend on how keys are fetched."""

    def __init__(self) -> None:
        self._key = rsa.generate_private_key(65537, 2048)
        self._made = 0

    async def fetch(self, _: str) -> bytes:
        """Return the key set."""
        public = json.loads(jwt.get_algorithm_by_name("RS256").to_jwk(self._key.public_key()))
        return json.dumps({"keys": [public | {"kid": "1"}]}).encode()

    def sign(self, count: int) -> list[str]:
        """Make new tokens that are valid for an hour."""
        exp = int(datetime.now(UTC).timestamp()) + 3600
        claims = {"iss": "https://issuer.example.org", "aud": "lachesis", "sub": "worker", "exp": exp}
        self._made += count
        numbers = range(self._made - count, self._made)
        return [jwt.encode(claims | {"jti": str(number)}, self._key, "RS256", {"kid": "1"}) for number in numbers]


async def nothing(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer nothing, to measure the loop itself."""


async def guarded(scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG001 - ASGI's
    """Check the permission as the route of submissions does."""
    permit(scope, Permission.PRODUCE, of_run=True)


async def limited(scope: Scope, receive: Receive, send: Send) -> None:
    """Check the permission, and count the request against the limits of its token."""
    await guarded(scope, receive, send)
    services = scope["state"]["services"]
    meter = services.access.rate_limits.meter(identity_of(scope), "math-1")
    if meter is not None:
        await count_request(scope, meter, 1_000_000)


def request(services: Any, token: str) -> dict[str, Any]:
    """Build a submission."""
    headers = [
        (b"host", b"127.0.0.1:8000"),
        *((name, b"x") for name in (b"accept", b"accept-encoding", b"connection", b"user-agent", b"content-length")),
        (b"content-type", b"application/json"),
        (b"authorization", b"Bearer " + token.encode()),
    ]
    fixed: dict[str, Any] = {"type": "http", "method": "POST", "path": "/v1/runs/math-1/groups", "headers": headers}
    return fixed | {"server": ("127.0.0.1", 8000), "state": {"services": services}, "path_params": {"run": "math-1"}}


async def cost_us(app: ASGIApp, services: Any, rounds: Sequence[Sequence[str]]) -> float:
    """Return the CPU time of a request, microseconds: the least of several rounds, each a list of tokens."""
    best = float("inf")
    for tokens in rounds:
        fixed = {token: request(services, token) for token in set(tokens)}
        requests = [dict(fixed[token]) for token in tokens]
        began = time.process_time()
        for scope in requests:
            await app(scope, None, None)  # type: ignore[arg-type]
        best = min(best, (time.process_time() - began) / len(tokens))
    return best * 1e6


async def show(name: str, access: AccessServices, rounds: Sequence[Sequence[str]]) -> None:
    """Measure requests with these tokens."""
    services = SimpleNamespace(access=access)
    control = AccessControl(guarded, ["/healthz", "/readyz"], ["/metrics"], is_page, None)
    loop_us = await cost_us(nothing, services, rounds)
    print(f"{name}: {await cost_us(control, services, rounds) - loop_us:.1f} us a request")


async def measure(url: str, folder: Path) -> None:
    """Measure the open service, one with JWTs, and one that a token has closed."""
    rules = folder / "rules.toml"
    rules.write_text(RULES)
    connection, issuer = RedisClient(url, 5.0), Issuer()
    stores = AccessStore(connection), AuditStore(connection), LimitStore(connection)
    jwts = ServiceSettings(
        jwt_issuer="https://issuer.example.org",
        jwt_audience="lachesis",
        jwt_jwks_url="https://issuer.example.org/keys",
        jwt_rules=rules,
    )
    for name, settings in (("open", ServiceSettings()), ("jwt", jwts), ("token", ServiceSettings())):
        access = AccessServices.create(*stores, settings, issuer.fetch)
        (token,) = issuer.sign(1)
        if name == "token":
            _, token = await access.tokens.create(NewToken("environment", ("math-*",)), None)
        await access.authenticator.start()
        await show(name, access, [[token] * REQUESTS] * ROUNDS)
        if name == "jwt":
            await show("jwt, first request", access, [issuer.sign(NEW_JWTS) for _ in range(3)])
        if name == "token":
            limits, control = (
                RateLimitSettings(max_requests_per_s=1e9, max_bytes_per_s=1e12),
                AccessControl(limited, [], [], is_page, None),
            )
            _, counted = await access.tokens.create(NewToken("environment", ("math-*",), limits=limits), None)
            for kind, sent in (("token without limits", token), ("token with two limits", counted)):
                cpu_us = await cost_us(control, SimpleNamespace(access=access), [[sent] * NEW_JWTS] * 3)
                print(f"{kind}, counted: {cpu_us:.1f} us a request")
        await access.authenticator.stop()
    await connection.aclose()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder, EmbeddedRedis.start(Path(folder)) as redis:
        asyncio.run(measure(redis.url, Path(folder)))
