"""The tokens in Redis as a source of identities. Each process caches them, and checks every second whether any token
has changed."""

import asyncio
import contextlib
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from app.core.access.identity import Identity
from app.core.access.tokens import TokenRecord, TokenState, check_token, token_id_of, valid_until_ms
from app.services.access.credentials import GivenCredentials
from app.services.background import Periodic, end
from app.store.access.store import AccessState, AccessStore, parse_token
from lachesis.wire.errors import LachesisError, Unauthorized, UnreadableRecord

_PAUSE_S = 1.0
_FIND_PAUSE_S = 0.1  # between two reads of tokens that are wrong or unknown to this process
_OLDEST_S = 4.0  # longest use of what was read: with the time of an answer, a revocation holds within 5 s
_PATIENCE_S = 1.0
_NOTE_USE_S = 60.0
_MOST_REMEMBERED = 10_000

_REFUSALS = {
    TokenState.UNKNOWN: "the token is unknown",
    TokenState.REVOKED: "the token was revoked",
    TokenState.EXPIRED: "the token has expired",
    TokenState.ROTATED: "a newer secret has replaced this secret of the token",
}

_NOBODY: tuple[None, float] = (None, -math.inf)


class TokenSource:
    """Identifies clients by their tokens.

    Tokens change rarely. So a process remembers their records, and reads every second whether any has changed. Ids that
    it does not know, and those with a wrong secret, are read together, a few times a second. So a flood of wrong tokens
    costs Redis no more, and the time of a refusal does not tell whether the id exists.
    """

    def __init__(self, store: AccessStore) -> None:
        self._store = store
        self._state = AccessState(0, closed=False, now_ms=0)
        self._looked_s = -math.inf  # when the last answered look was sent
        self._looking: asyncio.Task[None] | None = None
        self._reading = Periodic("reading tokens", _PAUSE_S, self._begin)
        self._silent = False  # Redis did not answer the last look in time
        self._known: dict[str, TokenRecord] = {}  # by id
        self._valid: dict[str, tuple[Identity, float]] = {}  # by digest, with the time at which it ends, ms
        self._wanted: dict[str, None] = {}  # ids to be read
        self._finding: asyncio.Task[Mapping[str, bytes]] | None = None
        self._found_s = -math.inf
        self._noted_s: dict[str, float] = {}
        self._used_ms: dict[str, int] = {}

    @property
    def closes(self) -> bool:
        """Whether a token was ever created, or the service ever had another source (`mark_closed`)."""
        return self._state.closed

    def now_ms(self) -> float:
        """Return the clock of Redis, milliseconds since 1970, as this process knows it."""
        return self._state.now_ms + 1000 * (asyncio.get_running_loop().time() - self._looked_s)

    async def start(self) -> None:
        """Read what there is, and keep reading until `stop`.

        Raises:
            StoreUnavailable: Redis did not answer.
        """
        await self._begin()
        self._reading.start()

    async def stop(self) -> None:
        """Stop reading. Times of last use that are not written yet are written if Redis answers."""
        await self._reading.stop()
        await end(self._looking)
        await end(self._finding)
        with contextlib.suppress(LachesisError, TimeoutError):
            async with asyncio.timeout(_PATIENCE_S):
                await self._write_uses()

    async def mark_closed(self) -> None:
        """Note in Redis that every request needs credentials, also of a service that starts without its other sources.

        Raises:
            StoreUnavailable: Redis did not answer.
        """
        if not self._state.closed:
            await self._store.mark_closed()

    @property
    def is_fresh(self) -> bool:
        """Whether what is known is new enough to be used."""
        return asyncio.get_running_loop().time() - self._looked_s <= _OLDEST_S

    async def refresh(self, *, required: bool) -> None:
        """Read again.

        Args:
            required: Whether requests need credentials. If they do not and Redis does not answer, what was known stays:
                no token can be created then.

        Raises:
            StoreUnavailable: Credentials are required, and Redis did not answer.
        """
        looking = self._begin()
        if required:
            await asyncio.shield(looking)
        elif not self._silent:
            await asyncio.wait({looking}, timeout=_PATIENCE_S)
            self._silent = not looking.done()

    async def identify(self, credentials: GivenCredentials) -> Identity | None:
        """Return who has a token; None for credentials that are not a token.

        Raises:
            Unauthorized: The token is not valid.
            StoreUnavailable: Redis did not answer.
        """
        digest = credentials.digest
        identity = self._remembered(digest)
        if identity is None:
            token_id = token_id_of(credentials.secret)
            if token_id is None:
                return None
            record = self._known.get(token_id)
            state = check_token(record, digest, self.now_ms())
            if state is TokenState.UNKNOWN:  # the id or the secret: both take the same way
                record = await self._read(token_id)
                state = check_token(record, digest, self.now_ms())
            if record is None or state is not TokenState.VALID:
                raise Unauthorized(_REFUSALS[state])
            identity = record.identity(digest)
            if self._known.get(token_id) is record:  # else it has changed in the meantime
                self._valid[digest] = identity, valid_until_ms(record, digest)
        self._note_use(identity.token_id or "")
        return identity

    async def is_valid(self, identity: Identity) -> bool | None:
        """Return whether the token of an identity is neither revoked, expired nor replaced."""
        if identity.token_id is None or identity.digest is None:
            return None
        if self._remembered(identity.digest) is not None:
            return True
        record = self._known.get(identity.token_id) or await self._read(identity.token_id)
        return check_token(record, identity.digest, self.now_ms()) is TokenState.VALID

    def _remembered(self, digest: str) -> Identity | None:
        """Return who has a token, if this process found it valid and nothing has changed since."""
        identity, until_ms = self._valid.get(digest, _NOBODY)
        return identity if self.now_ms() < until_ms else None

    # Reading

    def _begin(self) -> asyncio.Task[None]:
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look())
            self._looking.add_done_callback(_retrieve)
        return self._looking

    async def _look(self) -> None:
        sent_s = asyncio.get_running_loop().time()
        self._learn(await self._store.state(), sent_s)
        await self._write_uses()

    def _learn(self, state: AccessState, sent_s: float) -> None:
        if state.generation != self._state.generation:
            self._forget()
        # Closed stays closed in this process, even if the data in Redis is lost.
        self._state, self._looked_s = replace(state, closed=state.closed or self._state.closed), sent_s
        self._silent = False

    def _forget(self) -> None:
        self._known.clear()
        self._valid.clear()

    async def _read(self, token_id: str) -> TokenRecord | None:
        self._wanted[token_id] = None
        if self._finding is None:
            self._finding = asyncio.create_task(self._find())
            self._finding.add_done_callback(_retrieve)
        found = await asyncio.shield(self._finding)
        if token_id in self._known:
            return self._known[token_id]
        return parse_token(token_id, found[token_id]) if token_id in found else None

    async def _find(self) -> Mapping[str, bytes]:
        clock = asyncio.get_running_loop().time
        await asyncio.sleep(self._found_s + _FIND_PAUSE_S - clock())
        sent_s = self._found_s = clock()
        wanted, self._wanted, self._finding = self._wanted, {}, None
        state, found = await self._store.find(wanted)
        self._learn(state, sent_s)
        for token_id, text in found.items():  # at once: the next change of a token clears what is known
            if len(self._known) >= _MOST_REMEMBERED:
                self._forget()
            with contextlib.suppress(UnreadableRecord):
                self._known[token_id] = parse_token(token_id, text)
        return found

    # Last use

    def _note_use(self, token_id: str) -> None:
        now_s = asyncio.get_running_loop().time()
        if now_s - self._noted_s.get(token_id, -math.inf) >= _NOTE_USE_S:
            self._noted_s[token_id] = now_s
            self._used_ms[token_id] = int(self.now_ms())

    async def _write_uses(self) -> None:
        if self._used_ms:
            used_ms, self._used_ms = self._used_ms, {}
            old_s = asyncio.get_running_loop().time() - _NOTE_USE_S
            self._noted_s = {token: noted_s for token, noted_s in self._noted_s.items() if noted_s > old_s}
            await self._store.note_uses(used_ms)


def _retrieve(task: asyncio.Task[Any]) -> None:
    """Mark the error of a task as seen. Requests that wait for the task get the error; often none waits."""
    if not task.cancelled():
        task.exception()
