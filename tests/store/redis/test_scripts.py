"""Each script is one file, one signature and its calls; these agree, and Redis compiles it."""

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from redis.asyncio import Redis

import app.store
from app.store.redis import scripts
from app.store.redis.keys import CurriculumKeys, ReplayKeys, RunKeys, ServiceKeys
from app.store.redis.notifications import LEASE_NEWS
from app.store.redis.scripts import Parameter, Script, script
from app.store.runs.turns import NEWS as TURN_NEWS
from tests.script_names import name_of

STORE = Path(app.store.__file__).parent
for _module in sorted(STORE.glob("*/scripts.py")):
    importlib.import_module(f"app.store.{_module.parent.name}.scripts")
ALL = scripts.all_scripts()
OF_RUN = RunKeys("r")
KEY_SPACES = {
    RunKeys: OF_RUN,
    ServiceKeys: ServiceKeys(),
    ReplayKeys: ReplayKeys(OF_RUN),
    CurriculumKeys: CurriculumKeys(OF_RUN, "c"),
}
each_script = pytest.mark.parametrize("one", ALL, ids=lambda one: one.name)


def _own_text(one: Script) -> str:
    return scripts.paths()[one.name].read_text()


def _calls() -> Iterator[tuple[str, set[str]]]:
    """Yield each call of a script in the store: its name and its arguments. Mypy looks into `**arguments`."""
    for path in sorted(STORE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                module, name = node.func.value, node.func.attr
                if isinstance(module, ast.Name) and module.id.endswith("scripts") and name in scripts.SIGNATURES:
                    yield name, {keyword.arg or ast.unparse(keyword.value) for keyword in node.keywords}


@each_script
def test_a_header_gives_purpose_result_and_cost(one: Script) -> None:
    header = re.match(r"#!lua.*\n((?:--.*\n)+)", _own_text(one))
    assert header is not None
    assert header[1].startswith(f"-- {one.name}: ")
    for part in ("\n-- Returns ", "\n-- Cost: O("):
        assert part in header[1], f"the header of {one.name} lacks `{part.strip()}`"


@each_script
def test_keys_and_arguments_have_names_of_their_own_and_numbers_without_gaps(one: Script) -> None:
    names = [parameter.name for parameter in one.parameters]
    assert len(names) == len(set(names))
    for place in ("KEYS", "ARGV"):
        own = [parameter for parameter in one.parameters if parameter.place == place]
        single = [parameter.at for parameter in own if parameter.kind is None]
        assert single == [str(number) for number in range(1, len(single) + 1)]
        lists = [parameter for parameter in own if parameter.kind]
        assert not lists or lists[0].at == str(len(single) + 1)


@each_script
def test_only_the_first_lines_of_a_script_read_keys_and_arguments(one: Script) -> None:
    named = len(one.parameters)
    uses = [line for line in one.source.splitlines() if re.search(r"\b(KEYS|ARGV)\b", line.partition("--")[0])]
    assert len(uses) == named, [line for line in uses if not line.startswith("local ")]


@each_script
def test_a_signature_names_the_parameters_of_its_script(one: Script) -> None:
    hints = _hints(one)
    space, given = hints.pop("keys"), {name: hint for name, hint in hints.items() if name != "return"}
    names = {parameter.name for parameter in one.parameters}
    assert given.keys() <= names
    for parameter in one.parameters:
        if parameter.name in given:
            assert _fields(given[parameter.name], parameter) == parameter.fields, parameter.name
        else:
            assert parameter.place == "KEYS"
            assert parameter.kind is None
            assert KEY_SPACES[space].key(parameter.name), parameter.name


def _hints(one: Script) -> dict[str, Any]:
    """Return the hints of a signature by parameter, also of those that `**arguments` stands for."""
    hints = get_type_hints(scripts.SIGNATURES[one.name])
    arguments = hints.pop("arguments", None)
    return hints | ({} if arguments is None else get_type_hints(get_args(arguments)[0]))


def _fields(hint: Any, parameter: Parameter) -> tuple[str, ...]:
    """Return the fields of the rows that a hint describes."""
    return getattr(get_args(hint)[0], "_fields", ()) if parameter.kind in ("rows", "columns") else ()


def test_every_script_has_a_signature_and_every_signature_a_script() -> None:
    assert scripts.SIGNATURES.keys() == {one.name for one in ALL}


def test_every_call_gives_the_arguments_of_its_signature_by_name() -> None:
    called = set()
    for name, given in _calls():
        assert given | {"keys"} == inspect.signature(scripts.SIGNATURES[name]).parameters.keys(), name
        called.add(name)
    assert called == scripts.SIGNATURES.keys()


@each_script
def test_a_script_has_no_clock_of_its_own_and_makes_no_choices(one: Script) -> None:
    for forbidden in ("'TIME'", "math.random", "table.sort", "'KEYS'", "'SCAN'"):
        assert forbidden not in _own_text(one)


def test_scripts_publish_the_words_that_waiting_requests_listen_for() -> None:
    lines = [line for one in ALL for line in one.source.splitlines() if "'PUBLISH'" in line]
    published = {word.encode() for line in lines for word in re.findall("'([^']+)'", line)}
    assert published >= LEASE_NEWS | TURN_NEWS


WORK = re.compile(
    r"'(?:ZADD|SADD|HSET)', "
    r"(?:unreferenced|marked_hashes|lease_states|sample_states|due|members_heard|curricula_loading),",
    re.IGNORECASE,
)
WITHOUT_WAKING = {
    "mark_abandoned_payloads": "maintenance calls it, and deletes the payloads at once",
    "delete_strays": "the request that deletes a run calls it, and deletes the payloads at once",
}


@pytest.mark.parametrize("one", [one for one in ALL if WORK.search(one.source)], ids=lambda one: one.name)
def test_a_script_that_leaves_work_for_maintenance_wakes_the_run(one: Script) -> None:
    calls = re.findall(r"(?<!function )advance_clock\(", one.source)
    assert bool(calls) != (one.name in WITHOUT_WAKING)


@each_script
async def test_redis_compiles_it(redis_client: Redis, one: Script) -> None:
    assert await redis_client.script_load(one.source) in (one.digest, one.digest.encode())


def test_a_command_has_its_keys_and_arguments_in_the_order_of_the_script() -> None:
    def mark_abandoned_payloads(keys: RunKeys, *, most: int | None, before_ms: bool) -> None: ...

    command = script(mark_abandoned_payloads)(RunKeys("r"), most=None, before_ms=True)
    digest = scripts.load("mark_abandoned_payloads").digest
    assert command == ("EVALSHA", digest, 1, RunKeys("r").unreferenced, 1, "")
    assert name_of(command) == "mark_abandoned_payloads"
    assert name_of(("GET", "a")) is None


def test_an_outcome_that_no_script_declares_is_refused() -> None:
    assert scripts.outcome(b"full", ("gone", "full")) == "full"
    with pytest.raises(ValueError, match="'lost', not one of gone, full"):
        scripts.outcome(b"lost", ("gone", "full"))
