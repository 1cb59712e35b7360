"""What a training loop waits for samples: the loader against the bare fetch, and beside a step."""

import asyncio
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.arena import Arena
from benchmarks.results import Results, Table
from lachesis.loader import AsyncSource, Loader, Source, decode, encode, stack

BATCH_SIZE, READERS = 32, 16
FILES = 256
FETCH_S, STEP_S, STEPS = 0.005, 0.040, 20

THROUGHPUT = Table(
    "loader",
    "Loading samples",
    "samples/s",
    True,
    ("bare fetch", "bare fetch, stacked"),
    f"`lachesis.loader`, shuffled, batches of {BATCH_SIZE}, {READERS} readers. The files are safetensors that the "
    f"system has in memory. Where a fetch takes {FETCH_S * 1000:.0f} ms it sleeps, as one waits that goes over a "
    "network. The bare fetch is a loop over the same function in one thread, with its payloads read into arrays. "
    "Stacked, it makes batches of them, too. By coroutines: the same from an `AsyncSource`.",
)
HIDING = Table(
    "loader_hiding",
    "Loading beside a step",
    "ms",
    False,
    ("step alone",),
    f"A turn of a loop that takes {BATCH_SIZE} samples of 100 kB, whose fetches take {FETCH_S * 1000:.0f} ms each. Its "
    f"step takes {STEP_S * 1000:.0f} ms: it sleeps, as one on an accelerator does. The first turn is not counted.",
)


async def measure(arena: Arena, results: Results) -> None:
    """Run all cases, contestants interleaved in each round."""
    payload = blob_of(100)

    def waiting(_: int) -> bytes:
        time.sleep(FETCH_S)
        return payload

    async def awaiting(_: int) -> bytes:
        await asyncio.sleep(FETCH_S)
        return payload

    case = f"100 kB, {FETCH_S * 1000:.0f} ms each"
    for _ in range(arena.effort.rounds):
        for kilobytes in (100, 1000):
            with tempfile.TemporaryDirectory(prefix="lachesis-bench-") as folder:
                files = Source(written(Path(folder), kilobytes), Path.read_bytes)
                compare(results, f"{kilobytes} kB, files", files, epochs=4)
        compare(results, case, Source(range(FILES), waiting), 1, AsyncSource.of(range(FILES), awaiting))
        hide(results, case, Source(range(BATCH_SIZE * (STEPS + 1)), waiting))


def compare(
    results: Results, case: str, source: Source[Any], epochs: int, async_source: AsyncSource[Any] | None = None
) -> None:
    """Load everything so many times in each way."""

    def loader(source: Any, **options: Any) -> Loader[Any]:
        return Loader(source, BATCH_SIZE, seed=0, epochs=epochs, **{"readers": READERS, **options})

    def bare() -> Iterator[Any]:
        return (decode(source.fetch(key)) for _ in range(epochs) for key in source.keys)

    ways: dict[str, Callable[[], Iterable[Any]]] = {
        "lachesis": lambda: loader(source),
        "lachesis, as they arrive": lambda: loader(source, ordered=False),
        "lachesis, 1 reader": lambda: loader(source, readers=1),
        "bare fetch": bare,
        "bare fetch, stacked": lambda: stacked(bare()),
    }
    if async_source is not None:
        ways["lachesis, by coroutines"] = lambda: loader(async_source)
    for name, way in ways.items():
        began = time.perf_counter()
        for _ in way():
            pass
        results.add(THROUGHPUT, case, name, epochs * len(source.keys) / (time.perf_counter() - began))


def hide(results: Results, case: str, source: Source[Any]) -> None:
    """Take steps on batches in each way."""

    def loader(prefetch_batches: int) -> Iterator[Any]:
        return iter(Loader(source, BATCH_SIZE, readers=READERS, prefetch_batches=prefetch_batches))

    ways: dict[str, Iterator[Any]] = {
        "lachesis": loader(2),
        "lachesis, nothing ahead": loader(0),
        "bare fetch, stacked": stacked(decode(source.fetch(key)) for key in source.keys),
        "step alone": iter(range(STEPS + 1)),
    }
    for name, batches in ways.items():
        next(batches)
        began = time.perf_counter()
        for _ in batches:
            time.sleep(STEP_S)
        results.add(HIDING, case, name, (time.perf_counter() - began) / STEPS * 1000)


def stacked(samples: Iterator[Any]) -> Iterator[Any]:
    """Make batches in a single thread."""
    batch = []
    for sample in samples:
        batch.append(sample)
        if len(batch) == BATCH_SIZE:
            yield stack(batch)
            batch = []


def written(folder: Path, kilobytes: int) -> list[Path]:
    """Write files, and read each once."""
    files = [folder / f"{number}.safetensors" for number in range(FILES)]
    for file in files:
        file.write_bytes(blob_of(kilobytes))
        file.read_bytes()
    return files


def blob_of(kilobytes: int) -> bytes:
    """Make a fragment: frames, and a few numbers for each."""
    frames = kilobytes // 4
    arrays = {"obs": {"image": np.zeros((frames, 4000), np.uint8)}, "action": np.zeros((frames, 4), np.float32)}
    return encode(arrays)
