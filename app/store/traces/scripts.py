"""The script of traces; the Lua file says what its keys and arguments mean."""

from collections.abc import Sequence

from app.store.redis.keys import RunKeys
from app.store.redis.scripts import script


@script
def keep_traces(keys: RunKeys, *, most: int, kept_ms: int, context: str, names: Sequence[str]) -> None: ...
