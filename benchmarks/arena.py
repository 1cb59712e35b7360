"""All contestants, running, and how long to measure."""

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from benchmarks.bodies import Shape, bodies
from benchmarks.contestants import Atropos, BareEndpoint, Contestant, Lachesis, PlainRedis

C = TypeVar("C", bound=Contestant)


@dataclass(frozen=True, slots=True)
class Effort:
    """How much to measure: rounds, seconds of load in each, how deep queues get, and whether all of what takes long."""

    rounds: int
    seconds: float
    depths: tuple[int, ...]
    thorough: bool


FULL = Effort(rounds=5, seconds=1.2, depths=(1_000, 10_000, 100_000, 1_000_000), thorough=True)
QUICK = Effort(rounds=3, seconds=0.5, depths=(1_000, 10_000), thorough=False)


@dataclass(frozen=True)
class Arena:
    """All servers of a comparison. Those that are not being measured are idle."""

    lachesis: Lachesis
    everysec: Lachesis
    atropos: Atropos
    as_sent: BareEndpoint
    as_stored: BareEndpoint
    redis: PlainRedis
    effort: Effort

    def everyone(self) -> list[Contestant]:
        """Return all of them, in the order they are measured in each round."""
        return [self.lachesis, self.everysec, self.atropos, self.as_sent, self.as_stored, self.redis]

    def stored_bytes(self, shape: Shape) -> int:
        """Ask this service how many bytes it stores for a group of a shape."""
        self.lachesis.fresh(shape.sequences, 0)
        self.lachesis.post("/scored_data", content=bodies(shape)[0])
        return self.lachesis.stored_bytes()


@contextmanager
def arena(effort: Effort) -> Iterator[Arena]:
    """Start everyone, and end them afterwards."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lachesis-bench-")))

        def running(contestant: C) -> C:
            stack.callback(contestant.stop)
            return contestant

        for name in ("lachesis", "everysec", "redis"):
            (folder / name).mkdir()
        redis = running(PlainRedis(folder / "redis"))
        yield Arena(
            lachesis=running(Lachesis(folder / "lachesis")),
            everysec=running(Lachesis(folder / "everysec", "everysec")),
            atropos=running(Atropos(folder)),
            as_sent=running(BareEndpoint("bare, as sent", folder, redis, as_sent=True)),
            as_stored=running(BareEndpoint("bare, as stored", folder, redis, as_sent=False)),
            redis=redis,
            effort=effort,
        )
