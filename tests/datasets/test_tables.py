"""JSON lines and Parquet: read back as they were written, and refused by the line or row."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.datasets.episodes import Episodes, WantedColumns
from app.datasets.reading import read_dataset
from lachesis.wire.errors import InvalidDataset
from lachesis.wire.shards import MAX_LENGTH
from tests.datasets.writers import not_text, write_lines, write_table
from tests.properties import examples

LENGTHS = st.lists(st.integers(0, MAX_LENGTH), min_size=1, max_size=50)
COSTS = st.floats(0, allow_infinity=False, allow_nan=False)


def read(path: Path, **wanted: Any) -> Episodes:
    return read_dataset(path, WantedColumns(**wanted))


@given(lengths=LENGTHS, texts=st.booleans(), data=st.data())
@examples(60)
def test_what_was_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[int], texts: bool, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("tables")
    costs = data.draw(st.lists(COSTS, min_size=len(lengths), max_size=len(lengths)))
    kind = st.text(st.characters(exclude_categories=["Cs"])) if texts else st.integers(-(2**63), 2**63 - 1)
    ids = data.draw(st.lists(kind, min_size=len(lengths), max_size=len(lengths), unique=True))
    rows = [{"id": i, "length": n, "price": c} for i, n, c in zip(ids, lengths, costs, strict=True)]
    for path in (
        write_lines(folder / "a.jsonl", rows),
        write_table(folder / "a.parquet", id=ids, length=lengths, price=costs),
    ):
        found = read(path, cost="price")
        assert found.costs is not None
        assert (np.asarray(found.ids, object).tolist(), found.lengths.tolist()) == (ids, lengths)
        assert found.costs.tolist() == costs


def test_lengths_alone_are_numbered(tmp_path: Path) -> None:
    found = read(write_lines(tmp_path / "lengths.ndjson", [5, 0, 7]))
    assert (found.lengths.tolist(), np.asarray(found.ids).tolist()) == ([5, 0, 7], [0, 1, 2])
    assert (found.facts.layout, found.facts.unit) == ("JSON lines", "steps")


def test_a_last_line_need_not_end(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"length": 3}\r\n{"length": 4}')
    assert read(tmp_path / "a.jsonl").lengths.tolist() == [3, 4]


def test_files_larger_than_what_is_read_at_a_time_are_read_whole(tmp_path: Path) -> None:
    pad = "x" * 1000
    write_lines(tmp_path / "a.jsonl", ({"length": n, "note": pad} for n in range(10_000)))
    assert read(tmp_path / "a.jsonl").lengths.tolist() == list(range(10_000))


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_a_folder_of_tables_is_one_dataset(tmp_path: Path, kind: str) -> None:
    write = write_lines if kind == "jsonl" else lambda path, rows: write_table(path, length=[r["length"] for r in rows])
    for n in range(3):
        write(tmp_path / "sub" / f"part-{n}.{kind}", [{"length": 10 * n}, {"length": 10 * n + 1}])
    found = read(tmp_path)
    assert found.lengths.tolist() == [0, 1, 10, 11, 20, 21]
    assert found.facts.files == 3


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_lengths_may_be_in_a_column_of_another_name(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"a.{kind}"
    write_lines(path, [{"n_tokens": 5}]) if kind == "jsonl" else write_table(path, n_tokens=[5])
    assert read(path, length="n_tokens").lengths.tolist() == [5]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"", "not JSON: the line is empty"),
        (b"{", "not JSON"),
        (b'{"length": 5', "not JSON"),
        (b'{"length": NaN}', "not JSON"),
        (b"\xff", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b'{"length":' + b"[" * 900 + b"]" * 900 + b"}", "length is"),
        (b'"5"', "not an object but '5'"),
        (b"[5]", r"not an object but \[5\]"),
        (b"7", "not an object but 7"),
        (b'{"size": 5}', r"no column 'length'; there are \['size'\]"),
        (b'{"length": null}', "length is None, not a whole number from 0 to 68719476736"),
        (b'{"length": true}', "length is True"),
        (b'{"length": "5"}', "length is '5'"),
        (b'{"length": 5.0}', "length is 5.0"),
        (b'{"length": -1}', "length is -1"),
        (b'{"length": 68719476737}', "length is 68719476737"),
        (b'{"length": 99999999999999999999999}', "length is 1e"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, line: bytes, message: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"length": 1}\n{"length": 2}\n' + line + b'\n{"length": 4}\n')
    with pytest.raises(InvalidDataset, match=rf"a\.jsonl, line 3: {message}"):
        read(path)


def test_a_wrong_line_far_into_a_file_is_named_as_an_editor_numbers_it(tmp_path: Path) -> None:
    rows: list[Any] = [{"length": n, "note": "x" * 1000} for n in range(9_000)]
    rows[8_499]["length"] = -1
    with pytest.raises(InvalidDataset, match=r"line 8500: length is -1"):
        read(write_lines(tmp_path / "a.jsonl", rows))


def test_a_line_without_an_end_is_not_read_into_memory(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b'{"length": 1}\n' + b" " * (9 * 1024 * 1024))
    with pytest.raises(InvalidDataset, match=r"line 2: longer than 4194304 bytes"):
        read(tmp_path / "a.jsonl")


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            [{"length": 1, "id": name} for name in "aba"],
            r"line 3: episode 'a' is .* 1$",
        ),
        ([{"length": 1, "id": 2}, {"length": 1, "id": 2}], r"line 2: episode 2 is also in .*, line 1$"),
        ([{"length": 1, "id": 2}, {"length": 1}], r"line 2: no column 'id'"),
        ([{"length": 1, "id": 2}, {"length": 1, "id": "b"}], r"line 2: id is 'b'; ids must be all"),
        ([{"length": 1, "id": 2}, {"length": 1, "id": 2**63}], r"line 2: id is 9223372036854775808"),
        ([{"length": 1, "id": True}], r"line 1: id is True"),
    ],
)
def test_ids_are_of_one_kind_and_each_comes_once(tmp_path: Path, rows: list[Any], message: str) -> None:
    with pytest.raises(InvalidDataset, match=message):
        read(write_lines(tmp_path / "a.jsonl", rows))


@pytest.mark.parametrize(
    ("cost", "message"), [("5", "price is '5', not a number"), (-1, "price is -1.0, not a finite"), (True, "True")]
)
def test_costs_are_numbers_from_0_on(tmp_path: Path, cost: Any, message: str) -> None:
    rows = [{"length": 1, "price": 1}, {"length": 1, "price": cost}]
    with pytest.raises(InvalidDataset, match=f"line 2: .*{message}"):
        read(write_lines(tmp_path / "a.jsonl", rows), cost="price")
    with pytest.raises(InvalidDataset, match="no column 'other'"):
        read(tmp_path / "a.jsonl", cost="other")


def test_files_of_one_dataset_must_agree_on_ids(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.jsonl", [{"length": 1, "id": 1}])
    write_lines(tmp_path / "b.jsonl", [{"length": 1, "id": "b"}])
    with pytest.raises(
        InvalidDataset, match=r"b\.jsonl, line 1: its id is of another kind than that of .*a\.jsonl, line 1"
    ):
        read(tmp_path)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"length": [1, None, 3]}, "row 1: no length"),
        ({"length": [1, -2]}, "row 1: length is -2, not a whole number"),
        ({"length": pa.array([1, 2**64 - 1], pa.uint64())}, "row 1: length is -1"),
        ({"length": ["1"]}, "column 'length' holds string, not whole numbers"),
        ({"length": [True]}, "column 'length' holds bool"),
        ({"size": [1]}, r"no column 'length'; there are \['size'\]"),
        ({"length": [1, 2], "id": ["a", None]}, "row 1: no id"),
        ({"length": [1, 2], "id": ["a", "a"]}, "row 1: episode 'a' is also in .*, row 0$"),
        ({"length": [1, 2], "id": not_text()}, "row 1: id is not UTF-8$"),
        ({"length": [1, 2], "id": pa.array([1, 2**63], pa.uint64())}, "row 1: id is 9223372036854775808; ids must be"),
        ({"length": pa.array([], pa.int64())}, "holds no episode"),
    ],
)
def test_a_wrong_row_or_column_is_named(tmp_path: Path, columns: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidDataset, match=message):
        read(write_table(tmp_path / "a.parquet", **columns))


@pytest.mark.parametrize(("cost", "message"), [(float("nan"), "row 1: price is nan"), (-0.5, "row 1: price is -0.5")])
def test_costs_in_parquet_are_checked_too(tmp_path: Path, cost: float, message: str) -> None:
    with pytest.raises(InvalidDataset, match=message):
        read(write_table(tmp_path / "a.parquet", length=[1, 1], price=[1.0, cost]), cost="price")
    with pytest.raises(InvalidDataset, match="column 'name' holds string, not numbers"):
        read(write_table(tmp_path / "b.parquet", length=[1], name=["x"]), cost="name")


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table([[1], [2]], names=["length", "length"]), tmp_path / "a.parquet")
    with pytest.raises(InvalidDataset, match="2 columns have the name 'length'"):
        read(tmp_path / "a.parquet")


@given(data=st.data())
@examples(100)
def test_damage_to_a_parquet_file_is_refused_or_harmless(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = write_table(tmp_path_factory.mktemp("damaged") / "a.parquet", length=list(range(20)))
    whole = path.read_bytes()
    cut = data.draw(st.integers(0, len(whole)))
    at = data.draw(st.integers(0, len(whole) - 1))
    path.write_bytes(whole[:at] + data.draw(st.binary(min_size=1, max_size=4)) + whole[at + 1 : cut])
    try:
        found = read(path)
    except InvalidDataset:
        pass
    else:
        assert found.lengths.min() >= 0


@given(st.lists(st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.lists(st.integers()))))
@examples(100)
def test_any_values_for_lengths_are_read_exactly_or_refused(
    tmp_path_factory: pytest.TempPathFactory, values: list[Any]
) -> None:
    path = tmp_path_factory.mktemp("any") / "a.jsonl"
    path.write_text("".join(f"{json.dumps({'length': value})}\n" for value in values))
    good = bool(values) and all(type(value) is int and 0 <= value <= MAX_LENGTH for value in values)
    try:
        assert read(path).lengths.tolist() == values
    except InvalidDataset:
        assert not good
    else:
        assert good
