"""Groups as environments make them: what is sent is what was meant, and what is wrong is said before it is sent."""

import json
import math
import re
import uuid
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.api.codec.group_blob import decode_blobs
from lachesis import Group
from lachesis.environments.outbox import Parcel
from lachesis.errors import InvalidField
from lachesis.wire import errors as ours
from lachesis.wire.blob import read_header
from lachesis.wire.body import MAX_INTEGER
from lachesis.wire.columns import NATIVE_COLUMNS, Ragged, nested, pack, unpack
from lachesis.wire.problems import place
from tests.properties import examples

TOKENS = [[1, 2, 3], [4, 5]]
VERSIONS = [[7, 7, 8], [8, 9]]
SCORES = [1.0, -0.5]


def group(**changed: Any) -> Group:
    return Group(**{"tokens": TOKENS, "masks": TOKENS, "scores": SCORES, **changed})


def as_lists(rows: Any) -> Any:
    return rows.tolist() if isinstance(rows, np.ndarray) else [as_lists(row) for row in rows]


def rows_of(values: st.SearchStrategy[Any], lengths: list[int]) -> st.SearchStrategy[list[list[Any]]]:
    return st.tuples(*(st.lists(values, min_size=length, max_size=length) for length in lengths)).map(list)


@st.composite
def groups(draw: st.DrawFn) -> dict[str, Any]:
    lengths = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    ints = st.integers(-(2**63), 2**63 - 1) | st.integers(0, 50_000)
    floats = st.floats(allow_nan=False, allow_infinity=False)
    ranks = rows_of(st.lists(ints, max_size=3), lengths)
    fields = {
        "tokens": rows_of(ints, lengths),
        "masks": rows_of(ints, lengths),
        "scores": st.lists(floats, min_size=len(lengths), max_size=len(lengths)),
        "advantages": st.none() | st.lists(st.lists(floats, max_size=3), max_size=3),
        "inference_logprobs": st.none() | rows_of(floats, lengths),
        "distill_token_ids": st.none() | ranks,
        "policy_versions": st.none() | rows_of(st.integers(0, 2**40), lengths),
    }
    return {name: draw(values) for name, values in fields.items()}


@given(groups())
@examples(300)
def test_every_value_is_stored_as_it_was_given(fields: dict[str, Any]) -> None:
    (stored,) = decode_blobs(Group(**fields).packed(3))
    columns = unpack(stored.payload).columns
    for column in NATIVE_COLUMNS:
        given_rows = fields.get(column.name)
        assert (given_rows is not None) == (column.name in columns)
        if given_rows is not None:
            assert as_lists(nested(columns[column.name])) == given_rows


@pytest.mark.parametrize(
    "rows",
    [
        np.array([[1, 2, 3], [4, 5, 6]], np.int16),
        [np.array([1, 2, 3], np.uint64), [4, 5, 6]],
        (np.array([1, 2, 3], ">i4"), (4, 5, 6)),
        np.array([[1, 9, 2, 9, 3], [4, 9, 5, 9, 6]])[:, ::2],
    ],
    ids=["two dimensions", "mixed", "big-endian", "a view with gaps"],
)
def test_arrays_of_any_kind_are_the_same_as_lists(rows: Any) -> None:
    one = Group(rows, rows, SCORES, id="a").packed(0)
    other = Group([[1, 2, 3], [4, 5, 6]], [[1, 2, 3], [4, 5, 6]], SCORES, id="a").packed(0)
    assert one == other


def test_half_precision_is_widened_and_nothing_else_is_changed() -> None:
    packed = group(advantages=np.array([[0.1, 0.2, 0.3]], np.float16)).packed(None)
    values = unpack(packed).columns["advantages"].values
    assert values.dtype == np.float32
    assert values.tolist() == np.array([0.1, 0.2, 0.3], np.float16).tolist()


