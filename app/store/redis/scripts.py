"""The Lua scripts: loaded from `lua/<noun>/*.lua`, called by name, each an atomic commit.

A script's header is its contract; `tests/store/redis/test_scripts.py` parses each header and lets Redis compile it.
"""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from app.store.redis.pipeline import Argument, Command

LUA_DIR = Path(__file__).parents[1] / "lua"
_INCLUDE = re.compile(r"^-- include (\w+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Script:
    """A Lua script with its includes, and the digest Redis knows it by."""

    name: str
    source: str
    digest: str


@cache
def paths() -> dict[str, Path]:
    """Return the file of every script by its name, which is unique over all folders."""
    return {path.stem: path for path in sorted(LUA_DIR.rglob("*.lua"))}


@cache
def load(name: str) -> Script:
    """Read the script ``name``, replace its ``-- include`` lines by what they name, and digest it."""
    source = _INCLUDE.sub(lambda include: paths()[include[1]].read_text(), paths()[name].read_text())
    return Script(name, source, hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest())


def command(name: str, keys: Sequence[str], arguments: Sequence[Argument]) -> Command:
    """Return the command that runs a script."""
    return ("EVALSHA", load(name).digest, len(keys), *keys, *arguments)


def all_scripts() -> list[Script]:
    """Every script that is a command of its own (those that start with ``#!lua``)."""
    return [load(name) for name, path in paths().items() if path.read_text().startswith("#!lua")]
