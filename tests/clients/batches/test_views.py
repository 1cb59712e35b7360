"""Batches as numpy columns, held against plain lists."""

import contextlib
import sys
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lachesis import Group
from lachesis._transport.protocol import NothingYet, Reply, read_reply
from lachesis.errors import InvalidField, ServiceError
from lachesis.groups.packed import cumulated
from lachesis.wire import blob
from lachesis.wire.columns import NATIVE_COLUMNS
from tests.clients.batches.replies import TAKE, body_of, columns_of
from tests.properties import examples

Rows = list[list[int]]

one_group = st.lists(st.lists(st.integers(-(2**40), 2**40), min_size=1, max_size=5), min_size=1, max_size=4)


def packed(rows: Rows, **more: Any) -> bytes:
    return Group(rows, rows, [float(len(row)) for row in rows], **more).packed(0)


def raw(**tensors: np.ndarray[Any, Any]) -> bytes:
    """A group with one sequence of two tokens, and other tensors."""
    usual = {"tokens": np.int32([1, 2]), "masks": np.int32([1, 2]), "scores": np.float32([1])}
    return blob.write({**usual, "tokens.lengths": np.int32([2]), **tensors})


def bf16(bits: list[int]) -> bytes:
    """A group with a bf16 column, which numpy cannot write."""
    data = np.array(bits, "<u2").tobytes()
    return (
        blob.header_of(
            [
                ("scores", "F32", (1,), 4),
                ("tokens", "I32", (2,), 8),
                ("tokens.lengths", "I32", (1,), 4),
                ("masks", "I32", (2,), 8),
                ("values", "BF16", (len(bits),), len(data)),
            ]
        )
        + np.float32([1]).tobytes()
        + np.int32([1, 2, 2, 1, 2]).tobytes()
        + data
    )


@given(st.lists(one_group, min_size=1, max_size=4), st.integers(-3, 3))
@examples(300)
def test_packed_and_padded_columns_hold_the_sequences_in_order(groups: list[Rows], pad_id: int) -> None:
    columns = columns_of([packed(rows) for rows in groups])
    rows = [row for group in groups for row in group]
    longest = max(map(len, rows))
    assert columns.tokens.tolist() == [token for row in rows for token in row]
    assert columns.masks.tolist() == columns.tokens.tolist()
    assert columns.scores.tolist() == [len(row) for row in rows]
    assert columns.lengths.tolist() == [len(row) for row in rows]
    assert columns.group_lengths.tolist() == [len(group) for group in groups]
    assert columns.tokens_padded(pad_id).tolist() == [row + [pad_id] * (longest - len(row)) for row in rows]
    bounds = columns.cu_seqlens
    assert bounds.dtype == np.int32
    assert [columns.tokens[first:last].tolist() for first, last in pairwise(bounds)] == rows


def test_columns_of_a_group_are_views_of_the_reply() -> None:
    """Nothing of a batch is copied, as long as its groups hold the same columns in the same dtypes; labels are bits."""
    body = body_of([packed([[1, 2, 3]]), packed([[4]])])
    columns = columns_of([], body)
    reply = np.frombuffer(body, np.uint8)
    for group in columns.groups:
        assert np.shares_memory(group.masks, columns.masks)
        for name in group.names:
            assert name == "masks" or np.shares_memory(group.column(name), reply), name
            assert not group.column(name).flags.writeable
    assert columns.tokens is columns.tokens
    assert columns.tokens.flags.writeable
    assert np.shares_memory(columns.tokens, reply)


def test_a_group_says_what_it_was_given() -> None:
    made = Group(
        [[1]],
        [[1]],
        [1.0],
        policy_version=7,
        item="gsm8k/12",
        cost=2.5,
        metadata={"worker": 3},
        messages=[[{"role": "user", "content": "?"}]],
    )
    (group,) = columns_of([made.packed(0)]).groups
    assert (group.id, group.environment, group.staleness) == (made.id, 0, 2)
    assert (group.item, group.cost, group.metadata) == ("gsm8k/12", 2.5, {"worker": 3})
    assert group.details == {"messages": [[{"role": "user", "content": "?"}]]}
    assert "details" not in group
    assert sorted(group.names) == ["masks", "scores", "tokens"]


