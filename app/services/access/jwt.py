"""JSON Web Tokens of an OIDC issuer as a source of identities."""

import base64
import binascii
import hashlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jwt
import orjson

from app.core.access.claims import LEEWAY_S, Claims, JwtTrust, claims_problem, grant_of
from app.core.access.identity import Identity
from app.core.access.jwk import ALGORITHMS
from app.services.access.credentials import GivenCredentials
from app.services.access.fetching import Fetch
from app.services.access.issuer import IssuerKeys
from lachesis.wire.errors import Unauthorized

MAX_JWT_BYTES = 8 * 1024
_MAX_KEY_ID = 256
_MOST_REMEMBERED = 10_000

_SIGNATURES = jwt.PyJWS(options={"enforce_minimum_key_length": True})


@dataclass(frozen=True, slots=True)
class JwtIdentity(Identity):
    """The identity of the client that has shown a JWT.

    Attributes:
        key: The thumbprint of the key that has signed the JWT.
    """

    key: str = ""


class JwtSource:
    """Identifies clients by JWTs of the issuer.

    A signature costs about 50 us. So a process remembers the tokens that it has verified, by their SHA-256, until they
    expire or the issuer withdraws their key.

    Args:
        trust: Whose tokens are accepted.
        fetch: Gets a document of the issuer.
        now_ms: The clock of Redis, milliseconds since 1970.
        clock_s: A clock that never goes back, seconds.
    """

    def __init__(
        self, trust: JwtTrust, fetch: Fetch, now_ms: Callable[[], float], clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._trust = trust
        self._keys = IssuerKeys(trust.issuer, trust.jwks_url, fetch, clock_s)
        self._now_ms = now_ms
        self._verified: dict[bytes, JwtIdentity] = {}  # by SHA-256

    async def start(self) -> None:
        """Begin to fetch the keys. The service starts also while the issuer is down."""
        self._keys.renew()

    async def stop(self) -> None:
        """Break off a fetch that is under way."""
        await self._keys.stop()

    async def identify(self, credentials: GivenCredentials) -> Identity | None:
        """Return the identity in a JWT; None for credentials that are not a JWT.

        Raises:
            Unauthorized: The JWT is not valid. The message does not repeat any of it.
            IssuerUnavailable: Its key is unknown, and the issuer does not answer.
        """
        token = credentials.secret
        if not (token.startswith(b"eyJ") or token.count(b".") == 2):
            return None
        if len(token) > MAX_JWT_BYTES:
            raise Unauthorized(f"the token is over {MAX_JWT_BYTES} bytes")
        self._keys.renew()
        digest, now_s = hashlib.sha256(token).digest(), self._now_ms() / 1000
        known = self._verified.get(digest)
        if known is not None and self._is_current(known, now_s):
            return known
        self._verified.pop(digest, None)
        identity = await self._verify(token)
        if len(self._verified) >= _MOST_REMEMBERED:
            del self._verified[next(iter(self._verified))]
        self._verified[digest] = identity
        return identity

    async def is_valid(self, identity: Identity) -> bool | None:
        """Return whether the issuer still has the key of an identity; None for identities of other sources."""
        if not isinstance(identity, JwtIdentity):
            return None
        self._keys.renew()
        return self._is_current(identity, self._now_ms() / 1000)

    def _is_current(self, identity: JwtIdentity, now_s: float) -> bool:
        return self._keys.has(identity.key) and identity.expires_at_s is not None and now_s < identity.expires_at_s

    async def _verify(self, token: bytes) -> JwtIdentity:
        key_id, algorithm = _key_named_by(_header_of(token))
        key = await self._keys.get(key_id, algorithm)
        claims = _claims_of(token, key.jwk, algorithm)
        problem = claims_problem(claims, self._trust.issuer, self._trust.audience, self._now_ms() / 1000)
        if problem is not None:
            raise Unauthorized(problem)
        grant = grant_of(self._trust.rules, claims)
        if grant is None:
            raise Unauthorized("no rule in LACHESIS_JWT_RULES matches the claims of the token")
        return JwtIdentity(
            **grant._asdict(),
            name=claims["sub"],
            kind="jwt",
            expires_at_s=claims["exp"] + LEEWAY_S,
            key=key.thumbprint,
        )


_MALFORMED = "the token is not a signed JWT"


def _header_of(token: bytes) -> dict[str, Any]:
    """Read the header before its signature is verified."""
    first, _, rest = token.partition(b".")
    if rest.count(b".") != 1:
        raise Unauthorized(_MALFORMED)
    try:
        header = orjson.loads(base64.b64decode(first + b"=" * (-len(first) % 4), altchars=b"-_", validate=True))
    except (binascii.Error, orjson.JSONDecodeError):
        raise Unauthorized(_MALFORMED) from None
    if not isinstance(header, dict):
        raise Unauthorized(_MALFORMED)
    return header


def _key_named_by(header: Mapping[str, Any]) -> tuple[str | None, str]:
    """Return the id of the key (None: not named) and the algorithm in a header that is not verified yet."""
    key_id, algorithm = header.get("kid"), header.get("alg")
    if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
        raise Unauthorized("the algorithm of the token is not supported: use RS*, PS*, ES* or EdDSA")
    if "crit" in header:
        raise Unauthorized("the token has critical header fields (crit), and the service knows none")
    if key_id is not None and not (isinstance(key_id, str) and len(key_id) <= _MAX_KEY_ID):
        raise Unauthorized(f"the key id (kid) of the token is not text of up to {_MAX_KEY_ID} characters")
    return key_id, algorithm


def _claims_of(token: bytes, key: jwt.PyJWK, algorithm: str) -> Claims:
    """Verify the signature of a token, and return its claims."""
    try:
        claims = orjson.loads(_SIGNATURES.decode(token, key, algorithms=[algorithm]))
    except jwt.InvalidKeyError:
        raise Unauthorized("the key of the token is too short") from None
    except jwt.InvalidSignatureError:
        raise Unauthorized("the signature of the token is not valid") from None
    except (jwt.PyJWTError, orjson.JSONDecodeError):
        raise Unauthorized(_MALFORMED) from None
    if not isinstance(claims, dict):
        raise Unauthorized(_MALFORMED)
    return claims
