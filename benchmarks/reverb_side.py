"""dm-reverb's side of the comparison. It runs in its own virtual environment and imports no module of Lachesis.

    reverb_side.py serve PORT SIZE...   a server with a table for each size of payloads, bytes, and each strategy
    reverb_side.py call PORT            a client: reads calls from stdin, ["name", arguments...] a line, answers in JSON

Insertions are by a trajectory writer, that keeps a stream open, and wait until the server has confirmed them. Samples
into arrays are a `TrajectoryDataset` with two batches in flight: it prefetches all the time. Its latency is that of
`Client.sample`, which opens a stream for each.
"""

import json
import os
import sys
import time
from collections.abc import Iterator
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import reverb
import tensorflow as tf

SAMPLED = 256
MOST_ITEMS = 2_000_000
SELECTORS = {"uniform": reverb.selectors.Uniform(), "proportional": reverb.selectors.Prioritized(0.6)}


def serve(port: int, sizes: list[int]) -> None:
    """Serve until the process is ended."""
    tables = [
        reverb.Table(
            name=f"{strategy}-{size}",
            sampler=selector,
            remover=reverb.selectors.Fifo(),
            max_size=MOST_ITEMS,
            rate_limiter=reverb.rate_limiters.MinSize(1),
            signature={"obs": tf.TensorSpec((1, size), tf.uint8)},
        )
        for size in sizes
        for strategy, selector in SELECTORS.items()
    ]
    reverb.Server(tables, port=port).wait()


class Calls:
    """What a client can be told to do. A table's name says the size of its payloads."""

    def __init__(self, port: int) -> None:
        self._address = f"127.0.0.1:{port}"
        self._client = reverb.Client(self._address)
        self._datasets: dict[str, Iterator[Any]] = {}

    def insert(self, table: str, at_once: int, seconds: float, items: int) -> float:
        """Insert for so long or so many items, whatever takes longer; so many ``at_once`` are confirmed. Per second."""
        obs = np.frombuffer(os.urandom(int(table.rpartition("-")[2])), np.uint8)
        done, began = 0, time.perf_counter()
        with self._client.trajectory_writer(num_keep_alive_refs=1) as writer:
            while done < items or time.perf_counter() - began < seconds:
                for number in range(done, done + at_once):
                    writer.append({"obs": obs})
                    writer.create_item(table, 1.0 + number % 97, {"obs": writer.history["obs"][-1:]})
                writer.flush()
                done += at_once
            return done / (time.perf_counter() - began)

    def samples(self, table: str, seconds: float) -> float:
        """Take samples into arrays for so long; per second."""
        if table not in self._datasets:
            dataset = reverb.TrajectoryDataset.from_table_signature(
                self._address, table, max_in_flight_samples_per_worker=2 * SAMPLED
            )
            self._datasets[table] = dataset.batch(SAMPLED).prefetch(1).as_numpy_iterator()
        batches = self._datasets[table]
        next(batches)
        done, began = 0, time.perf_counter()
        while time.perf_counter() - began < seconds:
            assert next(batches).data["obs"].shape[0] == SAMPLED
            done += 1
        return done / (time.perf_counter() - began)

    def latencies(self, table: str, count: int) -> list[float]:
        """Take samples one by one; returns how long each took, milliseconds."""
        taken = []
        for _ in range(count):
            began = time.perf_counter()
            assert len(list(self._client.sample(table, SAMPLED, emit_timesteps=False))) == SAMPLED
            taken.append((time.perf_counter() - began) * 1000)
        return taken

    def size(self, table: str) -> int:
        """Count a table's items."""
        return int(self._client.server_info()[table].current_size)

    def empty(self, table: str) -> None:
        """Forget a table's items, and stop prefetching."""
        self._datasets.clear()
        self._client.reset(table)


def answer(calls: Calls) -> None:
    """Carry out what is asked, until nothing more is; Reverb's own words go to stderr."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        answers.write(json.dumps(getattr(calls, name)(*arguments)) + "\n")
        answers.flush()


if __name__ == "__main__":
    _, what, at, *rest = sys.argv
    if what == "serve":
        serve(int(at), list(map(int, rest)))
    else:
        answer(Calls(int(at)))