def test_a_group_that_says_nothing_of_itself_is_read_all_the_same() -> None:
    """As those of the Atropos surface, whose details name every field."""
    (group,) = columns_of([raw(details=np.frombuffer(b'{"messages":null,"env_id":3}', np.uint8))]).groups
    assert (group.item, group.cost, group.metadata) == (None, None, {})
    assert group.details == {"env_id": 3}
    assert columns_of([raw()]).groups[0].details == {}


def test_groups_with_wide_and_narrow_values_are_joined_in_the_wider() -> None:
    columns = columns_of([packed([[1]]), packed([[2**40]])])
    assert columns.tokens.dtype == np.int64
    assert columns.tokens.tolist() == [1, 2**40]


@pytest.mark.parametrize("integer", [2**53, -(2**53), 2**53 + 1, -(2**53) - 1])
@pytest.mark.parametrize("other", [np.float32([0.5]), np.float64([0.5]), np.uint64([1])])
def test_integers_that_floats_cannot_hold_are_not_joined_with_them(integer: int, other: np.ndarray[Any, Any]) -> None:
    columns = columns_of([packed([[1]], tensors={"own": own}) for own in (np.int64([integer]), other)])
    if abs(integer) <= 2**53:
        assert columns.column("own").tolist() == [integer, *other]
    else:
        with pytest.raises(ValueError, match=r"own: \w+ and \w+ cannot be joined: integers beyond 2\*\*53 would"):
            columns.column("own")
    assert columns.groups[0].column("own").tolist() == [integer]


def test_a_column_that_a_group_lacks_is_missed_by_name() -> None:
    columns = columns_of([packed([[1]], advantages=[[0.5]]), packed([[2]], id="second")])
    assert columns.names == ["masks", "scores", "tokens"]
    there = "it has masks, scores, tokens"
    with pytest.raises(KeyError, match=f"group second has no column 'advantages'; {there}"):
        columns.column("advantages")
    with pytest.raises(KeyError, match=r"group .* has no column 'mask'; it has advantages, masks, scores, tokens"):
        columns.padded("mask", -100)
    for ask in (columns.groups[1].column, columns.groups[1].dtype):
        with pytest.raises(KeyError, match=f"group second has no column 'mask'; {there}"):
            ask("mask")


def test_lengths_that_are_stored_once_are_those_of_every_column_they_hold_for() -> None:
    """A column whose lengths are the tokens', or another's, is stored without any."""
    ids, logprobs = [[[1, 2], [3]]], [[[0.5, 1.5], [2.5]]]
    same = packed([[1, 2]], distill_token_ids=ids, distill_logprobs=logprobs)
    other = packed([[1, 2]], distill_token_ids=ids, distill_logprobs=[[[0.5], [1.5, 2.5]]])
    columns = columns_of([same, other])
    group = columns.groups[0]
    for name, expected in (
        ("masks.lengths", [2]),
        ("distill_logprobs.lengths", [2]),
        ("distill_logprobs.inner_lengths", [2, 1]),
    ):
        assert name in group
        assert group.column(name).tolist() == expected
        assert group.dtype(name) == "I32"
    assert columns.column("distill_logprobs.inner_lengths").tolist() == [2, 1, 1, 2]
    for name in ("scores.lengths", "masks.inner_lengths", "advantages.lengths", "tokens.widths"):
        assert name not in group
        with pytest.raises(KeyError, match=name):
            group.column(name)


DISTILLED: dict[str, Any] = {
    "distill_token_ids": [[[1, 2], [3]]],
    "distill_logprobs": [[[0.5, 1.5], [2.5]]],
    "tensors": {"own": np.arange(3), "own.inner_lengths": np.int32([2, 1])},
}


def test_names_of_columns_have_no_lengths() -> None:
    columns = columns_of([packed([[1, 2]], **DISTILLED)] * 2)
    of_sequences = ["distill_logprobs", "distill_token_ids", "masks", "scores", "tokens"]
    assert sorted(columns.names) == sorted(columns.groups[0].names) == sorted([*of_sequences, "own"])
    assert sorted(columns.sequences()[0].names) == of_sequences