def test_what_a_group_says_of_itself_arrives() -> None:
    made = group(policy_version=7, item="gsm8k/12", cost=1.5, metadata={"worker": "ä"}, tensors={"h": np.eye(2)})
    (stored,) = decode_blobs(made.packed(4))
    unpacked = unpack(stored.payload)
    assert (stored.given_id, stored.environment, stored.policy_version, stored.size) == (made.id, 4, 7, 2)
    assert unpacked.metadata["item"] == "gsm8k/12"
    assert float(unpacked.metadata["cost"]) == 1.5
    assert unpacked.metadata["metadata"] == '{"worker":"ä"}'
    assert unpacked.tensors["h"].tolist() == [[1, 0], [0, 1]]


@pytest.mark.parametrize("version", [7, np.int64(7), np.uint8(7), np.array(7)], ids=["int", "int64", "uint8", "array"])
def test_a_policy_version_may_be_a_whole_number_of_any_type(version: Any) -> None:
    (stored,) = decode_blobs(group(policy_version=version, policy_versions=VERSIONS).packed(0))
    assert stored.policy_version == 7


def test_the_oldest_version_counts() -> None:
    (stored,) = decode_blobs(group(policy_versions=VERSIONS).packed(0))
    assert stored.policy_version == 7


def test_every_group_has_an_id_of_its_own() -> None:
    assert len({group().id for _ in range(100)}) == 100


def unchecked(made: Group) -> bytes:
    """Return the blob of a group that the SDK would not send. Its columns are lists of lists, except the scores."""
    columns = {"scores": Ragged(np.array(made.scores, np.float64))}
    for name in ("tokens", "masks", "advantages", "policy_versions"):
        if (rows := getattr(made, name)) is not None:
            dtype = np.float64 if name == "advantages" else np.int64
            lengths = np.array([len(row) for row in rows], np.int64)
            columns[name] = Ragged(np.array([value for row in rows for value in row], dtype), (lengths,))
    details = json.dumps({"messages": made.messages} if made.messages else {}).encode()
    keys = {"id": made.id} | ({} if made.policy_version is None else {"policy_version": str(made.policy_version)})
    return pack(columns, details, keys)


WRONG_EVERYWHERE: dict[str, dict[str, Any]] = {
    "no sequence": {"tokens": [], "masks": [], "scores": []},
    "an empty sequence": {"tokens": [[1], []], "masks": [[1], []]},
    "a row of masks is missing": {"masks": [[1, 2, 3]]},
    "a mask is missing": {"masks": [[1, 2, 3], [4]]},
    "a score is missing": {"scores": [1.0]},
    "an infinite score": {"scores": [1.0, math.inf]},
    "not the oldest version": {"policy_versions": VERSIONS, "policy_version": 8},
    "versions of other rows": {"policy_versions": [[7, 7], [7, 7]]},
    "rows without versions": {"policy_versions": [[], []]},
    "a message without a role": {"messages": [[{"role": "user", "content": "?"}], [{"content": "!"}]]},
}


@pytest.mark.parametrize("changed", WRONG_EVERYWHERE.values(), ids=list(WRONG_EVERYWHERE))
def test_what_is_wrong_is_said_in_the_words_of_the_service(changed: dict[str, Any]) -> None:
    made = group(**changed)
    with pytest.raises(InvalidField) as here:
        made.packed(0)
    with pytest.raises(ours.InvalidField) as there:
        decode_blobs(unchecked(made))
    path = tuple(part for part in there.value.location if part != "details")
    assert here.value.detail == f"{place(path)}: {there.value.message}"
    assert here.value.errors == ({"loc": list(path), "msg": there.value.message},)


class Unreadable:
    """As a tensor on a GPU, or one that requires gradients: it has dimensions, and numpy cannot read it."""

    def __init__(self, error: type[Exception], ndim: int = 1) -> None:
        self.ndim = ndim
        self._error = error

    def __array__(self, *_: object, **__: object) -> np.ndarray[Any, Any]:
        raise self._error("use cpu")


WRONG_NUMBERS: dict[str, tuple[dict[str, Any], str]] = {
    "a value per token": ({"inference_logprobs": [[-1.0, -1.0, -1.0], [math.nan, -1.0]]}, "[1][0]: not a finite"),
    "after an empty row": ({"advantages": [[], [0.5, math.inf]]}, "[1][1]: not a finite"),
    "a value per rank": ({"distill_logprobs": [[[1.0], [], [2.0, math.nan]], [[1.0]]]}, "[0][2][1]: not a finite"),
    "an array": ({"ref_logprobs": np.array([[0.0, 1.0], [2.0, -math.inf]])}, "[1][1]: not a finite"),
    "a value per sequence": ({"advantages": [0.5, math.nan]}, "[1]: not a finite"),
    "a version": ({"policy_versions": [[7, 7, 7], [7, -1]]}, "[1][1]: is negative: -1"),
}


