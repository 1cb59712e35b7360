"""Small datasets in the real formats, as their own tools write them."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

CAMERAS = ("observation.images.top", "observation.images.wrist")
TASKS = ("pick the cube", "fold the towel")


def info(version: str, lengths: Sequence[int], **changes: Any) -> dict[str, Any]:
    """`meta/info.json` as LeRobot writes it."""
    camera = {"dtype": "video", "shape": [480, 640, 3], "names": ["height", "width", "channel"]}
    numbers = {"dtype": "float32", "shape": [7], "names": None}
    return {
        "codebase_version": version,
        "robot_type": "so100",
        "total_episodes": len(lengths),
        "total_frames": sum(lengths),
        "total_tasks": len(TASKS),
        "fps": 30,
        "splits": {"train": f"0:{len(lengths)}"},
        "features": {
            "action": numbers,
            "observation.state": numbers,
            **dict.fromkeys(CAMERAS, camera),
            "timestamp": {"dtype": "float32", "shape": [1], "names": None},
        },
    } | changes


def not_text() -> pa.StringArray:
    """Two texts of Parquet, of which the second is not UTF-8. No writer checks that."""
    return pa.StringArray.from_buffers(2, *pa.array([b"a", b"\xff"]).buffers()[1:])


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file, and its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))


def write_lines(path: Path, rows: Iterable[Any]) -> Path:
    """Write JSON lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def write_table(path: Path, **columns: Any) -> Path:
    """Write a Parquet file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)
    return path


def lerobot_v2(root: Path, lengths: Sequence[int], **changes: Any) -> Path:
    """Write the metadata of a LeRobot dataset of version 2.1."""
    write_json(root / "meta" / "info.json", info("v2.1", lengths, **changes))
    rows = [
        {"episode_index": n, "tasks": [TASKS[n % len(TASKS)]], "length": length} for n, length in enumerate(lengths)
    ]
    write_lines(root / "meta" / "episodes.jsonl", rows)
    return root


def lerobot_v3(root: Path, lengths: Sequence[int], files: int = 2, **changes: Any) -> Path:
    """Write the metadata of a LeRobot dataset of version 3.0, its episodes in several files."""
    write_json(root / "meta" / "info.json", info("v3.0", lengths, **changes))
    for n in range(files):
        indices = range(n * len(lengths) // files, (n + 1) * len(lengths) // files)
        write_table(
            root / "meta" / "episodes" / f"chunk-{n:03d}" / "file-000.parquet",
            **{
                "episode_index": pa.array(indices, pa.int64()),
                "tasks": pa.array([[TASKS[i % len(TASKS)]] for i in indices], pa.list_(pa.string())),
                "length": pa.array([lengths[i] for i in indices], pa.int64()),
                "data/chunk_index": [0] * len(indices),
                "stats/action/mean": [[0.5] * 7] * len(indices),
            },
        )
    return root