def test_tensors_of_columns_with_several_values_per_token_have_inner_lengths() -> None:
    pytest.importorskip("torch")
    ranks = {"distill_token_ids": [[[1]]], "distill_logprobs": [[[0.5, 1.5]]]}
    tensors = columns_of([packed([[1, 2]], **DISTILLED), packed([[3]], **{**DISTILLED, **ranks})]).to_torch()
    assert tensors["distill_token_ids.inner_lengths"].tolist() == [2, 1, 1]
    assert tensors["distill_logprobs.inner_lengths"].tolist() == [2, 1, 2]
    assert tensors["own.inner_lengths"].tolist() == [2, 1, 2, 1]
    assert "masks.inner_lengths" not in tensors


def test_columns_with_lengths_of_their_own_are_cut_by_those() -> None:
    columns = columns_of(
        [packed([[1, 2], [3]], advantages=[[0.5], [1.5]]), packed([[4, 5]], advantages=[[2.5, 3.5]])],
    )
    assert columns.lengths_of("advantages").tolist() == [1, 1, 2]
    assert columns.padded("advantages", -1.0).tolist() == [[0.5, -1], [1.5, -1], [2.5, 3.5]]


def test_what_is_not_rows_of_the_sequences_cannot_be_padded() -> None:
    columns = columns_of([raw(image=np.zeros((2, 3), np.float32))])
    assert columns.column("image").shape == (2, 3)
    for name in ("image", "scores"):
        with pytest.raises(ValueError, match=f"{name}: its values, of shape"):
            columns.padded(name, 0)


def test_bf16_comes_as_its_bits_and_mixes_with_nothing_else() -> None:
    columns = columns_of([bf16([0x3F80, 0x4000]), bf16([0xC000])])
    assert columns.column("values").tolist() == [0x3F80, 0x4000, 0xC000]
    assert columns.groups[0].dtype("values") == "BF16"
    mixed = columns_of([bf16([0x3F80]), raw(values=np.float32([1]))])
    with pytest.raises(ValueError, match="values: BF16 and F32 cannot be joined"):
        mixed.column("values")


def test_more_tokens_than_an_int32_counts_are_refused() -> None:
    assert cumulated(np.array([2**30, 2**30 - 1])).tolist() == [0, 2**30, 2**31 - 1]
    with pytest.raises(OverflowError, match=str(2**31)):
        cumulated(np.array([2**30, 2**30]))


def test_tensors_share_the_memory_of_the_columns() -> None:
    torch = pytest.importorskip("torch")
    columns = columns_of([bf16([0x3F80, 0x4000]), bf16([0xC000])])
    tensors = columns.to_torch()
    assert tensors["values"].dtype == torch.bfloat16
    assert tensors["values"].tolist() == [1, 2, -2]
    assert tensors["cu_seqlens"].tolist() == [0, 2, 4]
    columns.tokens[0] = 77
    assert tensors["tokens"][0] == 77
    assert sorted(tensors) == ["cu_seqlens", "group_lengths", "lengths", "masks", "scores", "tokens", "values"]


def test_a_column_with_wrong_lengths_of_its_own_belongs_to_the_group_as_a_whole() -> None:
    wrong = {"x": np.arange(3), "x.lengths": np.array([2**64 - 1, 4], np.uint64)}
    (group,) = columns_of([packed([[1], [2]], tensors=wrong)]).groups
    assert group.bounds_of("x") is None
    assert "x" not in group.sequences()[0].names


UNJOINED: dict[str, tuple[Any, Any]] = {
    "single numbers": (np.array(0.5), np.array(0.7)),
    "inner shapes": (np.zeros((2, 3)), np.zeros((2, 4))),
    "dimensions": (np.zeros((2, 3)), np.zeros(2)),
    "large integers and floats": (np.array([2**53 + 1, 0]), np.zeros(2)),
    "bits and numbers": (np.zeros(2, [("BF16", "<u2")]), np.zeros(2)),
}


@pytest.mark.parametrize("values", UNJOINED.values(), ids=list(UNJOINED))
def test_tensors_of_the_sender_that_cannot_be_joined_are_left_out(
    values: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(from_numpy=np.asarray))  # it need not be installed
    columns = columns_of([packed([[1, 2]], tensors={"own": value, "more": np.arange(2)}) for value in values])
    tensors = columns.to_torch()
    assert sorted(tensors) == ["cu_seqlens", "group_lengths", "lengths", "masks", "more", "scores", "tokens"]
    assert tensors["more"].tolist() == [0, 1, 0, 1]
    assert [group.column("own").shape for group in columns.groups] == [value.shape for value in values]


