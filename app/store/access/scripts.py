"""The scripts of tokens; each Lua file says what its keys and arguments mean."""

from collections.abc import Sequence
from typing import NamedTuple

from app.store.redis.keys import ServiceKeys
from app.store.redis.scripts import script


class TokenUse(NamedTuple):
    """When a token was last used, milliseconds since 1970."""

    token_id: str
    used_ms: int


@script
def put_token(keys: ServiceKeys, *, token_id: str, seen: str | bytes, new: str, most: int) -> None: ...


@script
def mark_closed(keys: ServiceKeys) -> None: ...


@script
def reopen(keys: ServiceKeys, *, generation: int) -> None: ...


@script
def count_use(
    keys: ServiceKeys, *, arrivals: Sequence[str], burst_us: int, happened: bool, costs_us: Sequence[int]
) -> None: ...


@script
def note_token_uses(keys: ServiceKeys, *, uses: Sequence[TokenUse]) -> None: ...


@script
def add_audit_entry(
    keys: ServiceKeys, *, most: int, own: int, sender: str, action: str, entry: str, write: str
) -> None: ...
