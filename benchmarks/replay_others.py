"""Who a replay buffer is compared with: dm-reverb, and what one could do with redis-py alone."""

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.arena import Effort
from benchmarks.contestants import PlainRedis
from tests.e2e.processes import Process
from tests.e2e.venv import REPOSITORY, is_built, python_with
from tests.ports import free_port

SAMPLED = 256
START_WITHIN_S = 60.0
REVERB_REQUIREMENTS = Path(__file__).with_name("reverb-requirements.txt")
_VENV = REPOSITORY / ".venv-reverb"
_SIDE = Path(__file__).with_name("reverb_side.py")


class Reverb:
    """dm-reverb: its server and one client, each a process of its own."""

    name = "dm-reverb"

    def __init__(self, python: Path, folder: Path, sizes: tuple[int, ...]) -> None:
        port = free_port()
        run = [str(python), "-P", str(_SIDE)]
        self._server = Process(self.name, [*run, "serve", str(port), *map(str, sizes)], folder / "reverb.log", {})
        self._server.wait_until(
            "Reverb listens", lambda: "Started replay" in self._server.log.read_text(), START_WITHIN_S
        )
        with (folder / "reverb-client.log").open("ab") as log:
            self._client = subprocess.Popen(
                [*run, "call", str(port)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )

    def call(self, name: str, *arguments: object) -> Any:
        """Have its client do something (`reverb_side.Calls`), and wait for what comes of it."""
        assert self._client.stdin
        assert self._client.stdout
        self._client.stdin.write(json.dumps([name, *arguments]) + "\n")
        self._client.stdin.flush()
        return json.loads(self._client.stdout.readline())

    def resident_bytes(self) -> int:
        """Memory that its server occupies."""
        return int(Path(f"/proc/{self._server.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def stop(self) -> None:
        """End both."""
        self._client.kill()
        self._client.wait()
        self._server.stop()


@contextmanager
def reverb(effort: Effort, folder: Path, sizes: tuple[int, ...]) -> Iterator[tuple[Reverb | None, str]]:
    """Start Reverb, in a virtual environment that is built first if there is time for it; end it afterwards.

    Yields:
        It, or None; and what is to be said of that under a table.
    """
    try:
        built = effort.thorough or is_built(REVERB_REQUIREMENTS, _VENV)
        python = python_with(REVERB_REQUIREMENTS, _VENV) if built else None
    except subprocess.CalledProcessError:
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        yield None, f" (dm-reverb is missing: pip found no way to install it for Python {version}.)"
        return
    if python is None:
        yield None, " (dm-reverb is missing: the quick form does not install it.)"
        return
    found = Reverb(python, folder, sizes)
    try:
        yield found, ""
    finally:
        found.stop()


class RedisAlone:
    """A list of names and a key for each payload, written and read by redis-py: each write fsynced, as ours are."""

    name = "redis alone"

    def __init__(self, redis: PlainRedis, size_bytes: int) -> None:
        redis.fresh(1, 0)
        self._client = redis.client
        self._payload = os.urandom(size_bytes)
        self._dice = random.Random(0)

    def insert(self, at_once: int, seconds: float, items: int = 0) -> float:
        """Insert for so long or so many items, whatever takes longer, ``at_once`` in a transaction; per second."""
        first, began = self.size(), time.perf_counter()
        done = first
        while done < first + items or time.perf_counter() - began < seconds:
            pipe = self._client.pipeline(transaction=True)
            for number in range(done, done + at_once):
                pipe.set(f"fragment:{number}", self._payload)
            pipe.rpush("order", *range(done, done + at_once))
            pipe.execute()
            done += at_once
        return (done - first) / (time.perf_counter() - began)

    def sample(self) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """Take a uniform sample into an array."""
        drawn = self._dice.sample(range(self.size()), SAMPLED)
        payloads: Any = self._client.mget([f"fragment:{number}" for number in drawn])
        return np.stack([np.frombuffer(payload, np.uint8) for payload in payloads])

    def samples(self, seconds: float) -> float:
        """Take samples for so long; per second."""
        done, began = 0, time.perf_counter()
        while time.perf_counter() - began < seconds:
            assert len(self.sample()) == SAMPLED
            done += 1
        return done / (time.perf_counter() - began)

    def size(self) -> int:
        """Count what it has."""
        return int(self._client.llen("order"))
