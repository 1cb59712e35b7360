"""The Lua scripts. A file that starts with ``#!lua`` is one atomic command; other files are included in commands.

A command `lua/<noun>/<name>.lua` names its keys and arguments in its first lines:

    local LEASE_STATES = KEYS[2]  -- hash: batch id -> JSON of its lease
    local batch_id = ARGV[1]
    local groups = rows(ARGV, 3, {'group_id', 'lane'})  -- or the name of a list, in upper case

`app/store/<noun>/scripts.py` declares the same names as a function without a body:

    @script
    def change_lease(keys: RunKeys, *, batch_id: str, seen: str, new: str) -> None: ...

A call of the function returns the command. The order of keys and arguments comes from the Lua file. ``keys`` gives the
keys that the signature does not name. `tests/store/redis/test_scripts.py` compares files, signatures and calls.
"""

import hashlib
import json
import re
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache, wraps
from itertools import chain
from pathlib import Path
from typing import Any, ParamSpec, Protocol, TypeVar, cast

from app.store.redis.pipeline import Argument, Command

LUA_DIR = Path(__file__).parents[1] / "lua"
SIGNATURES: dict[str, Callable[..., None]] = {}
"""The declared signatures, by script."""

Value = Argument | bool | None
"""An argument of a script. In Lua, a bool is '1' or '0', and None is ''."""

_INCLUDE = re.compile(r"^-- include (\w+)$", re.MULTILINE)
_NAME = re.compile(
    r"^local (?P<name>\w+) = (?:(?P<json>cjson\.decode)\()?(?:(?P<kind>rest|rows|columns)\()?(?P<place>KEYS|ARGV)"
    r"(?:\[(?P<at>\d+)\]|, (?P<first>[^,{)]+)(?:, (?:\{(?P<fields>[^}]*)\}|(?P<list>[A-Z]+)))?)",
    re.MULTILINE,
)
_JSON = json.JSONEncoder(separators=(",", ":"))  # json.dumps would make one for each call
_Signature = ParamSpec("_Signature")
_Outcome = TypeVar("_Outcome", bound=str)


def outcome(word: bytes, known: tuple[_Outcome, ...]) -> _Outcome:
    """Return the word by which a script says what it did.

    Args:
        word: The word, as Redis returns it.
        known: The words that the script may return: `get_args` of their ``Literal``.

    Raises:
        ValueError: The script may not return this word.
    """
    text = word.decode()
    for one in known:
        if one == text:
            return one
    raise ValueError(f"a script returned {text!r}, not one of {', '.join(known)}")


class KeySpace(Hashable, Protocol):
    """The keys by their names in scripts."""

    def key(self, name: str) -> str:
        """Return the key for the name of a script's key in lower case."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A key or an argument of a script, or a list of them.

    Attributes:
        name: Its name, in lower case.
        place: ``KEYS`` or ``ARGV``.
        kind: None for a single value, ``rest`` for a list, ``rows`` for a list of rows, ``columns`` for a list of
            columns.
        at: Its position in ``KEYS`` or ``ARGV``, from 1, as the text in the script. For a list, the first position.
        fields: The names in each row, for rows and columns.
        json: Whether the script decodes the argument from JSON. Callers pass the value, not its text.
    """

    name: str
    place: str
    kind: str | None
    at: str
    fields: tuple[str, ...] = ()
    json: bool = False


@dataclass(frozen=True, slots=True)
class Script:
    """A Lua script with its includes, and its digest in Redis."""

    name: str
    source: str
    digest: str

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The keys and arguments of the script, in order."""
        found = [
            Parameter(
                one["name"].lower(),
                one["place"],
                one["kind"],
                one["at"] or one["first"],
                tuple(re.findall(r"\w+", one["fields"] or self._list(one["list"]))),
                one["json"] is not None,
            )
            for one in _NAME.finditer(self.source)
        ]
        return tuple(sorted(found, key=lambda one: (one.place == "ARGV", one.kind is not None)))

    def _list(self, name: str | None) -> str:
        """Return the text of a named list in the script. Empty without a name."""
        found = name and re.search(rf"^local {name} = \{{([^}}]*)\}}", self.source, re.MULTILINE)
        return found[1] if found else ""


@cache
def paths() -> dict[str, Path]:
    """Return the file of every script by its name, which is unique over all folders."""
    return {path.stem: path for path in sorted(LUA_DIR.rglob("*.lua"))}


@cache
def load(name: str) -> Script:
    """Read the script ``name``, replace its ``-- include`` lines with the included files, and digest the result."""
    source = _INCLUDE.sub(lambda include: paths()[include[1]].read_text(), paths()[name].read_text())
    return Script(name, source, hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest())


def names(script_name: str, called: str) -> tuple[str, ...]:
    """Return a list of names that a script or an include defines in its own lines."""
    found = re.search(rf"^local {called} = \{{(.*?)^\}}", paths()[script_name].read_text(), re.MULTILINE | re.DOTALL)
    return tuple(re.findall(r"^  '(\w+)',", found[1], re.MULTILINE)) if found else ()


def all_scripts() -> list[Script]:
    """Return every script that is a command: its file starts with ``#!lua``."""
    return [load(name) for name, path in paths().items() if path.read_text().startswith("#!lua")]


def script(signature: Callable[_Signature, None]) -> Callable[_Signature, Command]:
    """Turn a signature into the function that builds the command of the script with its name."""
    SIGNATURES[signature.__name__] = signature
    build = _builder(signature.__name__)

    @wraps(signature)
    def command(*args: _Signature.args, **kwargs: _Signature.kwargs) -> Command:
        return build(cast("KeySpace", args[0]), kwargs)

    return command


def _builder(name: str) -> Callable[[KeySpace, Mapping[str, Any]], Command]:
    loaded = load(name)
    keys = [one for one in loaded.parameters if one.place == "KEYS"]
    single_keys = tuple(one.name for one in keys if one.kind is None)
    arguments = [one for one in loaded.parameters if one.place == "ARGV"]
    single_arguments = [(one.name, json_text if one.json else _plain) for one in arguments if one.kind is None]

    @lru_cache(maxsize=256)  # calls about the same run have the same keys
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
    listed: Iterable[Any] = given[one.name]
    if one.kind == "rest":
        return listed
    return chain.from_iterable(listed if one.kind == "rows" else zip(*listed, strict=True))


def json_text(value: Any) -> str:
    """Write a value as JSON without blanks."""
    return _JSON.encode(value)


def _plain(value: Value) -> Argument:
    if value is None:
        return ""
    return int(value) if value is True or value is False else value
