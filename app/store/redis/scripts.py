"""The Lua scripts: each is one atomic command, declared once in Python by a signature with names.

A script `lua/<noun>/<name>.lua` names its keys and arguments in its first lines:

    local LEASE_STATES = KEYS[2]  -- hash: batch id -> JSON of its lease
    local batch_id = ARGV[1]
    local groups = rows(ARGV, 3, {'group_id', 'lane'})

`app/store/<noun>/scripts.py` declares the same names as a function without a body:

    @script
    def change_lease(keys: RunKeys, *, batch_id: str, seen: str, new: str) -> None: ...

Calling that function returns the command. The order of keys and arguments comes from the Lua file. A key that the
signature does not name comes from ``keys``. `tests/store/redis/test_scripts.py` compares files, signatures and calls.
"""

import hashlib
import json
import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache, wraps
from itertools import chain
from pathlib import Path
from typing import Any, ParamSpec, Protocol, cast

from app.store.redis.pipeline import Argument, Command

LUA_DIR = Path(__file__).parents[1] / "lua"
SIGNATURES: dict[str, Callable[..., None]] = {}
"""The declared signatures, by script."""

Value = Argument | bool | None
"""An argument of a script: a bool arrives in Lua as '1' or '0', None as ''."""

_INCLUDE = re.compile(r"^-- include (\w+)$", re.MULTILINE)
_NAME = re.compile(
    r"^local (?P<name>\w+) = (?:(?P<json>cjson\.decode)\()?(?:(?P<kind>rest|rows)\()?(?P<place>KEYS|ARGV)"
    r"(?:\[(?P<at>\d+)\]|, (?P<first>[^,{)]+)(?:, \{(?P<fields>[^}]*)\})?)",
    re.MULTILINE,
)
_Signature = ParamSpec("_Signature")


class KeySpace(Hashable, Protocol):
    """Knows keys by their names in scripts."""

    def key(self, name: str) -> str:
        """Return the key that scripts call by the upper case of this name."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A key or an argument of a script, or a list of them.

    Attributes:
        name: Its name, in lower case.
        place: ``KEYS`` or ``ARGV``.
        kind: None for a single one, ``rest`` for a list, ``rows`` for a list of rows.
        at: Its place in ``KEYS`` or ``ARGV`` from 1, as it is written; of a list where it begins.
        fields: Of rows, the names in each.
        json: Whether the script decodes it: callers give the value, not its text.
    """

    name: str
    place: str
    kind: str | None
    at: str
    fields: tuple[str, ...] = ()
    json: bool = False


@dataclass(frozen=True, slots=True)
class Script:
    """A Lua script with its includes, and the digest Redis knows it by."""

    name: str
    source: str
    digest: str

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Its keys and arguments as its first lines name them, in their order."""
        found = [
            Parameter(
                one["name"].lower(),
                one["place"],
                one["kind"],
                one["at"] or one["first"],
                tuple(re.findall(r"\w+", one["fields"] or "")),
                one["json"] is not None,
            )
            for one in _NAME.finditer(self.source)
        ]
        return tuple(sorted(found, key=lambda one: (one.place == "ARGV", one.kind is not None)))


@cache
def paths() -> dict[str, Path]:
    """Return the file of every script by its name, which is unique over all folders."""
    return {path.stem: path for path in sorted(LUA_DIR.rglob("*.lua"))}


@cache
def load(name: str) -> Script:
    """Read the script ``name``, replace its ``-- include`` lines by what they name, and digest it."""
    source = _INCLUDE.sub(lambda include: paths()[include[1]].read_text(), paths()[name].read_text())
    return Script(name, source, hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest())


def positional(name: str, keys: Sequence[str], arguments: Sequence[Argument]) -> Command:
    """Return the command that runs a script."""
    return ("EVALSHA", load(name).digest, len(keys), *keys, *arguments)


def all_scripts() -> list[Script]:
    """Return every script that is a command of its own (those that start with ``#!lua``)."""
    return [load(name) for name, path in paths().items() if path.read_text().startswith("#!lua")]


def script(signature: Callable[_Signature, None]) -> Callable[_Signature, Command]:
    """Make of a signature the function that builds the command of the script with its name."""
    SIGNATURES[signature.__name__] = signature
    build = _builder(signature.__name__)

    @wraps(signature)
    def command(*args: _Signature.args, **kwargs: _Signature.kwargs) -> Command:
        return build(cast("KeySpace", args[0]), kwargs)

    return command


def name_of(command: Command) -> str | None:
    """Return the name of the script that a command runs; None for any other command."""
    return _names().get(str(command[1])) if command[0] == "EVALSHA" else None


@cache
def _names() -> dict[str, str]:
    return {load(name).digest: name for name in paths()}


def _builder(name: str) -> Callable[[KeySpace, Mapping[str, Any]], Command]:
    loaded = load(name)
    keys = [one for one in loaded.parameters if one.place == "KEYS"]
    single_keys = tuple(one.name for one in keys if one.kind is None)
    arguments = [one for one in loaded.parameters if one.place == "ARGV"]
    single_arguments = [(one.name, json_text if one.json else _plain) for one in arguments if one.kind is None]

    @lru_cache(maxsize=256)  # the same for each call about a run
    def fixed(space: KeySpace, given: frozenset[tuple[str, str]]) -> tuple[str, ...]:
        own = dict(given)
        return tuple(own.get(key) or space.key(key) for key in single_keys)

    def build(space: KeySpace, given: Mapping[str, Any]) -> Command:
        places = fixed(space, frozenset((key, given[key]) for key in single_keys if key in given))
        listed = [*chain.from_iterable(_listed(one, given) for one in keys if one.kind)]
        values = [written(given[argument]) for argument, written in single_arguments]
        rest = chain.from_iterable(_listed(one, given) for one in arguments if one.kind)
        return ("EVALSHA", loaded.digest, len(places) + len(listed), *places, *listed, *values, *rest)

    return build


def _listed(one: Parameter, given: Mapping[str, Any]) -> Iterable[Argument]:
    listed = given[one.name]
    return chain.from_iterable(listed) if one.kind == "rows" else listed


def json_text(value: Any) -> str:
    """Write a value as JSON without blanks."""
    return json.dumps(value, separators=(",", ":"))


def _plain(value: Value) -> Argument:
    if value is None:
        return ""
    return int(value) if value is True or value is False else value
