"""Shard manifests, and the files they name."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from lachesis.errors import FetchFailed
from lachesis.loader import Episode, Loader, Pad, episode_files, read_manifest


def written(folder: Path, lines: list[Any]) -> Path:
    manifest = folder / "rank-0.jsonl"
    manifest.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))
    return manifest


def episode(name: str | int, length: int = 3) -> dict[str, Any]:
    return {"episode": name, "length": length, "cost": 1.5 * length}


def test_the_episodes_of_a_shard_are_read_from_their_files(tmp_path: Path) -> None:
    lengths = {"a": 3, "b": 5, "deep/c": 2, 7: 4}
    for name, length in lengths.items():
        file = tmp_path / "data" / f"{name}.safetensors"
        file.parent.mkdir(parents=True, exist_ok=True)
        save_file({"obs/state": np.full((length, 2), length, np.float32), "action": np.arange(length)}, file)
    lines = [episode("a.safetensors", 3), episode("b", 5), episode("deep/c", 2), episode(7, 4)]
    source = episode_files(written(tmp_path, lines), tmp_path / "data")
    assert [one.episode for one in source.keys] == ["a.safetensors", "b", "deep/c", 7]
    (batch,) = Loader(source, 4, ragged=Pad(-1))
    assert batch.keys[1] == Episode("b", 5, 7.5)
    assert batch.data["action"].lengths.tolist() == [one.length for one in batch.keys] == [3, 5, 2, 4]
    assert batch.data["obs"]["state"].values[1].tolist() == [[5, 5]] * 5


def test_what_else_a_line_says_is_passed_over(tmp_path: Path) -> None:
    assert read_manifest(written(tmp_path, [{**episode("a"), "task": "fold"}])) == [Episode("a", 3, 4.5)]


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("", "Invalid JSON"),
        ("{", "Invalid JSON"),
        ([1], "object"),
        ({"episode": "b", "length": 3}, "cost: Field required"),
        ({"episode": "b", "length": 3.5, "cost": 1}, "length: .*fractional"),
        ({"episode": "b", "length": -1, "cost": 1}, "length: .*greater than or equal to 0"),
        ({"episode": None, "length": 3, "cost": 1}, "episode"),
    ],
)
def test_a_broken_line_is_named(tmp_path: Path, line: Any, wrong: str) -> None:
    with pytest.raises(ValueError, match=rf"rank-0.jsonl, line 2: .*{wrong}"):
        read_manifest(written(tmp_path, [episode("a"), line]))


@pytest.mark.parametrize("name", ["../secret", "a/../../secret", "/etc/secret"])
def test_a_manifest_names_no_file_outside_of_its_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="is not a file below"):
        episode_files(written(tmp_path, [episode(name)]), tmp_path)


def test_a_file_that_is_missing_or_cut_off_is_named_when_it_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "short.safetensors").write_bytes(b"\x01\x02")
    for name, reason in (("gone", "FileNotFoundError"), ("short", "DamagedBlob: 2 bytes")):
        source = episode_files(written(tmp_path, [episode(name)]), tmp_path)
        with pytest.raises(FetchFailed, match=f"episode='{name}'.*{reason}"):
            list(Loader(source, 1))
