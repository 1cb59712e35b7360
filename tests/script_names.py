"""Which script a command runs."""

from functools import cache

from app.store.redis import scripts
from app.store.redis.pipeline import Command


def name_of(command: Command) -> str | None:
    """Return the name of the script that a command runs; None for any other command."""
    return _names().get(str(command[1])) if command[0] == "EVALSHA" else None


@cache
def _names() -> dict[str, str]:
    return {scripts.load(name).digest: name for name in scripts.paths()}
