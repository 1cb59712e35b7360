"""A real OIDC issuer on a loopback port: it has keys, rotates them, and can be down."""

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa

AUDIENCE = "lachesis"

KEYS: dict[str, Any] = {
    "rsa": rsa.generate_private_key(65537, 2048),
    "rsa-2": rsa.generate_private_key(65537, 2048),
    "rsa-1024": rsa.generate_private_key(65537, 1024),  # too short
    "p-256": ec.generate_private_key(ec.SECP256R1()),
    "p-384": ec.generate_private_key(ec.SECP384R1()),
    "p-521": ec.generate_private_key(ec.SECP521R1()),
    "secp256k1": ec.generate_private_key(ec.SECP256K1()),
    "ed25519": ed25519.Ed25519PrivateKey.generate(),
    "ed448": ed448.Ed448PrivateKey.generate(),
}


def jwk_of(key: Any) -> dict[str, Any]:
    """The public key as a JWK, written by PyJWT."""
    kind = {rsa.RSAPrivateKey: "RS256", ec.EllipticCurvePrivateKey: "ES256"}
    algorithm = next((name for cls, name in kind.items() if isinstance(key, cls)), "EdDSA")
    return json.loads(jwt.get_algorithm_by_name(algorithm).to_jwk(key.public_key()))


def now_s() -> float:
    return datetime.now(UTC).timestamp()


@dataclass
class Issuer:
    """The issuer. `published` are the names of the keys that its key set has, with more fields for each."""

    url: str = ""
    published: dict[str, dict[str, Any]] = field(default_factory=lambda: {"rsa": {}})
    configuration: dict[str, Any] = field(default_factory=dict)
    override: bytes | None = None  # a whole reply, instead of the documents
    requests: list[tuple[str, dict[str, str]]] = field(default_factory=list)

    @property
    def issuer(self) -> str:
        return self.url

    @property
    def fetches(self) -> int:
        """How often somebody fetched the keys."""
        return sum(path == "/keys" for path, _ in self.requests)

    def claims(self, **changed: Any) -> dict[str, Any]:
        """Claims that are valid for an hour. None leaves a claim out."""
        claims = {"iss": self.issuer, "aud": AUDIENCE, "sub": "worker-7", "exp": int(now_s()) + 3600} | changed
        return {name: value for name, value in claims.items() if value is not None}

    def sign(
        self, claims: Mapping[str, Any] | None = None, key: str = "rsa", algorithm: str = "RS256", **header: Any
    ) -> str:
        headers = {"kid": key} | header
        return jwt.encode(
            dict(self.claims() if claims is None else claims),
            KEYS[key],
            algorithm,
            {name: value for name, value in headers.items() if value is not None},
        )

    def reply(self, path: str) -> bytes:
        if self.override is not None:
            return self.override
        if path == "/.well-known/openid-configuration":
            found: dict[str, Any] = {"issuer": self.issuer, "jwks_uri": f"{self.url}/keys"} | self.configuration
        elif path == "/keys":
            found = {"keys": [jwk_of(KEYS[name]) | {"kid": name} | more for name, more in self.published.items()]}
        else:
            return b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        body = json.dumps(found).encode()
        return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(body) + body

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            path = head[0].split()[1]
            self.requests.append((path, {name.lower(): value for name, _, value in (x.partition(": ") for x in head)}))
            writer.write(self.reply(path))
            await writer.drain()
        writer.close()


@contextlib.asynccontextmanager
async def running(issuer: Issuer, port: int = 0, tls: ssl.SSLContext | None = None) -> AsyncIterator[Issuer]:
    """Run an issuer on a loopback port until the block ends. Its URL stays when it ends."""
    server = await asyncio.start_server(issuer.serve, "127.0.0.1", port, ssl=tls)
    port = server.sockets[0].getsockname()[1]
    issuer.url = f"{'https' if tls else 'http'}://127.0.0.1:{port}"
    try:
        yield issuer
    finally:
        server.close()
        await server.wait_closed()