@pytest.mark.parametrize(("changed", "said"), WRONG_NUMBERS.values(), ids=list(WRONG_NUMBERS))
def test_the_place_of_a_wrong_number_is_that_in_the_rows(changed: dict[str, Any], said: str) -> None:
    (name,) = changed
    with pytest.raises(InvalidField, match=f"^{re.escape(name + said)}"):
        group(**changed).packed(0)


WRONG_HERE: dict[str, tuple[dict[str, Any], str]] = {
    "a number for rows": ({"tokens": 3}, "tokens: should be an array, not int"),
    "nothing for rows": ({"masks": None}, "masks: should be an array, not NoneType"),
    "numbers for rows": ({"tokens": [1, 2]}, r"tokens\[0\]: has 0 dimensions where 1 belong"),
    "rows of rows": ({"tokens": [[[1]], [[2]]]}, r"tokens\[0\]: has 2 dimensions where 1 belong"),
    "ragged rows of rows": ({"tokens": [[[1], [2, 3]], [4]]}, r"tokens\[0\]: is nested deeper"),
    "text for rows": ({"tokens": "abc"}, "tokens: is text where lists of whole numbers belong"),
    "rows of text": ({"masks": ["abc", b"de"]}, r"masks\[0\]: is text where whole numbers belong"),
    "text for numbers": ({"scores": "ab"}, "scores: is text where numbers belong"),
    "text for ranks": ({"distill_logprobs": ["a"]}, r"distill_logprobs\[0\]: is text where lists of numbers belong"),
    "one array for rows": ({"tokens": np.arange(3)}, "tokens: has 1 dimensions where 2 belong"),
    "floats for tokens": ({"tokens": [[1.5, 2, 3], [4, 5]]}, r"tokens\[0\]: should hold integers .* not float64"),
    "booleans for labels": ({"masks": [[True, True, False], [True, True]]}, r"masks\[0\]: should hold integers"),
    "texts": ({"scores": ["a", "b"]}, "scores: should hold numbers"),
    "beyond 64 bits": ({"tokens": [[2**70, 1, 1], [1, 1]]}, r"tokens\[0\]: should hold integers of 64 bits"),
    "beyond 63 bits": ({"tokens": np.full((2, 2), 2**63, np.uint64)}, "tokens: should hold integers of 64 bits"),
    "an id with a slash": ({"id": "a/b"}, "id: should match"),
    "an empty item": ({"item": ""}, "item: has 1 to 512 characters, not 0"),
    "an item that is a number": ({"item": 17}, "item: should be a string, not int"),
    "an id that is a number": ({"id": 5}, "id: should match .* not 5"),
    "an id that is no string": ({"id": uuid.UUID(int=0)}, r"id: should match .* not UUID\("),
    "a cost that is text": ({"cost": "a"}, "cost: should be a number from 0 to 1e.30, not 'a'"),
    "a negative cost": ({"cost": -1.0}, "cost: should be a number"),
    "a cost that is no number": ({"cost": math.nan}, "cost: should be a number"),
    "a cost that overflows sums": ({"cost": 1e308}, "cost: should be a number"),
    "a negative version": ({"policy_version": -1}, "policy_version: should be an integer from 0 on, not -1"),
    "a version that is no integer": ({"policy_version": 1.0}, "policy_version: should be an integer"),
    "a version that is a truth value": ({"policy_version": True}, "policy_version: should be an integer .* not True"),
    "a version of numpy that is one": ({"policy_version": np.True_}, "policy_version: should be an integer"),
    "a version that is text": ({"policy_version": "7"}, "policy_version: should be an integer .* not '7'"),
    "metadata that is no object": ({"metadata": [1]}, "metadata: should be an object, not list"),
    "metadata that is not JSON": ({"metadata": {"a": math.nan}}, "metadata: is not JSON"),
    "messages that are no conversations": ({"messages": ["hello"]}, r"messages\[0\]: should be an array, not str"),
    "overrides that are no objects": ({"overrides": [1]}, r"overrides\[0\]: should be an object, not int"),
    "scores on a GPU": ({"scores": Unreadable(TypeError)}, "scores: cannot be read as an array: use cpu"),
    "a row on a GPU": ({"tokens": [Unreadable(TypeError), [4]]}, r"tokens\[0\]: cannot be read as an array: use cpu"),
    "advantages on a GPU": ({"advantages": Unreadable(TypeError)}, "advantages: cannot be read as an array: use cpu"),
    "advantages with gradients": (
        {"advantages": [Unreadable(RuntimeError, 0), 1.0]},
        "advantages: cannot be read as an array: use cpu",
    ),
    "a tensor on a GPU": ({"tensors": {"h": Unreadable(TypeError)}}, "tensors.h: cannot be read as an array: use cpu"),
    "a tensor named like a column": ({"tensors": {"masks": np.zeros(1)}}, "tensors.masks: is the name of a column"),
    "lengths of a column": ({"tensors": {"tokens.lengths": np.zeros(1)}}, "is the name of a column"),
    "a compact column": ({"tensors": {"masks.trained": np.zeros(1, np.uint8)}}, "is the name of a column"),
    "a tensor named like the metadata": ({"tensors": {"__metadata__": np.zeros(1)}}, "__metadata__: is .* reserved"),
    "metadata beyond a header": ({"metadata": {"a": "x" * 2**22}}, "metadata: needs a header of 4194[0-9]{3} bytes"),
    "tensors beyond a header": ({"tensors": {"x" * 2**22: np.zeros(1)}}, "tensors: needs a header of 4194[0-9]{3}"),
    "a tensor of text": ({"tensors": {"x": np.array(["a"])}}, "tensors.x: cannot be stored: safetensors has no"),
    "complex numbers": ({"tensors": {"x": np.zeros(1, complex)}}, "tensors.x: cannot be stored: safetensors has no"),
    "a tensor of objects": ({"tensors": {"x": np.array([None])}}, "tensors.x: cannot be stored: safetensors has no"),
    "half a pair in a name": ({"tensors": {"\ud83d": np.zeros(1)}}, r"^tensors: the name '\\ud83d' holds half of a"),
    "half a pair in an item": ({"item": "\ud83d"}, "^item: holds half of a surrogate pair"),
    "half a pair in metadata": ({"metadata": {"a": [1, "\ud83d"]}}, r"^metadata\.a\[1\]: holds half of a"),
    "half a pair in a key": ({"group_overrides": {"a": {"\udc00": 1}}}, r"^group_overrides\.a: holds half of a"),
    "half a pair in a message": (
        {"messages": [[{"role": "user", "content": "?"}], [{"role": "user", "content": "\ud83d"}]]},
        r"^messages\[1\]\[0\]\.content: holds half of a surrogate pair",
    ),
}


@pytest.mark.parametrize(("changed", "message"), WRONG_HERE.values(), ids=list(WRONG_HERE))
def test_what_cannot_be_sent_is_refused_with_its_place(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidField, match=message):
        group(**changed).packed(0)


@pytest.mark.skipif(np.lib.NumpyVersion(np.__version__) < "2.0.0", reason="numpy 1 has no arrays of 33 dimensions")
def test_more_dimensions_than_a_file_may_have_are_refused() -> None:
    with pytest.raises(InvalidField, match=r"tensors\.x: has 33 dimensions; the limit is 32"):
        group(tensors={"x": np.zeros((1,) * 33)}).packed(0)


def test_the_largest_header_has_room_for_any_environment() -> None:
    def packed(characters: int) -> bytes:
        return group(id="a", metadata={"a": "x" * characters}).packed(None)

    characters = 2**22 - 64 - int.from_bytes(packed(0)[:8], "little")
    payload = packed(characters)
    assert read_header(Parcel("a", payload).addressed(MAX_INTEGER)).metadata["metadata"]
    with pytest.raises(InvalidField, match="metadata: needs a header of"):
        packed(characters + 8)
