"""LeRobot datasets, of every version that is read, and with everything that can be wrong in them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from app.datasets.episodes import Episodes, WantedColumns
from app.datasets.reading import read_dataset
from lachesis.wire.errors import InvalidDataset
from tests.datasets.writers import (
    CAMERAS,
    TASKS,
    info,
    lerobot_v2,
    lerobot_v3,
    not_text,
    write_json,
    write_lines,
    write_table,
)

LENGTHS = [310, 95, 240, 1200, 17]
Write = Callable[..., Path]


def read(root: Path, **wanted: Any) -> Episodes:
    return read_dataset(root, WantedColumns(**wanted))


@pytest.mark.parametrize(("write", "version", "files"), [(lerobot_v2, "v2.1", 2), (lerobot_v3, "v3.0", 3)])
def test_lengths_and_facts_are_those_of_the_files(tmp_path: Path, write: Write, version: str, files: int) -> None:
    found = read(write(tmp_path, LENGTHS))
    assert found.lengths.tolist() == LENGTHS
    assert np.asarray(found.ids).tolist() == list(range(5))
    facts = found.facts
    assert (facts.layout, facts.unit, facts.files) == (f"LeRobot {version}", "frames", files)
    assert (facts.fps, facts.action_dim, facts.cameras, facts.robot) == (30, 7, CAMERAS, "so100")
    assert facts.tasks == ((TASKS[0], 3), (TASKS[1], 2))


@pytest.mark.parametrize("write", [lerobot_v2, lerobot_v3])
def test_images_are_cameras_too_and_actions_may_have_several_dimensions(tmp_path: Path, write: Write) -> None:
    features = {
        "action": {"dtype": "float32", "shape": [2, 7]},
        "observation.image": {"dtype": "image", "shape": [96, 96, 3]},
        "observation.state": {"dtype": "float32", "shape": [7]},
    }
    facts = read(write(tmp_path, LENGTHS, features=features, robot_type=None)).facts
    assert (facts.action_dim, facts.cameras, facts.robot) == (14, ("observation.image",), None)


def test_a_dataset_without_actions_says_nothing_of_them(tmp_path: Path) -> None:
    facts = read(lerobot_v2(tmp_path, LENGTHS, features={}, fps=None)).facts
    assert (facts.action_dim, facts.cameras, facts.fps) == (None, (), None)


def test_episodes_come_in_the_order_of_their_index_whatever_order_the_files_have(tmp_path: Path) -> None:
    write_json(tmp_path / "meta/info.json", info("v3.0", [10, 11, 12, 13]))
    write_table(tmp_path / "meta/episodes/chunk-000/file-000.parquet", episode_index=[3, 1], length=[13, 11])
    write_table(tmp_path / "meta/episodes/chunk-000/file-001.parquet", episode_index=[0, 2], length=[10, 12])
    assert read(tmp_path).lengths.tolist() == [10, 11, 12, 13]


def test_the_costs_of_a_producer_go_along_with_their_episodes(tmp_path: Path) -> None:
    write_json(tmp_path / "meta/info.json", info("v2.1", [10, 11]))
    rows = [{"episode_index": 1, "length": 11, "price": 2.5}, {"episode_index": 0, "length": 10, "price": 7}]
    write_lines(tmp_path / "meta/episodes.jsonl", rows)
    found = read(tmp_path, cost="price")
    assert found.costs is not None
    assert (found.lengths.tolist(), found.costs.tolist()) == ([10, 11], [7, 2.5])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"codebase_version": "v1.6"}, r"codebase_version 'v1.6' is unknown; use v2.0 or v2.1 or v3.0"),
        ({"codebase_version": 2.1}, r"codebase_version is 2.1, not a text"),
        ({"total_episodes": 6}, r"total_episodes is 6, but the episodes add up to 5"),
        ({"total_frames": 1}, r"total_frames is 1, but the episodes add up to 1862"),
        ({"fps": "30"}, r"fps is '30', not a number above 0"),
        ({"fps": 0}, r"fps is 0, not a number"),
        ({"robot_type": 3}, r"robot_type is 3, not a text"),
        ({"features": None}, r"features is None, not an object"),
        ({"features": {"action": {"dtype": "float32", "shape": [-7]}}}, r"features\['action'\].shape is \[-7\]"),
        ({"features": {"action": {"dtype": "float32", "shape": "7"}}}, r"shape is '7', not a list of whole numbers"),
        ({"features": {"action": {"dtype": "u8", "shape": [2**40] * 2}}}, r"shape is \[.*\], not that of an array"),
        ({"features": {"action": {"shape": [7]}}}, r"features\['action'\].dtype is None, not a text"),
        ({"features": {"action": 7}}, r"features\['action'\].dtype is None"),
    ],
)
@pytest.mark.parametrize("write", [lerobot_v2, lerobot_v3])
def test_what_is_wrong_in_the_info_is_named(
    tmp_path: Path, write: Write, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidDataset, match=message) as raised:
        read(write(tmp_path, LENGTHS, **changes))
    assert "meta/info.json" in str(raised.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "info.json is not JSON"),
        (b"[1, 2]", r"info.json is not a JSON object but \[1, 2\]"),
        (b"[" * 200_000, "info.json is not JSON"),
        (b'{"codebase_version": "\xff"}', "info.json is not JSON"),
        (b" " * (16 * 1024 * 1024 + 1), "info.json is larger than 16777216 bytes"),
    ],
    ids=["empty", "a list", "nested", "not UTF-8", "huge"],
)
def test_an_info_that_is_no_object_is_refused(tmp_path: Path, text: bytes, message: str) -> None:
    lerobot_v2(tmp_path, LENGTHS)
    (tmp_path / "meta/info.json").write_bytes(text)
    with pytest.raises(InvalidDataset, match=message):
        read(tmp_path)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"episode_index": 5, "tasks": []}, r"episodes.jsonl, line 6: no column 'length'"),
        ({"length": 5, "tasks": []}, r"episodes.jsonl, line 6: no column 'episode_index'"),
        ({"episode_index": 2, "length": 5, "tasks": []}, r"line 6: episode 2 is also in .*, line 3$"),
        ({"episode_index": 5, "length": 5, "tasks": "pick"}, r"line 6: tasks is 'pick', not a list of texts"),
        ({"episode_index": 5, "length": 5, "tasks": [{}]}, r"line 6: tasks is \[\{\}\], not a list of texts"),
        (
            {"episode_index": "5", "length": 5, "tasks": []},
            "line 6: its id is of another kind than .*, line 1",
        ),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, row: dict[str, Any], message: str) -> None:
    lerobot_v2(tmp_path, LENGTHS)
    with (tmp_path / "meta/episodes.jsonl").open("a") as file:
        file.write(json.dumps(row))
    with pytest.raises(InvalidDataset, match=message):
        read(tmp_path)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"length": [5]}, r"file-000.parquet: no column 'episode_index'; there are \['length'\]"),
        ({"episode_index": [9]}, r"file-000.parquet: no column 'length'"),
        ({"episode_index": [0], "length": [5], "tasks": [["a"]]}, r"chunk-009/file-000.parquet, row 0: episode 0 is"),
        (
            {"episode_index": [8, 9], "length": [5, 5], "tasks": pa.ListArray.from_arrays([0, 1, 2], not_text())},
            r"file-000.parquet: a task is not UTF-8",
        ),
        ({"episode_index": [9], "length": [5.0]}, r"row 0: column 'length' holds double, not whole numbers"),
        ({"episode_index": [9.0], "length": [5]}, r"row 0: column 'episode_index' holds double; ids are whole"),
        ({"episode_index": [9], "length": [5], "tasks": ["a"]}, r"column 'tasks' holds string, not lists of texts"),
    ],
)
def test_a_wrong_file_of_many_is_named(tmp_path: Path, columns: dict[str, Any], message: str) -> None:
    lerobot_v3(tmp_path, LENGTHS)
    write_table(tmp_path / "meta/episodes/chunk-009/file-000.parquet", **columns)
    with pytest.raises(InvalidDataset, match=message):
        read(tmp_path)


def test_missing_episodes_are_named(tmp_path: Path) -> None:
    (lerobot_v2(tmp_path / "two", LENGTHS) / "meta/episodes.jsonl").unlink()
    with pytest.raises(InvalidDataset, match=r"two/meta/episodes\.jsonl is missing"):
        read(tmp_path / "two")
    write_json(tmp_path / "three/meta/info.json", info("v3.0", []))
    with pytest.raises(InvalidDataset, match="three/meta/episodes is missing"):
        read(tmp_path / "three")
    (tmp_path / "three/meta/episodes").mkdir()
    with pytest.raises(InvalidDataset, match="three/meta/episodes holds no Parquet file"):
        read(tmp_path / "three")


@pytest.mark.parametrize("write", [lerobot_v2, lerobot_v3])
def test_a_dataset_without_episodes_is_no_dataset(tmp_path: Path, write: Write) -> None:
    with pytest.raises(InvalidDataset, match="holds no episode"):
        read(write(tmp_path, []))


def test_the_table_of_a_dataset_can_be_read_by_itself(tmp_path: Path) -> None:
    """The way around an info that does not count right."""
    lerobot_v2(tmp_path, LENGTHS, total_frames=1)
    assert read(tmp_path / "meta/episodes.jsonl").lengths.tolist() == LENGTHS