def test_a_reply_without_a_batch_says_why() -> None:
    taken = read_reply(TAKE, Reply(204, {"lachesis-waiting": "too_few_sequences: 3 of 8"}, b""))
    assert taken == NothingYet("too_few_sequences: 3 of 8")


@given(st.data())
@examples(300)
def test_a_damaged_reply_is_an_error_of_the_sdk_and_no_other(data: st.DataObject) -> None:
    body = body_of([packed([[1, 2, 3]]), packed([[4]])])
    position = data.draw(st.integers(0, len(body) - 1))
    body[position] ^= data.draw(st.integers(1, 255))
    if data.draw(st.booleans()):
        del body[position:]
    with contextlib.suppress(ServiceError):
        columns_of([], body)


ROWS = [[5, 6, 7], [8], [9, 9]]


def grpo(**more: Any) -> bytes:
    return Group(ROWS, ROWS, [1.0, 0.5, 0.0], **more).packed(0)


def test_a_group_has_the_columns_of_a_batch() -> None:
    columns = columns_of([grpo(), packed([[1, 2]])])
    first, second = columns.groups
    for name in ("tokens", "masks", "scores", "lengths"):
        assert np.concatenate([getattr(first, name), getattr(second, name)]).tolist() == getattr(columns, name).tolist()
    assert first.cu_seqlens.tolist() == [0, 3, 4, 6]
    assert first.tokens_padded(0).tolist() == [[5, 6, 7], [8, 0, 0], [9, 9, 0]]
    assert first.padded("masks", -100)[1].tolist() == [8, -100, -100]
    assert first.lengths_of("tokens").tolist() == first.lengths.tolist() == [3, 1, 2]


def test_sequences_of_a_group_are_views_of_its_columns() -> None:
    messages = [[{"role": "user", "content": str(row)}] for row in range(3)]
    more = {
        "messages": messages,
        "overrides": [{"n": row} for row in range(3)],
        "inference_logprobs": [[-0.5, -1.0, -2.0], [-3.0], [-4.0, -5.0]],
        "policy_versions": [[1, 2, 2], [1], [2, 2]],
        "distill_token_ids": [[[1, 2], [3], []], [[4]], [[5], [6, 7]]],
        "distill_logprobs": [[[-1, -2], [-3], []], [[-4]], [[-5], [-6, -7]]],
        "tensors": {
            "values": np.arange(6.0),
            "hints": np.arange(6).reshape(3, 2),
            "own": np.arange(4),
            "own.lengths": np.int32([0, 3, 1]),
            "whole": np.arange(7),
            "number": np.float32(1),
        },
    }
    columns = columns_of([packed([[1, 2]]), grpo(**more)])
    group = columns.groups[1]
    sequences = group.sequences()
    assert [(one.group is group, one.index, len(one), one.score) for one in sequences] == [
        (True, 0, 3, 1.0),
        (True, 1, 1, 0.5),
        (True, 2, 2, 0.0),
    ]
    assert [one.tokens.tolist() for one in sequences] == [one.masks.tolist() for one in sequences] == ROWS
    assert [one.messages for one in sequences] == messages
    assert [one.overrides for one in sequences] == [{"n": 0}, {"n": 1}, {"n": 2}]
    assert [one.images for one in sequences] == [None] * 3
    logprobs = [one.inference_logprobs.tolist() for one in sequences]  # type: ignore[union-attr]
    assert logprobs == more["inference_logprobs"]
    assert [one.policy_versions.tolist() for one in sequences] == more["policy_versions"]  # type: ignore[union-attr]
    assert [[list(token) for token in one.column("distill_token_ids")] for one in sequences] == more[
        "distill_token_ids"
    ]
    assert [[list(token) for token in one.column("distill_logprobs")] for one in sequences] == more["distill_logprobs"]
    assert [one.column("values").tolist() for one in sequences] == [[0, 1, 2], [3], [4, 5]]
    assert [one.column("hints").tolist() for one in sequences] == [[[0, 1]], [[2, 3]], [[4, 5]]]
    assert [one.column("own").tolist() for one in sequences] == [[], [0, 1, 2], [3]]
    assert (sequences[0].advantages, sequences[0].ref_logprobs) == (None, None)
    assert {"tokens", "scores", "hints", "own"} <= set(sequences[0].names)
    assert not {"whole", "number", "own.lengths"} & set(sequences[0].names)
    for name in ("whole", "number"):
        with pytest.raises(ValueError, match=f"^{name}: belongs to group .* as a whole"):
            sequences[0].column(name)
    with pytest.raises(KeyError, match="has no column 'absent'"):
        sequences[0].column("absent")
    assert np.shares_memory(sequences[0].tokens, columns.tokens), "nothing is copied"
    assert not sequences[0].tokens.flags.writeable
    assert [one.tokens.tolist() for one in columns.sequences()] == [[1, 2], *ROWS]


