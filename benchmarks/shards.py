"""How long it takes to analyse a dataset of episodes and plan its shards, and what the plans are worth."""

import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from app.core.datasets.plans import plan_shards
from app.datasets.episodes import WantedColumns
from app.datasets.reading import read_dataset
from app.services.datasets import ShardPlanSpec, plan_dataset
from benchmarks.arena import Arena
from benchmarks.results import US, Results, Table

RANKS = 8
READING = "reading alone"
MOST_FILES = 100_000  # of safetensors: more take longer to write than all else here
ROWS_A_FILE = 20_000
TASKS = ("pick the cube", "fold the towel", "pour the water")
CONTIGUOUS, BOUND = "contiguous", "lower bound"

Lengths = NDArray[np.int64]

ANALYSIS = Table(
    "shards",
    "Analysing a dataset of episodes",
    "s",
    False,
    (),
    f"From the path to the plan for {RANKS} ranks: every length read and checked, balanced, described. Lognormal "
    "lengths. The files are in the page cache.",
)
WORTH = Table(
    "shards_worth",
    "A pass over balanced shards",
    "% over the mean load",
    False,
    (),
    "How much longer a pass takes than with the mean load on every rank. Lognormal lengths, cost `24576*L + L^2`; in "
    "the order they were drawn, and growing, as where episodes get longer while a policy learns.",
)


async def measure(arena: Arena, results: Results) -> None:
    """Write each dataset once, and plan it in each round."""
    layouts: dict[str, Callable[[Path, Lengths], None]] = {
        "LeRobot v2.1": write_v2,
        "LeRobot v3.0": write_v3,
        "safetensors": write_safetensors,
    }
    for episodes in arena.effort.depths:
        for layout, write in layouts.items():
            if layout == "safetensors" and episodes > MOST_FILES:
                continue
            with tempfile.TemporaryDirectory() as folder:
                write(Path(folder), lognormal(episodes))
                for _ in range(arena.effort.rounds):
                    case = f"{layout}, {episodes:,} episodes"
                    began = time.perf_counter()
                    plan_dataset(Path(folder), ShardPlanSpec(RANKS))
                    planned = time.perf_counter()
                    read_dataset(Path(folder), WantedColumns())
                    results.add(ANALYSIS, case, US, planned - began)
                    results.add(ANALYSIS, case, READING, time.perf_counter() - planned)
    for episodes, ranks in ((1_000, 8), (1_000, 64), (100_000, 64)):
        for order in ("as drawn", "growing"):
            worth(results, episodes, ranks, order)


def worth(results: Results, episodes: int, ranks: int, order: str) -> None:
    """Take down how long a pass is."""
    lengths = lognormal(episodes)
    if order == "growing":
        lengths.sort()
    plan = plan_shards(lengths, 24576.0 * lengths + lengths.astype(np.float64) ** 2, ranks, equal_episodes=True)
    case = f"{episodes:,} episodes, {ranks} ranks, {order}"
    times = {US: plan.pass_time, CONTIGUOUS: plan.contiguous_pass_time, BOUND: plan.bound_pass_time}
    for who, pass_time in times.items():
        results.add(WORTH, case, who, 100 * (pass_time - 1))


def lognormal(episodes: int) -> Lengths:
    """Draw lengths, the same ones every time."""
    return np.clip(np.random.default_rng(0).lognormal(5.5, 0.8, episodes), 10, 20_000).astype(np.int64)


def write_info(root: Path, version: str, lengths: Lengths) -> None:
    """Write what a LeRobot dataset says of itself."""
    camera = {"dtype": "video", "shape": [480, 640, 3], "names": ["height", "width", "channel"]}
    features = {"action": {"dtype": "float32", "shape": [7], "names": None}, "observation.images.top": camera}
    counts = {"total_episodes": len(lengths), "total_frames": int(lengths.sum())}
    (root / "meta").mkdir()
    (root / "meta" / "info.json").write_text(
        json.dumps({"codebase_version": version, "fps": 30, "features": features} | counts)
    )


def write_v2(root: Path, lengths: Lengths) -> None:
    """Write a line for each episode."""
    write_info(root, "v2.1", lengths)
    with (root / "meta" / "episodes.jsonl").open("w") as file:
        for n, length in enumerate(lengths.tolist()):
            row = {"episode_index": n, "tasks": [TASKS[n % len(TASKS)]], "length": length}
            file.write(f"{json.dumps(row)}\n")


def write_v3(root: Path, lengths: Lengths) -> None:
    """Write a row for each episode, some thousand to a file."""
    write_info(root, "v3.0", lengths)
    folder = root / "meta" / "episodes" / "chunk-000"
    folder.mkdir(parents=True)
    for start in range(0, len(lengths), ROWS_A_FILE):
        part = lengths[start : start + ROWS_A_FILE]
        indices = np.arange(start, start + len(part))
        tasks = [[TASKS[n % len(TASKS)]] for n in indices.tolist()]
        table = pa.table({"episode_index": indices, "length": part, "tasks": tasks})
        pq.write_table(table, folder / f"file-{start // ROWS_A_FILE:03d}.parquet")


def write_safetensors(root: Path, lengths: Lengths) -> None:
    """Write a file for each episode, whose tensors are holes: nothing reads them."""
    for n, length in enumerate(lengths.tolist()):
        folder = root / f"{n // 1000:04d}"
        if n % 1000 == 0:
            folder.mkdir()
        sizes = {"action": [length, 7], "done": [length]}
        header, end = {}, 0
        for name, shape in sizes.items():
            size = int(np.prod(shape))
            header[name] = {"dtype": "U8", "shape": shape, "data_offsets": [end, end + size]}
            end += size
        text = json.dumps(header).encode()
        with (folder / f"{n:07d}.safetensors").open("wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            file.truncate(8 + len(text) + end)
