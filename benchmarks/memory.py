"""How much memory a queued group takes."""

from benchmarks.arena import Arena
from benchmarks.batch import one
from benchmarks.bodies import Shape, bodies
from benchmarks.contestants import Contestant
from benchmarks.results import Results, Table

SHAPE = Shape(8, 2048)
GROUPS = 200
BYTES_PER_MB = 1e6
NEVER_A_BATCH = 65_536

MEMORY = Table(
    key="memory",
    title="Memory of a queued group",
    unit="MB",
    more_is_better=False,
    versus=("atropos",),
    note=f"Growth over {GROUPS} groups of {SHAPE}: `used_memory` of this service's Redis, resident memory of Atropos's "
    "process. The latter is measured first, before anything else has made it grow.",
)


async def measure(arena: Arena, results: Results) -> None:
    """Queue groups and see what grew."""
    redis = arena.lachesis.redis()

    def used_bytes() -> int:
        return int(redis.info("memory")["used_memory"])

    for contestant, measured in ((arena.lachesis, used_bytes), (arena.atropos, arena.atropos.resident_bytes)):
        contestant.fresh(NEVER_A_BATCH, 0)
        await fill(contestant, 10)  # what a first request makes grow is not the groups' doing
        before = measured()
        await fill(contestant, GROUPS)
        assert contestant.held() == 10 + GROUPS
        results.add(MEMORY, str(SHAPE), contestant.name, (measured() - before) / GROUPS / BYTES_PER_MB)
        contestant.fresh(NEVER_A_BATCH, 0)
    redis.close()


async def fill(contestant: Contestant, groups: int) -> None:
    """Queue groups."""
    sent = bodies(SHAPE)
    for n in range(groups):
        await one(contestant, contestant.submission(n, sent[n % len(sent)], gzipped=False, close=False))
