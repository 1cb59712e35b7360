"""Tokens in Redis: digests of their secrets, never the secrets."""

import json
import logging
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

from app.core.access.tokens import TokenRecord, TokenSecret
from app.store.access import scripts
from app.store.access.rate_limits import parse_limits
from app.store.access.scripts import TokenUse
from app.store.redis.client import RedisClient
from app.store.redis.keys import ServiceKeys
from app.store.redis.scripts import json_text
from app.store.redis.server_time import parse_time_us
from lachesis.wire.access import MAX_TOKENS
from lachesis.wire.errors import Conflict, UnreadableRecord
from lachesis.wire.limits import QueueLimitSettings, RateLimitSettings

_TOKEN, _USED = "token:", "used:"
_NOT_ENCODED = ("token_id", "stored")
_LIMITS = ("limits", "queue_limits")  # the record of a token without them does not name them

log = logging.getLogger("lachesis.access")


@dataclass(frozen=True, slots=True)
class AccessState:
    """What all processes must know about access.

    Attributes:
        generation: Changes with each change of a token.
        closed: Whether every request needs authentication: since the first token, or the first start with another
            source of identities.
        now_ms: The clock of Redis, milliseconds since 1970.
    """

    generation: int
    closed: bool
    now_ms: int


class AccessStore:
    """Reads and changes tokens."""

    def __init__(self, connection: RedisClient) -> None:
        self._connection = connection
        self._keys = ServiceKeys()

    async def state(self) -> AccessState:
        """Read what all processes must know."""
        fields, time = await self._connection.pipeline(
            [("HMGET", self._keys.access, "generation", "closed"), ("TIME",)]
        )
        return _state(fields, time)

    async def get(self, token_id: str) -> tuple[AccessState, TokenRecord | None]:
        """Read a token. The record is at least as new as the state."""
        state, found = await self.find([token_id])
        return state, parse_token(token_id, found[token_id]) if found else None

    async def find(self, token_ids: Collection[str]) -> tuple[AccessState, Mapping[str, bytes]]:
        """Read those of the tokens that there are, for `parse_token`. They are at least as new as the state."""
        fields, time, texts = await self._connection.pipeline(
            [
                ("HMGET", self._keys.access, "generation", "closed"),
                ("TIME",),
                ("HMGET", self._keys.access, *(_TOKEN + token_id for token_id in token_ids)),
            ]
        )
        found = zip(token_ids, texts, strict=True)
        return _state(fields, time), {token_id: text for token_id, text in found if text is not None}

    async def all(self) -> tuple[AccessState, list[TokenRecord], Mapping[str, int]]:
        """Read every token by id, and when each was last used (ms since 1970).

        Raises:
            UnreadableRecord: A record is damaged.
        """
        state, texts, used = await self._all()
        return state, [parse_token(token_id, text) for token_id, text in texts.items()], used

    async def readable(self) -> tuple[AccessState, list[TokenRecord], Mapping[str, int]]:
        """Read as `all` does. Leave damaged records out, and log an error for each."""
        state, texts, used = await self._all()
        records = []
        for token_id, text in texts.items():
            try:
                records.append(parse_token(token_id, text))
            except UnreadableRecord as error:
                log.error("%s", error)
        return state, records, used

    async def _all(self) -> tuple[AccessState, Mapping[str, bytes], Mapping[str, int]]:
        found, time = await self._connection.pipeline([("HGETALL", self._keys.access), ("TIME",)])
        named = {name.decode(): value for name, value in found.items()}
        texts = {name[len(_TOKEN) :]: text for name, text in sorted(named.items()) if name.startswith(_TOKEN)}
        used = {name[len(_USED) :]: int(ms) for name, ms in named.items() if name.startswith(_USED)}
        return _state([named.get("generation"), named.get("closed")], time), texts, used

    async def put(self, seen: TokenRecord | None, new: TokenRecord) -> bool:
        """Create a token, or change it if it is as it was ``seen``. May be repeated.

        Returns:
            False if another request changed the token. Read it and decide again.

        Raises:
            Conflict: There are too many tokens.
        """
        return await self._put(new.token_id, "" if seen is None else _stored_text(seen), _text(new))

    async def forget(self, seen: TokenRecord) -> None:
        """Remove the record of a token that is over."""
        await self._put(seen.token_id, _stored_text(seen), "")

    async def forget_damaged(self, token_id: str) -> None:
        """Remove the record of a token if it cannot be read."""
        _, found = await self.find([token_id])
        for text in found.values():
            try:
                parse_token(token_id, text)
            except UnreadableRecord:
                await self._put(token_id, text, "")

    async def _put(self, token_id: str, seen: str | bytes, new: str) -> bool:
        command = scripts.put_token(self._keys, token_id=token_id, seen=seen, new=new, most=MAX_TOKENS)
        done = int(await self._connection.run(command))
        if done < 0:
            raise Conflict(f"there are {MAX_TOKENS} tokens, which is the largest number: revoke some")
        return bool(done)

    async def mark_closed(self) -> None:
        """Note that every request needs authentication. All processes learn it within 5 s, also if Redis is full."""
        await self._connection.run(scripts.mark_closed(self._keys))

    async def reopen(self, seen: AccessState) -> bool:
        """Note that requests need no authentication from the next start, if no token has changed since ``seen``.

        Returns:
            False if a token has changed. Read all and decide again.
        """
        return bool(await self._connection.run(scripts.reopen(self._keys, generation=seen.generation)))

    async def note_uses(self, used_ms: Mapping[str, int]) -> None:
        """Record when tokens were last used, milliseconds since 1970."""
        uses = [TokenUse(token_id, ms) for token_id, ms in used_ms.items()]
        await self._connection.run(scripts.note_token_uses(self._keys, uses=uses))


