"""Create, list, revoke and rotate tokens."""

import logging
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from app.core.access.identity import owner_of_token
from app.core.access.rate_limits import LimitUse
from app.core.access.tokens import ID_BYTES, SECRET_BYTES, TokenRecord, TokenSecret, digest_of, token_text
from app.core.runs.capacity import WaitingGroups
from app.events import note
from app.store.access.rate_limits import LimitStore
from app.store.access.store import AccessStore
from app.store.redis.compare_and_swap import Attempts
from lachesis.wire.access import ALL_RUNS, Role
from lachesis.wire.errors import Conflict, TokenNotFound, UnreadableRecord
from lachesis.wire.limits import QueueLimitSettings, RateLimitSettings

log = logging.getLogger("lachesis.access")


@dataclass(frozen=True, slots=True)
class NewToken:
    """What a new token is for, as in `TokenRecord`."""

    role: Role
    runs: tuple[str, ...]
    name: str = ""
    environment: str | None = None
    contents: bool = False
    limits: RateLimitSettings | None = None
    queue_limits: QueueLimitSettings | None = None


@dataclass(frozen=True, slots=True)
class TokenFacts:
    """A token as it is now.

    Attributes:
        record: Its record.
        used_ms: When it was last used, to the minute; None for never.
        now_ms: The clock of Redis at the reading, milliseconds since 1970.
        limits: Its rate limits, and how much of each is used.
        queued: What it has in the queue of each run where it has anything, if that is limited.
    """

    record: TokenRecord
    used_ms: int | None
    now_ms: int
    limits: Sequence[LimitUse] = ()
    queued: Mapping[str, WaitingGroups] = field(default_factory=dict)


