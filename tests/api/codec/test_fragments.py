"""The JSON of fragments is read strictly, and no body of it becomes very many Python objects."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from app.api.codec.fragment_keys import FragmentKeys
from app.api.codec.fragments import decode_fragments_json
from app.api.codec.json_reader import MAX_DEPTH, MAX_REREAD_BYTES, PROXIES, parse_in_python, parse_json
from app.api.codec.scored_data import Parse
from lachesis.wire import blob
from lachesis.wire.blob import MAX_HEADER_BYTES
from lachesis.wire.errors import InvalidField, MalformedBody
from lachesis.wire.fragments import FRAGMENT_KEYS, FragmentFacts
from tests.api.codec.test_scored_data import run_python
from tests.api.native_groups import tensor_in_json
from tests.api.replay.calls import in_json

MIB = 1024 * 1024
BIG = {"episodes": ["e"], "reward": 1.5, "metadata": {"seed": [1, None, {"a": True}], "tiny": 5e-324}}


def kept(body: str, parser: Parse) -> list[tuple[str, int, bytes, str]]:
    """What is stored of each fragment of a body."""
    found = decode_fragments_json(body.encode(), parse=parser)
    return [(one.worker, one.number, bytes(one.payload), one.facts) for one in found]


def with_text(name: str, value: str) -> str:
    """A fragment in JSON, with some other JSON as one of its values."""
    return json.dumps(in_json(0, **{name: "HERE"})).replace('"HERE"', value)


def test_both_parsers_keep_the_same() -> None:
    bodies = [json.dumps(in_json(0, **BIG)), json.dumps({"fragments": [in_json(n, **BIG) for n in range(3)]})]
    bodies.append(json.dumps(in_json(0, tensors={f"t{n}": tensor_in_json(np.arange(n)) for n in range(40)})))
    fast = [kept(body, parse_json) for body in bodies]
    assert fast == [kept(body, parse_in_python) for body in bodies]
    assert [len(found) for found in fast] == [1, 3, 1]


def test_an_integer_of_many_digits_is_kept_in_a_small_body() -> None:
    (found,) = decode_fragments_json(json.dumps(in_json(0, metadata={"seed": 10**30})).encode())
    assert json.loads(found.facts)["metadata"] == {"seed": 10**30}
    assert json.loads(blob.read_header(found.payload).metadata["metadata"]) == {"seed": 10**30}


@pytest.mark.parametrize(
    ("value", "refusal"),
    [
        ('{"a": 1, "a": 2}', MalformedBody),
        ('{"a": {"b": 1, "b": 2}}', MalformedBody),
        ('{"a": %s}' % ("[" * MAX_DEPTH + "]" * MAX_DEPTH), MalformedBody),
        ('{"a": "\\ud800"}', MalformedBody),
        ('{"a": 1e999}', InvalidField),
        ('{"a": NaN}', InvalidField),
    ],
)
@pytest.mark.parametrize("where", ["metadata", "tensors"])
def test_what_readers_understand_differently_is_refused(value: str, refusal: type[Exception], where: str) -> None:
    with pytest.raises(refusal if where == "metadata" else (MalformedBody, InvalidField)):
        decode_fragments_json(with_text(where, value).encode())


def test_every_fact_of_a_fragment_is_stored() -> None:
    facts = {"episodes": ["e"], "reward": 1.5, "cost": 2.0, "metadata": {"seed": 1}}
    assert facts.keys() == FragmentFacts.model_fields.keys(), "add the new fact here"
    (found,) = decode_fragments_json(json.dumps(in_json(0, **facts)).encode())
    assert json.loads(found.facts) == facts


def test_the_keys_of_a_fragment_are_listed_once_more_in_the_same_order() -> None:
    assert tuple(FragmentKeys.model_fields) == FRAGMENT_KEYS


@pytest.mark.skipif(not PROXIES, reason="reads all of the body again")
def test_a_large_body_is_not_read_again_for_the_place_of_an_error() -> None:
    text = json.dumps(in_json(0, metadata={"seed": 10**30, "more": "x" * MAX_REREAD_BYTES}))
    with pytest.raises(MalformedBody):
        decode_fragments_json(text.encode())


def repeated(value: str, size_bytes: int) -> str:
    """An array of as many values as fit."""
    return "[" + ",".join([value] * (size_bytes // (len(value) + 1))) + "]"


ONE: dict[str, Callable[[int], str]] = {
    "fragments": lambda size: '{"fragments": ' + repeated("[]", size) + "}",
    "metadata": lambda size: with_text("metadata", '{"a": ' + repeated("[]", size) + "}"),
    "episodes": lambda size: with_text("episodes", repeated("[]", size)),
}


@pytest.mark.parametrize("make", ONE.values(), ids=ONE)
def test_very_many_values_are_refused(make: Callable[[int], str]) -> None:
    with pytest.raises(InvalidField, match=r"send 1 to 1024|needs a header of"):
        decode_fragments_json(make(MAX_HEADER_BYTES + MIB).encode())


@pytest.mark.slow
@pytest.mark.skipif(not (PROXIES and sys.platform == "linux"), reason="asks the kernel for the peak")
@pytest.mark.parametrize("make", ONE.values(), ids=ONE)
def test_very_many_values_do_not_become_objects(tmp_path: Path, make: Callable[[int], str]) -> None:
    """Twelve times is simdjson's tape and index, and a copy; Python lists would take 24."""
    text = make(32 * MIB)
    (tmp_path / "body.json").write_text(text)
    script = (
        "import sys; from app.api.codec.fragments import decode_fragments_json; from lachesis.wire.errors import *\n"
        "peak = lambda: int(open('/proc/self/status').read().split('VmHWM:')[1].split()[0]) * 1024\n"
        "before = peak(); body = open(sys.argv[1], 'rb').read()\n"
        "try: decode_fragments_json(body)\n"
        "except InvalidField: print(peak() - before)"
    )
    assert int(run_python(script, str(tmp_path / "body.json"))) < 16 * len(text)