def test_advantages_per_sequence_are_read_as_sent_or_per_token() -> None:
    """The GRPO form: a number for each sequence."""
    for advantages in ([0.1, -0.5, 2.0], np.array([0.1, -0.5, 2.0]), (0.1, -0.5, 2), [np.float64(0.1), -0.5, 2.0]):
        columns = columns_of([grpo(advantages=advantages)])
        assert (
            columns.column("advantages").tolist() == columns.groups[0].column("advantages").tolist() == [0.1, -0.5, 2.0]
        )
        shown = [one.advantages.tolist() for one in columns.sequences()]  # type: ignore[union-attr]
        assert shown == [[0.1], [-0.5], [2.0]]
        assert columns.per_token("advantages").tolist() == [0.1, 0.1, 0.1, -0.5, 2.0, 2.0]
    per_token = [[0.5, 1.5, 2.5], [3.5], [4.5, 5.5]]
    both = columns_of([grpo(advantages=per_token), grpo(advantages=[1, 2, 3])])
    assert both.per_token("advantages").tolist() == [0.5, 1.5, 2.5, 3.5, 4.5, 5.5, 1, 1, 1, 2, 3, 3]
    assert both.per_token("tokens") is both.tokens
    assert both.groups[1].per_token("scores").tolist() == [1, 1, 1, 0.5, 0, 0]
    with pytest.raises(ValueError, match="advantages: has neither one value per token nor one per sequence"):
        columns_of([grpo(advantages=[[1, 2], [3], [4, 5]])]).per_token("advantages")


@pytest.mark.parametrize(
    ("advantages", "said"),
    [
        ([1.0, 2.0], "advantages: has 2 values for 3 sequences"),
        (np.zeros(4), "advantages: has 4 values for 3 sequences"),
        ([1.0, [2.0], 3.0], r"advantages\[0\]: has 0 dimensions where 1 belong"),
        ([1.0, float("nan"), 3.0], r"advantages\[1\]: not a finite number"),
        (["1", "2", "3"], r"advantages\[0\]: is text where numbers belong"),
    ],
)
def test_advantages_that_do_not_fit_are_refused_with_their_place(advantages: Any, said: str) -> None:
    with pytest.raises(InvalidField, match=f"^{said}$"):
        grpo(advantages=advantages)


def test_a_shard_without_groups_has_every_native_column_without_values() -> None:
    columns = columns_of([])
    assert columns.names == [column.name for column in NATIVE_COLUMNS]
    for column in NATIVE_COLUMNS:
        values = columns.column(column.name)
        assert (values.shape, values.dtype) == ((0,), np.int32 if column.kind == "int" else np.float32), column.name
    assert columns.tokens_padded(0).shape == columns.padded("masks", -100).shape == (0, 0)
    assert columns.per_token("advantages").shape == (0,)
    assert columns.column("distill_logprobs.inner_lengths").dtype == np.int32
    assert (columns.cu_seqlens.tolist(), columns.sequences()) == ([0], [])
    with pytest.raises(KeyError, match="a shard without groups has no column 'own'; it has tokens, masks, scores"):
        columns.column("own")


def test_tensors_of_a_shard_without_groups_are_those_of_the_other_shards() -> None:
    torch = pytest.importorskip("torch")
    full = packed([[1, 2]], advantages=[0.5], policy_versions=[[1, 2]], **(DISTILLED | {"tensors": {}}))
    others, tensors = columns_of([full]).to_torch(), columns_of([]).to_torch()
    assert others.keys() <= tensors.keys()
    for name, tensor in others.items():
        assert tensors[name].dtype == tensor.dtype, name
        assert tensors[name].shape == ((1,) if name == "cu_seqlens" else (0,))
    assert tensors["ref_logprobs"].dtype == torch.float32