class TokenAdministration:
    """The tokens, for operators."""

    def __init__(self, store: AccessStore, limits: LimitStore) -> None:
        self._store = store
        self._limits = limits

    async def create(self, scope: NewToken, expires_s: float | None) -> tuple[TokenFacts, str]:
        """Create a token. Return its facts and its text. The text is shown only here.

        Raises:
            Conflict: There are too many tokens that have not ended.
        """
        await self._forget_ended()
        now_ms = (await self._store.state()).now_ms
        token_id = secrets.token_hex(ID_BYTES)
        text = token_text(scope.role, token_id, secrets.token_bytes(SECRET_BYTES))
        record = TokenRecord(
            token_id=token_id,
            name=scope.name,
            role=scope.role,
            runs=scope.runs or (ALL_RUNS,),
            environment=scope.environment,
            contents=scope.contents,
            limits=scope.limits,
            queue_limits=scope.queue_limits,
            created_ms=now_ms,
            expires_ms=None if expires_s is None else now_ms + round(1000 * expires_s),
            secrets=(TokenSecret(digest_of(text.encode())),),
        )
        await self._put_new(record)
        _tell("token created", record)
        return await self._facts(record, now_ms), text

    async def list(self) -> list[TokenFacts]:
        """Return all tokens by id, also those that expired or were revoked lately. The log names damaged ones."""
        state, records, used_ms = await self._store.readable()
        used, queued = await self._used(records), await self._queued(records)
        return [
            TokenFacts(record, used_ms.get(record.token_id), state.now_ms, uses, queued.get(record.token_id, {}))
            for record, uses in zip(records, used, strict=True)
        ]

    async def revoke(self, token_id: str) -> None:
        """Revoke a token. All processes refuse it within 5 s. May be repeated. A damaged record is removed.

        Raises:
            TokenNotFound: There is no token of this id.
        """
        attempts = Attempts("revoke a token")
        while attempts.again():
            try:
                record, now_ms = await self._get(token_id)
            except UnreadableRecord:
                await self._store.forget_damaged(token_id)
                log.warning("damaged record of token %s removed", token_id)
                note("token revoked", {"token": token_id})
                return
            if record.revoked_ms is not None:
                return
            if await self._store.put(record, replace(record, revoked_ms=now_ms)):
                _tell("token revoked", record)
                return

    async def rotate(self, token_id: str, overlap_s: float) -> tuple[TokenFacts, str]:
        """Give a token a new secret. Return its facts and its text with the new secret.

        The present secret stays valid for ``overlap_s`` seconds. One that was replaced before ends at once.

        Raises:
            TokenNotFound: There is no token of this id.
            Conflict: The token was revoked or has expired.
        """
        attempts = Attempts("rotate a token")
        while attempts.again():
            record, now_ms = await self._get(token_id)
            if record.has_ended(now_ms):
                raise Conflict(f"token {token_id} has ended; create a new one")
            text = token_text(record.role, token_id, secrets.token_bytes(SECRET_BYTES))
            new = record.rotated(digest_of(text.encode()), now_ms, round(1000 * overlap_s))
            if await self._store.put(record, new):
                _tell("token rotated", new)
                return await self._facts(new, now_ms), text

    async def reopen(self) -> None:
        """Let a service without other sources of identities start open again: on loopback, it then needs no token.

        Processes that run stay closed.

        Raises:
            Conflict: A token has not ended.
        """
        attempts = Attempts("reopen access")
        while attempts.again():
            state, records, _ = await self._store.all()
            valid = [record.token_id for record in records if not record.has_ended(state.now_ms)]
            if valid:
                raise Conflict(f"{len(valid)} tokens have not ended, such as {valid[0]}: revoke them first")
            if await self._store.reopen(state):  # else a token was created in the meantime
                log.warning("access reopened")
                note("access reopened", {})
                return

    async def _get(self, token_id: str) -> tuple[TokenRecord, int]:
        state, record = await self._store.get(token_id)
        if record is None:
            raise TokenNotFound(f"there is no token {token_id}")
        return record, state.now_ms

    async def _facts(self, record: TokenRecord, now_ms: int) -> TokenFacts:
        (used,) = await self._used([record])
        queued = await self._queued([record])
        return TokenFacts(record, None, now_ms, used, queued.get(record.token_id, {}))

    async def _used(self, records: Sequence[TokenRecord]) -> Sequence[Sequence[LimitUse]]:
        none = RateLimitSettings()
        return await self._limits.used([(owner_of_token(one.token_id), one.limits or none) for one in records])

    async def _queued(self, records: Sequence[TokenRecord]) -> Mapping[str, Mapping[str, WaitingGroups]]:
        """Return what tokens have in queues. Without such a limit, it is not known and costs nothing."""
        return await self._limits.queued() if any(record.queue_limits for record in records) else {}

    async def _put_new(self, record: TokenRecord) -> None:
        """Store a new token. Those that ended first make room for it."""
        while True:
            try:
                await self._store.put(None, record)
                return
            except Conflict:
                state, records, _ = await self._store.readable()
                ended = [one for one in records if one.has_ended(state.now_ms)]
                if not ended:
                    raise
                await self._store.forget(min(ended, key=lambda one: one.ends_ms or 0))

    async def _forget_ended(self) -> None:
        state, records, _ = await self._store.readable()
        for record in records:
            if record.is_over(state.now_ms):
                await self._store.forget(record)


def _tell(what: str, record: TokenRecord) -> None:
    fields = _described(record)
    log.info(what, extra={"fields": fields})
    note(what, fields)


def _described(record: TokenRecord) -> dict[str, Any]:
    """Describe what a token may do, without its secrets. Limits that are not set are left out."""
    described = {
        "token": record.token_id,
        "name": record.name,
        "role": record.role,
        "runs": record.runs,
        "environment": record.environment,
        "contents": record.contents or None,
        "expires_at_s": None if record.expires_ms is None else record.expires_ms / 1000,
    }
    for limits in (record.limits, record.queue_limits):
        described |= {} if limits is None else limits.model_dump()
    return {name: value for name, value in described.items() if value is not None}
