"""Which files are read: by what is there, inside of the folder that was named, and nothing that is no file."""

import os
import sys
from pathlib import Path

import pytest

from app.datasets.episodes import Episodes, WantedColumns
from app.datasets.files import Folder
from app.datasets.lerobot import INFO
from app.datasets.reading import read_dataset
from lachesis.wire.errors import DatasetNotFound, InvalidDataset
from tests.datasets.writers import lerobot_v2, lerobot_v3, write_lines, write_table


def read(path: Path | str, within: Path | None = None) -> Episodes:
    return read_dataset(Path(path), WantedColumns(), within=within)


def test_what_is_not_there_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(DatasetNotFound, match="no dataset at"):
        read(tmp_path / "nothing")


def test_an_unknown_layout_is_refused_with_those_that_are_known(tmp_path: Path) -> None:
    (tmp_path / "episodes.csv").write_text("length\n5\n")
    with pytest.raises(InvalidDataset, match=r"holds no supported file; use a LeRobot dataset .* \.safetensors"):
        read(tmp_path)
    with pytest.raises(InvalidDataset, match=r"episodes\.csv is not a supported file"):
        read(tmp_path / "episodes.csv")


def test_a_folder_that_this_user_may_not_look_into_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidDataset, match=r"locked/meta/info\.json cannot be read: File name too long"):
        Folder(tmp_path / ("d" * 300), "locked").holds(INFO)  # root may look into all others


def test_a_folder_of_several_kinds_is_not_guessed_at(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.jsonl", [5])
    write_table(tmp_path / "b.parquet", length=[5])
    with pytest.raises(InvalidDataset, match=r"files of several kinds: .*a\.jsonl and .*b\.parquet"):
        read(tmp_path)


@pytest.mark.parametrize("path", ["../outside", "/etc", "inside/../../outside", "link", "\0", "x" * 5000])
def test_no_path_leads_out_of_the_folder_of_datasets(tmp_path: Path, path: str) -> None:
    root = tmp_path / "root"
    lerobot_v2(root / "inside", [5])
    lerobot_v2(tmp_path / "outside", [5])
    (root / "link").symlink_to(tmp_path / "outside")
    assert read("inside", within=root).lengths.tolist() == [5]
    with pytest.raises(DatasetNotFound, match="no dataset at"):
        read(path, within=root)


@pytest.mark.parametrize("linked", ["meta", "meta/info.json", "meta/episodes.jsonl"])
def test_no_link_inside_of_a_dataset_leads_out(tmp_path: Path, linked: str) -> None:
    """A user who may write a dataset must not read other files of the machine through the service."""
    root = tmp_path / "root"
    lerobot_v2(root / "d", [5])
    moved = tmp_path / "moved"
    (root / "d" / linked).rename(moved)
    (root / "d" / linked).symlink_to(moved)
    with pytest.raises(InvalidDataset, match="is a link that leads out"):
        read("d", within=root)
    assert read(root / "d").lengths.tolist() == [5], "where no folder is named, links are followed"


def test_no_link_of_a_table_or_a_file_of_many_leads_out(tmp_path: Path) -> None:
    root = tmp_path / "root"
    write_lines(root / "good" / "a.jsonl", [5])
    (root / "good" / "b.jsonl").symlink_to(write_lines(tmp_path / "secret.jsonl", [6]))
    with pytest.raises(DatasetNotFound):
        read("good/b.jsonl", within=root)
    with pytest.raises(InvalidDataset, match=r"good/b\.jsonl is a link that leads out"):
        read("good", within=root)


def test_links_within_the_folder_of_datasets_are_followed(tmp_path: Path) -> None:
    lerobot_v2(tmp_path / "d", [5])
    (tmp_path / "latest").symlink_to("d")
    assert read("latest", within=tmp_path).lengths.tolist() == [5]


def test_a_link_keeps_the_suffix_of_its_name(tmp_path: Path) -> None:
    """As in the caches of downloads, where files are called by their hashes."""
    write_lines(tmp_path / "0a1b2c", [5, 6])
    (tmp_path / "lengths.jsonl").symlink_to(tmp_path / "0a1b2c")
    assert read(tmp_path / "lengths.jsonl").lengths.tolist() == [5, 6]


def test_links_to_folders_are_refused_and_loops_too(tmp_path: Path) -> None:
    write_table(tmp_path / "d" / "a.parquet", length=[5])
    (tmp_path / "d" / "more").symlink_to(tmp_path / "d")
    with pytest.raises(InvalidDataset, match="d/more is a link to a folder, which is not followed"):
        read(tmp_path / "d")
    (tmp_path / "a.jsonl").symlink_to("b.jsonl")
    (tmp_path / "b.jsonl").symlink_to("a.jsonl")
    with pytest.raises(DatasetNotFound):
        read(tmp_path / "a.jsonl")


@pytest.mark.parametrize("within", [True, False])
def test_what_is_no_file_is_refused_at_once(tmp_path: Path, within: bool) -> None:
    """To open a pipe would wait for a process that writes to it."""
    (tmp_path / "d").mkdir()
    os.mkfifo(tmp_path / "d" / "a.jsonl")
    with pytest.raises(InvalidDataset, match=r"d/a\.jsonl is not a file"):
        read("d", within=tmp_path) if within else read(tmp_path / "d")


def test_a_dataset_has_the_name_it_was_asked_for_by(tmp_path: Path) -> None:
    write_lines(tmp_path / "d" / "a.jsonl", [-5])
    with pytest.raises(InvalidDataset) as raised:
        read("d", within=tmp_path)
    assert str(raised.value).startswith("d/a.jsonl, line 1:")


def test_without_pyarrow_the_error_says_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lerobot_v3(tmp_path / "three", [5])
    lerobot_v2(tmp_path / "two", [5])
    monkeypatch.setitem(sys.modules, "pyarrow", None)  # the import system takes it for missing
    with pytest.raises(InvalidDataset, match="python -m pip install pyarrow"):
        read(tmp_path / "three")
    assert read(tmp_path / "two").lengths.tolist() == [5], "JSON lines take no pyarrow"
