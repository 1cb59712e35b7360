"""Read LeRobot datasets: `meta/info.json`, and the episodes where each version keeps them.

Versions 2.0 and 2.1 have a line for each episode in `meta/episodes.jsonl`, version 3.0 a row in the Parquet files below
`meta/episodes`. In both, ``length`` counts frames, and ``episode_index`` is the id.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from app.datasets import jsonl, parquet
from app.datasets.episodes import DatasetFacts, Episodes, Progress, Slice, WantedColumns, joined, shown
from app.datasets.files import Folder
from lachesis.wire.body import MAX_INTEGER
from lachesis.wire.errors import InvalidDataset

INFO = "meta/info.json"
_LINES = "meta/episodes.jsonl"
_TABLES = "meta/episodes"
_CAMERA_TYPES = ("video", "image")


def read_lerobot(folder: Folder, wanted: WantedColumns, progress: Progress) -> Episodes:
    """Read a LeRobot dataset of version 2.0, 2.1 or 3.0. Episodes come in the order of their index.

    Raises:
        InvalidDataset: It has another version, a file is missing or broken, or the number of its episodes differs from
            `meta/info.json`.
    """
    info = _Info(folder)
    version = info.text("codebase_version")
    read = _READERS.get(version)
    if read is None:
        raise InvalidDataset(f"{info.source}: codebase_version {version!r} is unknown; use {' or '.join(_READERS)}")
    facts = info.facts(f"LeRobot {version}")
    parts = read(folder, replace(wanted, id="episode_index", tasks=True), progress)
    ids, whole = joined(folder.name, parts, in_order_of_ids=True)
    info.check("total_episodes", len(whole.lengths))
    info.check("total_frames", int(whole.lengths.sum()))
    files = len({part.source for part in parts}) + 1
    return Episodes(ids, whole.lengths, whole.costs, replace(facts, files=files, tasks=(*whole.tasks.most_common(),)))


def _read_v2(folder: Folder, wanted: WantedColumns, progress: Progress) -> list[Slice]:
    return jsonl.read_jsonl(folder, _LINES, wanted, progress)


def _read_v3(folder: Folder, wanted: WantedColumns, progress: Progress) -> list[Slice]:
    if not (folder.path / _TABLES).is_dir():
        raise InvalidDataset(f"{folder.called(_TABLES)} is missing")
    files = folder.find(parquet.SUFFIXES, _TABLES)
    if not files:
        raise InvalidDataset(f"{folder.called(_TABLES)} holds no Parquet file")
    return parquet.read_parquet(folder, files, wanted, progress)


_READERS: dict[str, Callable[[Folder, WantedColumns, Progress], list[Slice]]] = {
    "v2.0": _read_v2,
    "v2.1": _read_v2,
    "v3.0": _read_v3,
}


@dataclass(frozen=True, slots=True)
class _Feature:
    name: str
    dtype: str
    shape: tuple[int, ...]


class _Info:
    """The values of `meta/info.json`, each of which may have any type."""

    def __init__(self, folder: Folder) -> None:
        self.source = folder.called(INFO)
        self._value = folder.json(INFO)

    def text(self, key: str) -> str:
        value = self._value.get(key)
        if not isinstance(value, str):
            raise self._wrong(key, value, "a text")
        return value

    def check(self, key: str, found: int) -> None:
        """Compare the number that was read with the number in `meta/info.json`."""
        counted = self._value.get(key)
        if counted is not None and counted != found:
            raise InvalidDataset(
                f"{self.source}: {key} is {shown(counted)}, but the episodes add up to {found}. "
                "To plan without this file, name the files of the episodes"
            )

    def facts(self, layout: str) -> DatasetFacts:
        features = self._features()
        actions = [math.prod(feature.shape) for feature in features if feature.name == "action"]
        fps = self._value.get("fps")
        if fps is not None and not (type(fps) in (int, float) and fps > 0):
            raise self._wrong("fps", fps, "a number above 0")
        robot = self._value.get("robot_type")
        return DatasetFacts(
            layout,
            unit="frames",
            files=0,
            fps=fps,
            action_dim=actions[0] if actions else None,
            cameras=tuple(feature.name for feature in features if feature.dtype in _CAMERA_TYPES),
            robot=None if robot is None else self.text("robot_type"),
        )

    def _features(self) -> list[_Feature]:
        features = self._value.get("features")
        if not isinstance(features, dict):
            raise self._wrong("features", features, "an object")
        return [self._feature(name, value) for name, value in features.items()]

    def _feature(self, name: str, value: Any) -> _Feature:
        dtype, shape = (value.get("dtype"), value.get("shape")) if isinstance(value, dict) else (None, None)
        if not isinstance(dtype, str):
            raise self._wrong(f"features[{name!r}].dtype", dtype, "a text")
        if not isinstance(shape, list) or any(type(length) is not int or length < 0 for length in shape):
            raise self._wrong(f"features[{name!r}].shape", shape, "a list of whole numbers")
        if math.prod(shape) > MAX_INTEGER:
            raise self._wrong(f"features[{name!r}].shape", shape, "that of an array")
        return _Feature(name, dtype, tuple(shape))

    def _wrong(self, key: str, value: Any, wanted: str) -> InvalidDataset:
        return InvalidDataset(f"{self.source}: {key} is {shown(value)}, not {wanted}")
