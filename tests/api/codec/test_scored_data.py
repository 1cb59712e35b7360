"""JSON into columns: everything that is right comes in unchanged, everything that is wrong is named."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from app.api.codec.atropos_batch import group_json
from app.api.codec.group_fields import count_arrays, holds_only, read_fields_by_shortcut
from app.api.codec.json_reader import MAX_DEPTH, MAX_REREAD_BYTES, PROXIES, parse_in_python, parse_json
from app.api.codec.scored_data import decode_group, decode_groups
from lachesis.wire.atropos import ScoredData
from lachesis.wire.columns import unpack
from lachesis.wire.errors import InvalidField, InvalidInput, MalformedBody
from lachesis.wire.groups import MAX_GROUPS
from lachesis.wire.limits import MAX_BATCH_SIZE
from tests.api.bodies import ODD_VALUES, exact, groups, mutated, served
from tests.properties import examples

ROOT = Path(__file__).parents[3]
TEXTS = st.text(st.sampled_from('[]{}",\\:nu5b0a') | st.characters(exclude_categories=["Cs"]), max_size=8)


def json_values() -> st.SearchStrategy[Any]:
    """JSON values whose strings and keys look like structure."""
    leaves = st.none() | st.integers(0, 9) | TEXTS
    return st.recursive(leaves, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4))


GROUP: dict[str, Any] = {"tokens": [[1, 2, 3], [4]], "masks": [[-100, 2, 3], [4]], "scores": [1.0, 0.5]}


def body(**fields: Any) -> bytes:
    """A valid group with some fields replaced; a field set to ``...`` is left out."""
    return json.dumps({key: value for key, value in (GROUP | fields).items() if value is not ...}).encode()


def outcome(text: bytes, **options: Any) -> Any:
    """What decoding comes to, in a form that can be compared."""
    try:
        group = decode_group(text, **options)
    except InvalidField as error:
        return InvalidField, error.location
    except InvalidInput as error:
        return type(error)
    return group.size, group.environment, exact(json.loads(group_json(group.payload)))


def agreed_outcome(text: bytes) -> Any:
    """The outcome of all three ways to decode, which must be one."""
    by_shortcut = outcome(text)
    assert by_shortcut == outcome(text, shortcut=False)
    assert by_shortcut == outcome(text, parse=parse_in_python)
    return by_shortcut


def refusal(text: bytes, **options: Any) -> InvalidInput:
    with pytest.raises(InvalidInput) as caught:
        decode_group(text, **options)
    return caught.value


def run_python(script: str, *arguments: str, stdin: str = "") -> str:
    """Run a script in a Python of its own; what it printed."""
    command = [sys.executable, "-c", script, *arguments]
    env = {"PYTHONPATH": f"{ROOT}:{ROOT / 'clients'}"}
    return subprocess.run(command, input=stdin, env=env, capture_output=True, text=True, check=True).stdout


@examples(150)
@given(group=groups(), ascii_only=st.booleans(), indent=st.none() | st.just(1))
def test_what_came_in_comes_back_equal_value_for_value(
    group: dict[str, Any], ascii_only: bool, indent: int | None
) -> None:
    text = json.dumps(group, ensure_ascii=ascii_only, indent=indent).encode()
    assert agreed_outcome(text) == (len(group["tokens"]), group.get("env_id"), exact(served(group)))


@examples(150)
@given(group=mutated())
def test_shortcut_reference_and_fallback_agree_on_wrong_values(group: dict[str, Any]) -> None:
    agreed_outcome(json.dumps(group).encode())


@examples(150)
@given(group=groups(), cut=st.randoms(use_true_random=False), junk=st.binary(max_size=3))
def test_shortcut_reference_and_fallback_agree_on_damaged_bodies(group: dict[str, Any], cut: Any, junk: bytes) -> None:
    text = json.dumps(group, ensure_ascii=False).encode()
    start = cut.randrange(len(text))
    agreed_outcome(text[:start] + junk + text[start + cut.randrange(3) :])


@examples(150)
@given(group=mutated())
def test_numbers_are_coerced_as_atropos_coerces_them(group: dict[str, Any]) -> None:
    """What pydantic makes of a body in its lax mode is what is stored, if it is stored."""
    try:
        decoded = decode_group(json.dumps(group).encode())
    except InvalidInput:
        return
    columns = ("tokens", "masks", "scores", "advantages", "distill_token_ids", "distill_logprobs", "env_id")
    expected = ScoredData.model_validate(group).model_dump(include=set(columns))
    got = json.loads(group_json(decoded.payload))
    assert exact({name: got[name] for name in columns}) == exact({name: expected[name] for name in columns})


@pytest.mark.parametrize("odd", ODD_VALUES, ids=repr)
@pytest.mark.parametrize("field", ["tokens", "masks", "advantages"])
def test_values_are_accepted_as_pydantic_accepts_them(field: str, odd: Any) -> None:
    rows = [[1, 2, odd], [4]]
    got = agreed_outcome(body(**{field: rows}))
    try:
        row = ScoredData.model_validate(GROUP | {field: rows}).model_dump()[field]
        fits = all(isinstance(value, float) or -(2**63) <= value < 2**63 for value in row[0])
    except ValidationError:
        fits = False
    assert (got[0] == 2) == fits, got
    assert fits or got == (InvalidField, (field, 0, 2))


@pytest.mark.parametrize(
    ("fields", "location"),
    [
        ({"tokens": ...}, ("tokens",)),
        ({"masks": None}, ("masks",)),
        ({"scores": ...}, ("scores",)),
        ({"tokens": [], "masks": [], "scores": []}, ("tokens",)),
        ({"tokens": [[1, 2, 3], []], "masks": [[1, 2, 3], []]}, ("tokens", 1)),
        ({"masks": [[1, 2, 3]]}, ("masks",)),
        ({"masks": [[1, 2, 3], [1, 2]]}, ("masks", 1)),
        ({"scores": []}, ("scores",)),
        ({"scores": [1.0, [2.0]]}, ("scores", 1)),
        ({"scores": {}}, ("scores",)),
        ({"tokens": 5}, ("tokens",)),
        ({"tokens": [[1, 2, 3], 4]}, ("tokens", 1)),
        ({"tokens": [[1, [2]], [], [3, 4]]}, ("tokens", 0, 1)),
        ({"tokens": {"a": 1}}, ("tokens",)),
        ({"tokens": [[1, 2, 2**63], [4]]}, ("tokens", 0, 2)),
        ({"tokens": [[1, 2, 10**30], [4]]}, ("tokens", 0, 2)),
        ({"advantages": [[0.5], [float("nan")]]}, ("advantages", 1, 0)),
        ({"scores": [1.0, float("-inf")]}, ("scores", 1)),
        ({"messages": [[{"role": "user", "content": [1, float("nan")]}]]}, ("messages", 0, 0, "content", 1)),
        ({"unknown": {"x": [float("inf")]}}, ("unknown", "x", 0)),
        ({"messages": [[5]]}, ("messages", 0, 0)),
        ({"messages": [[{"role": "user"}]]}, ("messages", 0, 0)),
        ({"messages": [[], [{"content": "x"}]]}, ("messages", 1, 0)),
        ({"messages": {}}, ("messages",)),
        ({"generation_params": []}, ("generation_params",)),
        ({"overrides": [{}, 1]}, ("overrides", 1)),
        ({"group_overrides": "x"}, ("group_overrides",)),
        ({"env_id": -1}, ("env_id",)),
        ({"env_id": 2**53}, ("env_id",)),
        ({"env_id": 1.5}, ("env_id",)),
        ({"distill_token_ids": [[1]]}, ("distill_token_ids", 0, 0)),
        ({"distill_token_ids": [[[1, "x"]]]}, ("distill_token_ids", 0, 0, 1)),
        ({"distill_logprobs": [[[[0.5]]]]}, ("distill_logprobs", 0, 0, 0)),
    ],
    ids=str,
)
def test_a_wrong_value_is_refused_with_its_place(fields: dict[str, Any], location: tuple[str | int, ...]) -> None:
    assert agreed_outcome(body(**fields)) == (InvalidField, location)


@pytest.mark.parametrize("number", ["1e999", "-1e999", "NaN", "Infinity", "-Infinity", "9" * 5000])
@pytest.mark.parametrize("field", ["tokens", "scores", "messages"])
def test_a_number_that_is_none_is_refused_with_its_place(field: str, number: str) -> None:
    """Fault 2: one NaN made Atropos lose a whole batch, since it was noticed only on the way out."""
    places: dict[str, tuple[Any, tuple[str | int, ...]]] = {
        "tokens": ([[1, 2, 777], [4]], ("tokens", 0, 2)),
        "scores": ([1.0, 777], ("scores", 1)),
        "messages": ([[{"role": "user", "content": 777}]], ("messages", 0, 0, "content")),
    }
    value, location = places[field]
    assert agreed_outcome(body(**{field: value}).replace(b"777", number.encode())) == (InvalidField, location)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"", "empty"),
        (b" ", "byte 1"),
        (b"{", "byte 1"),
        (b"[]", "an array"),
        (b"5", "5"),
        (b"null", "null"),
        (b"\xef\xbb\xbf" + body(), "byte 0"),
        (body() + b"x", f"byte {len(body())}"),
        (body() + b"\x00", f"byte {len(body())}"),
        (body(images="\x01").replace(b"\\u0001", b"\x01"), "byte 9"),
        (body(images="?").replace(b"?", b"\xff"), "UTF-8 at byte 9"),
        (body(images="?").replace(b"?", b"\\ud800"), "surrogate"),
        (body(images="?").replace(b"?", b"\\udc00\\ud800"), "surrogate"),
        (body(images="?").replace(b"?", b"\\x"), "byte 9"),
        (body(env_id=7).replace(b"7", b"07"), "byte 9"),
        (body(env_id=7).replace(b"7", b"7,"), "byte"),
        (body().replace(b"masks", b"tokens"), "'tokens' twice"),
        (body(unknown={"b": 1, "c": 1}).replace(b'"c"', b'"b"'), "'b' twice"),
        (body(images=[{"b": 1, "c": 1}]).replace(b'"c"', b'"\\u0062"'), "'b' twice"),
        (body(tokens=[[{"b": 1, "c": 1}]]).replace(b'"c"', b'"b"'), "'b' twice"),
        (body(messages=777).replace(b"777", b"[" * 100_000), "nested deeper"),
        (body(images=777).replace(b"777", b'{"a":' * 200 + b"1" + b"}" * 200), "nested deeper"),
        (body(tokens=777).replace(b"777", b"[" * 200 + b"1" + b"]" * 200), "nested deeper"),
        (b"[" * 100_000, "nested deeper"),
    ],
    ids=lambda value: repr(value)[:60],
)
def test_a_body_that_is_not_plain_json_is_refused(text: bytes, says: str) -> None:
    assert agreed_outcome(text) is MalformedBody
    assert says in str(refusal(text))


def test_a_refusal_stays_short_however_long_the_value() -> None:
    for text in (body(tokens=[["x" * 100_000]]), body(scores=["x" * 100_000, 1]), body(env_id="9" * 4000)):
        assert len(str(refusal(text))) < 300


@given(value=json_values())
def test_arrays_are_counted_as_a_parser_finds_them(value: Any) -> None:
    def arrays(value: Any) -> int:
        if isinstance(value, dict):
            return sum(map(arrays, value.values()))
        return 1 + sum(map(arrays, value)) if isinstance(value, list) else 0

    for ascii_only in (False, True):
        assert count_arrays(json.dumps(value, ensure_ascii=ascii_only).encode()) == arrays(value)


def test_a_bracket_in_a_string_does_not_hide_nested_rows() -> None:
    nested = body(tokens=[[1, [2], 3], [4]], images="[")
    for spelling in (b"\\u005b", b"\\u005B"):
        assert agreed_outcome(nested.replace(b'"["', b'"' + spelling + b'"')) == (InvalidField, ("tokens", 0, 1))
    assert agreed_outcome(body(images="[")) == (2, None, exact(served(GROUP | {"images": "["})))
    assert agreed_outcome(body(**{"a[": "["}))[0] == 2


@pytest.mark.skipif(not PROXIES, reason="there is no shortcut without simdjson")
def test_the_shortcut_is_taken_for_plain_columns() -> None:
    columns = {"inference_logprobs": [[1.0, 1, -0.25], [1]], "distill_token_ids": [[[1], [2, 3]], []], "advantages": []}
    text = body(messages=[[{"role": "user", "content": "[x]\n"}]], extra=[[]], **columns)
    fields = read_fields_by_shortcut(parse_json(text), ())
    assert fields.plain.keys() == GROUP.keys() | columns.keys()
    assert holds_only(text, fields.arrays)


@pytest.mark.skipif(not PROXIES, reason="there is no shortcut without simdjson")
def test_the_shortcut_is_taken_for_whole_numbers_that_are_written_as_floats() -> None:
    """One by one, 250,000 of them took 0.2 s. Above 2**53 a float may stand for another number, so these go slowly."""
    numbers = [[1.0, 2, -3e2], [4]]
    fields = read_fields_by_shortcut(parse_json(body(tokens=numbers, masks=[[1.0, 2, 2**53 + 1], [4]])), ())
    assert fields.plain["tokens"].values.tolist() == [1, 2, -300, 4]
    assert "masks" not in fields.plain
    mixed = body(tokens=[[1.0, 2, 2**53 + 1], [4]], masks=numbers)
    assert agreed_outcome(mixed) == agreed_outcome(body(tokens=[[1, 2, 2**53 + 1], [4]], masks=[[1, 2, -300], [4]]))


def test_an_object_of_many_keys_is_read_like_any_other() -> None:
    params = {f"key {number}": [number, {"nested": number}] for number in range(1000)}
    assert agreed_outcome(body(generation_params=params)) == (
        2,
        None,
        exact(served(GROUP | {"generation_params": params})),
    )
    twice = body(generation_params=params).replace(b'"key 999"', b'"key 0"')
    assert agreed_outcome(twice) is MalformedBody


def test_rows_of_the_usual_length_are_measured_once() -> None:
    columns = {"inference_logprobs": [[1.0, 0.5, 0.25], [1.0]], "advantages": [[1.0, 0.5, 0.25], [1.0, 2.0]]}
    payload = decode_group(body(**columns)).payload
    for name in (b'"tokens.lengths"', b'"advantages.lengths"'):
        assert payload.count(name) == 1
    for name in (b'"masks.lengths"', b'"inference_logprobs.lengths"'):
        assert name not in payload


def test_a_group_of_8_x_2048_takes_eight_bytes_a_token_and_little_more() -> None:
    rows = [[token % 128_000 for token in range(2048)]] * 8
    payload = decode_group(json.dumps({"tokens": rows, "masks": rows, "scores": [1.0] * 8}).encode()).payload
    assert len(payload) < 8 * 2048 * 8 + 1000
    assert unpack(payload)[0]["tokens"].values.dtype.itemsize == 4


def test_a_list_is_decoded_in_order_and_faults_name_the_group() -> None:
    first, second = decode_groups(b"[" + body(env_id=3) + b", " + body(tokens=[[1]], masks=[[1]], scores=[1]) + b"]")
    assert (first.size, first.environment, second.size, second.environment) == (2, 3, 1, None)
    assert decode_groups(b" [ ] ") == []
    for options in ({}, {"shortcut": False}, {"parse": parse_in_python}):
        for text, location in (
            (b"[" + body() + b"," + body() + b"," + body(tokens=[["x"]]) + b"]", (2, "tokens", 0, 0)),
            (b"[" + body() + b", 5]", (1,)),
            (b"[" + body(tokens=[[1, [2], 3], [4]]) + b"," + body() + b"]", (0, "tokens", 0, 1)),
        ):
            with pytest.raises(InvalidField) as caught:
                decode_groups(text, **options)
            assert caught.value.location == location
        with pytest.raises(MalformedBody):
            decode_groups(b"[5," + body().replace(b"masks", b"tokens") + b"]", **options)
        with pytest.raises(MalformedBody):
            decode_groups(body(), **options)


@pytest.mark.parametrize("column", ["advantages", "distill_token_ids"])
def test_a_column_has_at_most_a_row_for_each_sequence_of_the_largest_batch(column: str) -> None:
    size, _, _ = agreed_outcome(body(**{column: [[]] * MAX_BATCH_SIZE}))
    assert size == 2
    assert agreed_outcome(body(**{column: [[]] * (MAX_BATCH_SIZE + 1)})) == (InvalidField, (column,))


@pytest.mark.parametrize("column", ["distill_token_ids", "distill_logprobs"])
def test_a_column_has_few_more_positions_than_the_group_has_tokens(column: str) -> None:
    most = 4 + MAX_BATCH_SIZE
    size, _, _ = agreed_outcome(body(**{column: [[[]] * (most - 3), [[]] * 3]}))
    assert size == 2
    assert agreed_outcome(body(**{column: [[[]] * (most - 3), [[]] * 4]})) == (InvalidField, (column,))


def test_a_group_has_at_most_the_sequences_of_the_largest_batch() -> None:
    def of(sequences: int) -> bytes:
        return body(tokens=[[1]] * sequences, masks=[[1]] * sequences, scores=[0] * sequences)

    assert outcome(of(MAX_BATCH_SIZE))[0] == MAX_BATCH_SIZE
    assert agreed_outcome(of(MAX_BATCH_SIZE + 1)) == (InvalidField, ("tokens",))


def test_more_groups_than_a_request_may_have_are_refused() -> None:
    tiny = b'{"tokens":[[1]],"masks":[[1]],"scores":[1]}'
    with pytest.raises(InvalidField, match="more than"):
        decode_groups(b"[" + b",".join([tiny] * (MAX_GROUPS + 1)) + b"]")


@pytest.mark.parametrize("options", [{}, {"shortcut": False}, {"parse": parse_in_python}])
def test_too_many_groups_are_not_looked_at_before_they_are_refused(options: dict[str, Any]) -> None:
    """To look at 200 MB of ``[],[],`` took half a minute."""
    too_deep = b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1)
    with pytest.raises(InvalidField, match="more than"):
        decode_groups(b"[" + too_deep + b",[]" * MAX_GROUPS + b"]", **options)
    with pytest.raises(MalformedBody):
        decode_groups(b"[" + too_deep + b",[]" * (MAX_GROUPS - 1) + b"]", **options)


def test_a_large_body_that_is_not_json_is_refused_without_reading_it_again() -> None:
    large = b'{"images":"' + b"x" * MAX_REREAD_BYTES + b'","a":01}'
    assert isinstance(refusal(large), MalformedBody)


@pytest.mark.slow
@pytest.mark.skipif(not (PROXIES and sys.platform == "linux"), reason="asks the kernel for the peak")
def test_memory_stays_a_small_multiple_of_the_body(tmp_path: Path) -> None:
    """Eight times is simdjson's tape and index, the columns, and the blob; Python lists of ints would take 20."""
    row = json.dumps([token * 37 % 128_000 for token in range(2048)]).replace(" ", "")
    rows = ",".join([row] * 1000)
    text = f'{{"tokens":[{rows}],"masks":[{rows}],"scores":[{",".join(["1.0"] * 1000)}]}}'
    (tmp_path / "body.json").write_text(text)
    script = (
        "import sys; from app.api.codec.scored_data import decode_group\n"
        "peak = lambda: int(open('/proc/self/status').read().split('VmHWM:')[1].split()[0]) * 1024\n"
        "before = peak(); body = open(sys.argv[1], 'rb').read(); decode_group(body); print(peak() - before)"
    )
    run = run_python(script, str(tmp_path / "body.json"))
    assert int(run) < 10 * len(text)


def test_results_are_the_same_where_simdjson_has_no_wheel() -> None:
    texts = [body(env_id=4, messages=[[{"role": "u", "content": 10**30}]]), body(tokens=[["1", 2.0, True], [4]])]
    script = (
        "import sys, json; sys.modules['simdjson'] = None\n"
        "from app.api.codec.json_reader import PROXIES; assert PROXIES == ()\n"
        "from app.api.codec.scored_data import decode_group; from app.api.codec.atropos_batch import group_json\n"
        "print(json.dumps([group_json(decode_group(t.encode()).payload).decode() for t in json.load(sys.stdin)]))"
    )
    printed = run_python(script, stdin=json.dumps([text.decode() for text in texts]))
    assert [json.loads(text) for text in json.loads(printed)] == [
        json.loads(group_json(decode_group(text).payload)) for text in texts
    ]