async def is_closed(url: str, patience_s: float) -> bool:
    """Return whether the service on the Redis at ``url`` asks every request for credentials.

    Raises:
        StoreUnavailable: Redis did not answer.
    """
    connection = RedisClient(url, patience_s)
    try:
        return (await AccessStore(connection).state()).closed
    finally:
        await connection.aclose()


def _state(fields: Any, time: Any) -> AccessState:
    generation, closed = fields
    return AccessState(int(generation or 0), bool(closed), parse_time_us(time) // 1000)


def _text(record: TokenRecord) -> str:
    said = {name: value for name, value in asdict(record).items() if name not in (*_NOT_ENCODED, *_LIMITS)}
    limits = {name: getattr(record, name) for name in _LIMITS}
    return json_text(said | {name: value.model_dump() for name, value in limits.items() if value is not None})


def _stored_text(record: TokenRecord) -> str:
    """Return the text that Redis holds of a record. Other builds encode equal records differently."""
    return record.stored or _text(record)


@lru_cache(maxsize=MAX_TOKENS)
def parse_token(token_id: str, text: bytes) -> TokenRecord:
    """Return the record of a token. It is cached, because the time of parsing would reveal that the token exists.

    Raises:
        UnreadableRecord: The text is not a record.
    """
    try:
        said = json.loads(text)
        secrets = tuple(TokenSecret(**secret) for secret in said.pop("secrets"))
        limits = parse_limits(RateLimitSettings, said.pop("limits")) if "limits" in said else None
        queue_limits = parse_limits(QueueLimitSettings, said.pop("queue_limits")) if "queue_limits" in said else None
        record = TokenRecord(
            token_id=token_id,
            secrets=secrets,
            runs=tuple(said.pop("runs")),
            limits=limits,
            queue_limits=queue_limits,
            **said,
        )
        object.__setattr__(record, "stored", text.decode())  # not an argument, so that `replace` does not copy it
        return record
    except (ValueError, TypeError, KeyError) as error:
        raise UnreadableRecord(
            f"the record of token {token_id} cannot be read",
            remedy=f"Revoke token {token_id}, which removes its record. Then create another one.",
        ) from error
