"""Folders of safetensors: lengths from the headers, whatever the headers claim."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file

from app.datasets.episodes import Episodes, WantedColumns
from app.datasets.reading import read_dataset
from lachesis.wire.blob import MAX_HEADER_BYTES
from lachesis.wire.errors import InvalidDataset
from tests.properties import examples


def save(path: Path, length: int, metadata: dict[str, str] | None = None, **others: Any) -> None:
    """Write an episode with the reference library."""
    path.parent.mkdir(parents=True, exist_ok=True)
    tensors = {"action": np.zeros((length, 7), np.float32), "done": np.zeros(length, np.uint8)}
    save_file(tensors | others, path, metadata)


def write_raw(path: Path, header: Any, data_bytes: int = 0, announced: int | None = None) -> None:
    """Write a file with any header."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes((len(text) if announced is None else announced).to_bytes(8, "little") + text + b"\0" * data_bytes)


def read(path: Path, **wanted: Any) -> Episodes:
    return read_dataset(path, WantedColumns(**wanted))


def test_files_are_episodes_and_their_paths_the_ids(tmp_path: Path) -> None:
    for name, length in (("a/2", 7), ("b", 0), ("a/1", 5)):
        save(tmp_path / f"{name}.safetensors", length)
    found = read(tmp_path)
    assert found.ids == ["a/1.safetensors", "a/2.safetensors", "b.safetensors"]
    assert found.lengths.tolist() == [5, 7, 0]
    assert (found.facts.layout, found.facts.files) == ("safetensors", 3)


def test_no_tensor_is_read(tmp_path: Path) -> None:
    """A file of a terabyte, all of it a hole: reading it would be felt."""
    rows = 2**40
    with (tmp_path / "large.safetensors").open("wb") as file:
        text = json.dumps({"x": {"dtype": "U8", "shape": [4, rows // 4], "data_offsets": [0, rows]}}).encode()
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + rows)
    assert read(tmp_path).lengths.tolist() == [4]


def test_headers_longer_than_a_first_look_are_read_whole(tmp_path: Path) -> None:
    save(tmp_path / "a.safetensors", 3, {"note": "x" * 100_000})
    assert read(tmp_path).lengths.tolist() == [3]


def test_where_tensors_disagree_one_must_be_named(tmp_path: Path) -> None:
    save(tmp_path / "a.safetensors", 5, states=np.zeros((6, 2)))
    with pytest.raises(InvalidDataset, match=r"a\.safetensors: its tensors have different first dimensions"):
        read(tmp_path)
    assert read(tmp_path, length="action").lengths.tolist() == [5]
    with pytest.raises(InvalidDataset, match="no tensor 'rewards'; there are"):
        read(tmp_path, length="rewards")


def test_a_single_number_has_no_length(tmp_path: Path) -> None:
    save(tmp_path / "a.safetensors", 5, total=np.array(3.0))
    with pytest.raises(InvalidDataset, match="different first dimensions"):
        read(tmp_path)
    with pytest.raises(InvalidDataset, match="'total' is a single number, without a length"):
        read(tmp_path, length="total")


def test_costs_are_in_the_metadata(tmp_path: Path) -> None:
    save(tmp_path / "a.safetensors", 5, {"cost": "12.5"})
    save(tmp_path / "b.safetensors", 5, {"cost": "3"})
    costs = read(tmp_path, cost="cost").costs
    assert costs is not None
    assert costs.tolist() == [12.5, 3]


@pytest.mark.parametrize(
    ("metadata", "message"),
    [(None, "no 'cost' in its metadata"), ({"cost": "much"}, "cost is 'much'"), ({"cost": "nan"}, "cost is nan")],
)
def test_a_cost_that_is_none_is_named(tmp_path: Path, metadata: dict[str, str] | None, message: str) -> None:
    save(tmp_path / "a.safetensors", 5, metadata)
    with pytest.raises(InvalidDataset, match=rf"a\.safetensors.*: {message}"):
        read(tmp_path, cost="cost")


@pytest.mark.parametrize(
    ("header", "data_bytes", "announced", "message"),
    [
        (b"", 0, 2**63, "a header of 9223372036854775808 bytes is announced"),
        (b"{}", 0, 3, "a header of 3 bytes is announced, in a file of 10"),
        (b" " * (MAX_HEADER_BYTES + 1), 0, None, f"a header of {MAX_HEADER_BYTES + 1} bytes is announced"),
        (b"{", 0, None, "the header is not JSON"),
        (b"[" * 100_000, 0, None, "the header is not JSON"),
        (b'{"a":' * 5_000 + b"1" + b"}" * 5_000, 0, None, "the header is not JSON|'a' is not described"),
        ({}, 0, None, "have different first dimensions"),
        ({"x": {"dtype": "U8", "shape": [5], "data_offsets": [0, 5]}}, 4, None, "the tensors end at byte"),
        ({"x": {"dtype": "U8", "shape": [-5], "data_offsets": [0, 5]}}, 5, None, "not one of whole numbers"),
        ({"x": {"dtype": "U8", "shape": [0, 2**40], "data_offsets": [0, 0]}}, 0, None, None),
        ({"x": {"dtype": "U8", "shape": [2**40, 0], "data_offsets": [0, 0]}}, 0, None, "is 1099511627776, not a whole"),
    ],
)
def test_a_header_that_lies_is_refused(
    tmp_path: Path, header: Any, data_bytes: int, announced: int | None, message: str | None
) -> None:
    save(tmp_path / "a.safetensors", 5)
    write_raw(tmp_path / "b.safetensors", header, data_bytes, announced)
    if message is None:
        assert read(tmp_path).lengths.tolist() == [5, 0]
        return
    with pytest.raises(InvalidDataset, match=rf"b\.safetensors.*({message})"):
        read(tmp_path)


def test_a_name_that_is_not_text_cannot_be_an_id(tmp_path: Path) -> None:
    save(tmp_path / "a.safetensors", 5)
    (tmp_path / "a.safetensors").rename(tmp_path / "b\udcff.safetensors")
    with pytest.raises(InvalidDataset, match="its name is not UTF-8"):
        read(tmp_path)


def test_a_file_too_short_for_a_header_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.safetensors").write_bytes(b"1234")
    with pytest.raises(InvalidDataset, match="in a file of 4"):
        read(tmp_path)


@given(st.binary(max_size=64), st.booleans())
@examples(100)
def test_any_bytes_for_a_file_are_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, noise: bytes, with_length: bool
) -> None:
    path = tmp_path_factory.mktemp("noise") / "a.safetensors"
    path.write_bytes(len(noise).to_bytes(8, "little") + noise if with_length else noise)
    with pytest.raises(InvalidDataset, match=r"a\.safetensors"):
        read(path.parent)


@pytest.mark.slow
def test_many_files_are_read_in_processes_in_order(tmp_path: Path) -> None:
    total = 33_000
    for n in range(total):
        shape = [n % 50, 1]
        write_raw(
            tmp_path / f"{n:05d}.safetensors",
            {"x": {"dtype": "U8", "shape": shape, "data_offsets": [0, n % 50]}},
            n % 50,
        )
    told: list[tuple[int, int]] = []
    found = read_dataset(tmp_path, WantedColumns(), progress=lambda done, of: told.append((done, of)))
    assert found.lengths.tolist() == [n % 50 for n in range(total)]
    assert told[-1] == (total, total)
    assert told == sorted(told)
    (tmp_path / "04000.safetensors").write_bytes(b"")
    with pytest.raises(InvalidDataset, match=r"04000\.safetensors: a header"):
        read(tmp_path)
