"""Find out who sends a request.

Each kind of credentials has a source. A source answers for credentials of its kind and leaves all others to the next
one. To add a kind, write an `IdentitySource` and add it in `app.services.access.factory`.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Protocol

from app.core.access.identity import OPEN, Identity
from app.services.access.credentials import GivenCredentials
from app.services.access.token_source import TokenSource
from app.services.background import Periodic
from lachesis.wire.access import AccessMode
from lachesis.wire.errors import StoreUnavailable, Unauthorized

NO_CREDENTIALS = "the request has no credentials"
_WATCH_S = 1.0
_OUTAGE_PATIENCE_S, _KNOWN_PATIENCE_S = 4.0, 0.5


class IdentitySource(Protocol):
    """A way to know who sends a request."""

    async def start(self) -> None:
        """Begin what runs in the background until `stop`.

        Raises:
            StoreUnavailable: Redis did not answer.
        """

    async def stop(self) -> None:
        """End what runs in the background."""

    async def identify(self, credentials: GivenCredentials) -> Identity | None:
        """Return who has these credentials; None if they are of another kind.

        Raises:
            Unauthorized: They are of this kind and are not valid. The message does not repeat them.
        """

    async def is_valid(self, identity: Identity) -> bool | None:
        """Return whether an identity of this source is still valid; None if it is of another source.

        `Authenticator` checks `Identity.expires_at_s` itself.
        """


class Authenticator:
    """Identifies the senders of requests by its sources, in their order.

    Args:
        tokens: The tokens in Redis. They also know whether the service was ever closed, and the time.
        others: The other sources. With one of them, every request needs credentials.
        insecure: Whether every request may do everything (``LACHESIS_INSECURE``).
    """

    def __init__(self, tokens: TokenSource, others: Sequence[IdentitySource], *, insecure: bool) -> None:
        self._tokens = tokens
        self._sources: tuple[IdentitySource, ...] = (*others, tokens)
        self._configured = bool(others)
        self._waiting: dict[object, tuple[Identity, Callable[[], None]]] = {}
        self._watching = Periodic("checking the credentials of waiting requests", _WATCH_S, self._end_invalid)
        self.insecure = insecure

    @property
    def required(self) -> bool:
        """Whether requests need credentials, as far as this process knows."""
        return not self.insecure and (self._configured or self._tokens.closes)

    @property
    def is_current(self) -> bool:
        """Whether this process knows which credentials are valid now. Redis tells it every second."""
        return not self.required or self._tokens.is_fresh

    @property
    def mode(self) -> AccessMode:
        """Who may use the service, for people."""
        if self.insecure:
            return "insecure"
        return "authenticated" if self.required else "loopback"

    async def start(self) -> None:
        """Start the sources. They run in the background until `stop`.

        Raises:
            StoreUnavailable: Redis did not answer.
        """
        for source in reversed(self._sources):  # the tokens first: they know the time
            await source.start()
        if self._configured:
            await self._tokens.mark_closed()
        self._watching.start()

    async def stop(self) -> None:
        """Stop the sources."""
        await self._watching.stop()
        for source in self._sources:
            await source.stop()

    async def refresh(self) -> None:
        """Make sure that what this process knows is at most 5 s old. Call this before `required` and `identify`.

        Raises:
            StoreUnavailable: Requests need credentials, and Redis did not answer.
        """
        if not (self.insecure or self._tokens.is_fresh):
            await self._tokens.refresh(required=self.required)

    async def identify(self, credentials: GivenCredentials | None) -> Identity:
        """Return who sends a request.

        Raises:
            Unauthorized: Credentials are required and missing, or they are not valid.
            StoreUnavailable: Redis did not answer.
        """
        if not self.required:
            return OPEN
        if credentials is None:
            raise Unauthorized(NO_CREDENTIALS)
        for source in self._sources:
            identity = await source.identify(credentials)
            if identity is not None:
                if self._has_expired(identity):
                    raise Unauthorized("the credentials have expired")
                return identity
        raise Unauthorized("the credentials are not a token of this service")

    async def identify_in_outage(self, credentials: GivenCredentials | None) -> Identity:
        """Return who sends a request that is answered also while Redis does not answer.

        Afterwards, `is_current` says whether Redis answered. If it did not, credentials that this process had found
        valid before count, although they may have been revoked since.

        Raises:
            Unauthorized: Credentials are missing, or they are not valid.
            StoreUnavailable: Redis did not answer, and this process does not know the credentials.
        """
        with suppress(StoreUnavailable, TimeoutError):
            async with asyncio.timeout(_OUTAGE_PATIENCE_S):
                await self.refresh()
        try:
            async with asyncio.timeout(None if self.is_current else _KNOWN_PATIENCE_S):
                return await self.identify(credentials)
        except TimeoutError:
            raise StoreUnavailable("Redis does not answer, and this process does not know the credentials") from None

    @contextmanager
    def watching(self, identity: Identity, ended: Callable[[], None]) -> Iterator[None]:
        """Call back once if an identity ends before the block does: within 5 s after it was revoked or has expired."""
        key = object()
        self._waiting[key] = identity, ended
        try:
            yield
        finally:
            self._waiting.pop(key, None)

    async def _end_invalid(self) -> None:
        # Concurrently, because a source reads all unknown tokens in one round trip.
        await asyncio.gather(*map(self._end_if_invalid, {identity for identity, _ in self._waiting.values()}))

    async def _end_if_invalid(self, identity: Identity) -> None:
        if await self.is_valid(identity):
            return
        for key, (waiting, ended) in list(self._waiting.items()):
            if waiting == identity:
                del self._waiting[key]
                ended()

    async def is_valid(self, identity: Identity) -> bool:
        """Return whether an identity is still valid: neither expired nor revoked."""
        await self.refresh()
        if identity.kind == "open":
            return not self.required
        if self._has_expired(identity):
            return False
        for source in self._sources:
            valid = await source.is_valid(identity)
            if valid is not None:
                return valid
        return False

    def _has_expired(self, identity: Identity) -> bool:
        return identity.expires_at_s is not None and self._tokens.now_ms() >= 1000 * identity.expires_at_s
