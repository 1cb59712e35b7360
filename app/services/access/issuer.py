"""The public keys of an OIDC issuer: found, fetched, renewed, and kept while the issuer is down."""

import asyncio
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jwt
import orjson

from app.core.access.jwk import algorithms_of, public_part, thumbprint
from app.services.access.fetching import Fetch, IssuerFetchFailed
from app.services.background import end
from lachesis.wire.errors import IssuerUnavailable, Unauthorized

_RENEW_S = 300.0  # a key that the issuer withdraws is refused after this time
_PAUSE_S = 1.0  # between two fetches; tokens with unknown keys wait for the next one
_FAILURE_PAUSE_S = 5.0  # after a failed fetch; tokens do not wait for the next one
_MOST_KEYS = 100
_DISCOVERY = "/.well-known/openid-configuration"

log = logging.getLogger("lachesis.access")


@dataclass(frozen=True, slots=True)
class IssuerKey:
    """A public key for one algorithm.

    Attributes:
        algorithm: The algorithm.
        thumbprint: What tells this key from others.
        jwk: The key. PyJWT verifies with no other algorithm than the one that this object is bound to.
    """

    algorithm: str
    thumbprint: str
    jwk: jwt.PyJWK


class IssuerKeys:
    """The keys of one issuer, as this process knows them.

    Args:
        issuer: The URL of the issuer.
        jwks_url: Where its keys are; None finds the address by OIDC discovery.
        fetch: Gets a document.
        clock_s: A clock that never goes back, seconds.
    """

    def __init__(self, issuer: str, jwks_url: str | None, fetch: Fetch, clock_s: Callable[[], float]) -> None:
        self._issuer = issuer
        self._jwks_url = jwks_url
        self._fetch = fetch
        self._clock_s = clock_s
        self._keys: dict[tuple[str | None, str], IssuerKey] = {}
        self._thumbprints: frozenset[str] = frozenset()
        self._tried_s = -math.inf
        self._got_s = -math.inf
        self._failure: str | None = None
        self._fetching: asyncio.Task[None] | None = None

    async def stop(self) -> None:
        """Break off a fetch that is under way."""
        await end(self._fetching)

    def renew(self) -> None:
        """Begin to fetch the keys again if they are old. The present keys serve in the meantime."""
        if self._clock_s() - self._got_s >= _RENEW_S:
            self._begin()

    def has(self, thumbprint: str) -> bool:
        """Return whether the issuer still has a key."""
        return thumbprint in self._thumbprints

    async def get(self, key_id: str | None, algorithm: str) -> IssuerKey:
        """Return the key with this id (`kid`) for this algorithm. An unknown id waits until the keys are fetched again.

        So a flood of invented ids cannot block a new key: its first tokens wait at most one second plus the fetch.

        Args:
            key_id: The id. None stands for the only key that fits the algorithm.
            algorithm: One of `app.core.access.jwk.ALGORITHMS`.

        Raises:
            Unauthorized: The issuer has no such key.
            IssuerUnavailable: The key is unknown, and the issuer did not answer.
        """
        if not self._knows(key_id, algorithm) and (fetching := self._begin()) is not None:
            await asyncio.shield(fetching)
        key = self._keys.get((key_id, algorithm))
        if key is not None:
            return key
        if self._knows(key_id, algorithm):
            raise Unauthorized("the algorithm of the token does not fit its key")
        if self._failure is not None:
            raise IssuerUnavailable("the key of the token is unknown, and the issuer of tokens does not answer")
        if key_id is None:
            raise Unauthorized("the token has no key id (kid), and none or several keys of the issuer fit")
        raise Unauthorized("the issuer has no key with the key id (kid) of the token")

    def _knows(self, key_id: str | None, algorithm: str) -> bool:
        return (key_id, algorithm) in self._keys or (
            key_id is not None and any(known == key_id for known, _ in self._keys)
        )

    def _begin(self) -> asyncio.Task[None] | None:
        """Return the fetch that is under way, or the next one; None if the last one failed a moment ago."""
        if self._fetching is not None and not self._fetching.done():
            return self._fetching
        since_s = self._clock_s() - self._tried_s
        if self._failure is not None and since_s < _FAILURE_PAUSE_S:
            return None
        self._fetching = asyncio.create_task(self._fetch_keys(_PAUSE_S - since_s))
        return self._fetching

    async def _fetch_keys(self, pause_s: float) -> None:
        await asyncio.sleep(pause_s)
        self._tried_s = self._clock_s()
        try:
            keys = read_keys(await self._document(self._jwks_url or await self._discover()))
        except IssuerFetchFailed as error:
            if str(error) != self._failure:
                log.warning("no keys from the issuer of tokens, so the known keys stay (%d): %s", len(self), error)
            self._failure = str(error)
            return
        if self._failure is not None:
            log.info("the issuer of tokens answers again")
        self._keys, self._failure = keys, None
        self._thumbprints = frozenset(key.thumbprint for key in keys.values())
        self._got_s = self._clock_s()

    def __len__(self) -> int:
        return len(self._thumbprints)

    async def _discover(self) -> str:
        """Return the address of the keys, from the issuer's configuration (OpenID Connect Discovery 1.0)."""
        url = self._issuer.rstrip("/") + _DISCOVERY
        found = await self._document(url)
        if found.get("issuer") != self._issuer:
            raise IssuerFetchFailed(f"{url}: its issuer is not {self._issuer}")
        jwks_url = found.get("jwks_uri")
        if not isinstance(jwks_url, str):
            raise IssuerFetchFailed(f"{url}: it has no jwks_uri")
        return jwks_url

    async def _document(self, url: str) -> dict[str, Any]:
        try:
            document = orjson.loads(await self._fetch(url))
        except orjson.JSONDecodeError as error:
            raise IssuerFetchFailed(f"{url}: it is not JSON: {error}") from error
        if not isinstance(document, dict):
            raise IssuerFetchFailed(f"{url}: it is not a JSON object")
        return document


def read_keys(document: dict[str, Any]) -> dict[tuple[str | None, str], IssuerKey]:
    """Return the keys by id and algorithm. So no token can choose an algorithm that does not fit its key.

    Raises:
        IssuerFetchFailed: The document has no key that can verify a token.
    """
    listed = document.get("keys")
    found: list[tuple[str | None, IssuerKey]] = []
    for jwk in listed[:_MOST_KEYS] if isinstance(listed, list) else []:
        if isinstance(jwk, dict):
            key_id = jwk.get("kid")
            found += [(key_id if isinstance(key_id, str) else None, key) for key in _keys_of(jwk)]
    if not found:
        raise IssuerFetchFailed("the key set of the issuer has no key that can verify a token")
    keys: dict[tuple[str | None, str], IssuerKey]
    keys = {(key_id, key.algorithm): key for key_id, key in reversed(found) if key_id is not None}  # the first wins
    for algorithm in {key.algorithm for _, key in found}:
        fitting = [key for _, key in found if key.algorithm == algorithm]
        if len(fitting) == 1:
            keys[None, algorithm] = fitting[0]
    return keys


def _keys_of(jwk: dict[str, Any]) -> list[IssuerKey]:
    public = public_part(jwk)
    try:
        return [
            IssuerKey(algorithm, thumbprint(public), jwt.PyJWK(public, algorithm)) for algorithm in algorithms_of(jwk)
        ]
    except jwt.PyJWTError as error:
        log.warning("a key of the issuer of tokens cannot be used: %s", type(error).__name__)
        return []
