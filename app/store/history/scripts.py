"""The scripts of histories; each Lua file says what its keys and arguments mean."""

from app.store.redis.keys import RunKeys
from app.store.redis.scripts import script


@script
def append_history(
    keys: RunKeys,
    *,
    finest: str,
    most: int,
    kept_ms: int,
    span_ms: int,
    replaced: str | None,
    facts: bytes,
    totals: bytes,
    before: bytes,
    write: str,
) -> None: ...


@script
def merge_history(
    keys: RunKeys,
    *,
    fine: str,
    coarse: str,
    begin_ms: int,
    facts: bytes,
    fine_before_ms: int,
    coarse_before_ms: int,
    kept_ms: int,
) -> None: ...


@script
def drop_future(keys: RunKeys, *, series: str, from_ms: int, kept_ms: int) -> None: ...
