"""Take, lease and end samples in Redis."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from app.core.batches.leases import Lease
from app.core.replay.sampling import ChunkCounts, ChunkDraw, ChunkIndex, SamplingSettings, importance, probabilities
from app.store.batches.store import SHORTEST_HISTORY_MS
from app.store.batches.view import BatchEnd, parse_end
from app.store.redis.client import RedisClient
from app.store.redis.keys import RunKeys
from app.store.redis.pipeline import Argument
from app.store.redis.scripts import positional
from app.store.replay.entries import parse_sampling
from app.store.replay.view import ReplayView
from app.store.runs.view import lease_text, parse_lease


@dataclass(frozen=True, slots=True)
class Drawn:
    """A chunk of a sample: its key, its uses and weight when it was taken, and the draw that named it."""

    key: str
    uses: int
    weight: int
    draw: ChunkDraw


@dataclass(frozen=True, slots=True)
class DrawnOn:
    """What a sample was drawn on."""

    sampling: SamplingSettings
    counts: ChunkCounts


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a sample was given, in order, and what it was drawn on."""

    chunks: tuple[Drawn, ...]
    drawn_on: DrawnOn

    def chances(self) -> tuple[list[float], list[float]]:
        """Return the chunks' probabilities and importance weights."""
        sampling, weights = self.drawn_on.sampling, [drawn.weight for drawn in self.chunks]
        chances = probabilities([drawn.draw for drawn in self.chunks], weights, self.drawn_on.counts, sampling)
        return chances, importance(chances, sampling.beta)


@dataclass(frozen=True, slots=True)
class Missed:
    """Why a sample was not taken.

    Attributes:
        why: ``outdated``, ``repeated`` (the request holds a sample), ``blocked`` (by the rate limiter), or ``short`` of
            chunks.
        found: Of one that was short: the draws that gave a chunk.
    """

    why: str
    found: tuple[ChunkDraw, ...] = ()


@dataclass(frozen=True, slots=True)
class Limits:
    """What may be sampled: versions from one on, chunks inserted from a run clock on, samples in all (None: any)."""

    oldest_version: int
    oldest_ms: int
    most_samples: int | None


class SampleStore:
    """Moves chunks between the buffer and trainers' hands."""

    def __init__(self, connection: RedisClient) -> None:
        self._connection = connection

    async def take(
        self,
        run: str,
        lease: Lease,
        wanted: int,
        view: ReplayView,
        drawn_on: DrawnOn,
        draws: Sequence[ChunkDraw],
        counter: int,
        limits: Limits,
    ) -> Manifest | Missed:
        """Give the first ``wanted`` chunks that draws name to a new sample, and reserve a use of each. Safe to repeat.

        Returns:
            What it was given; or, with nothing changed, why not: look and draw again, or draw more.
        """
        policy = view.policy
        arguments: list[Argument] = [lease.batch_id, lease_text(lease), view.revision, view.standing.version]
        arguments += [view.total("draws"), counter, wanted, _or_nothing(policy.max_reuse)]
        arguments += [limits.oldest_version, limits.oldest_ms, view.standing.session, _or_nothing(limits.most_samples)]
        facts = {"sampling": asdict(drawn_on.sampling), "counts": asdict(drawn_on.counts)}
        arguments += [json.dumps(facts, separators=(",", ":")), lease.request_id]
        arguments += [" ".join(map(str, draw)) for draw in draws]
        word, *rest = await self._connection.run(positional("take_sample", RunKeys(run).replay_keys(), arguments))
        match word:
            case b"taken":
                return _parse(rest[0].decode())
            case b"short":
                return Missed("short", tuple(_draw(text.decode()) for text in rest[0]))
        return Missed(word.decode())

    async def named(self, run: str, draws: Sequence[ChunkDraw]) -> list[str | None]:
        """Look up the keys of the chunks that draws name now, taking none; None where there is none of that place."""
        part = RunKeys(run).replay_part
        spans = list(dict.fromkeys((draw.ranked_by, draw.low) for draw in draws))
        counted = await self._connection.pipeline([("ZCOUNT", part(o.value), "-inf", f"({low}") for o, low in spans])
        below = dict(zip(spans, counted, strict=True))
        places = [below[draw.ranked_by, draw.low] + draw.rank for draw in draws]
        found = await self._connection.pipeline(
            [
                ("ZRANGE", part(draw.ranked_by.value), place, place, "WITHSCORES")
                for draw, place in zip(draws, places, strict=True)
            ]
        )
        return [
            reply[0][0].decode() if reply and reply[0][1] <= draw.high else None
            for draw, reply in zip(draws, found, strict=True)
        ]

    async def leases(self, run: str) -> list[Lease]:
        """Read the leases of all samples in trainers' hands, in the order of their deadlines."""
        found = await self._connection.call("HGETALL", RunKeys(run).replay_part("sample_states"))
        leases = [parse_lease(sample_id.decode(), text.decode()) for sample_id, text in found.items()]
        return sorted(leases, key=lambda lease: (lease.deadline_ms, lease.batch_id))

    async def lease(self, run: str, sample_id: str) -> Lease | None:
        """Read a sample's lease; None if it is not leased."""
        found = await self._connection.call("HGET", RunKeys(run).replay_part("sample_states"), sample_id)
        return None if found is None else parse_lease(sample_id, found.decode())

    async def taken_by(self, run: str, request_id: str) -> Lease | None:
        """Read the lease of the sample that a request holds; None if it holds none."""
        sample_id = await self._connection.call("HGET", RunKeys(run).replay_part("requests"), request_id)
        return None if sample_id is None else await self.lease(run, sample_id.decode())

    async def manifest(self, run: str, sample_id: str) -> Manifest | None:
        """Read the manifest of a sample; None if it is not leased."""
        found = await self._connection.call("HGET", RunKeys(run).replay_part("samples"), sample_id)
        return None if found is None else _parse(found.decode())

    async def change(self, run: str, seen: Lease, new: Lease) -> bool:
        """Change a lease from the state that was read. False if it is in a third state by now."""
        keys = RunKeys(run)
        places = [keys.run, keys.replay_part("sample_states")]
        arguments: list[Argument] = [seen.batch_id, lease_text(seen), lease_text(new), 0]
        return bool(await self._connection.run(positional("change_lease", places, arguments)))

    async def end(self, run: str, lease: Lease, outcome: str, view: ReplayView) -> bool:
        """End a sample: ``acknowledged``, ``given_back`` or ``expired``. False if it, or the buffer, changed."""
        arguments: list[Argument] = [lease.batch_id, lease_text(lease), outcome, _or_nothing(view.policy.max_reuse)]
        arguments += [lease.lease_id, max(view.memory_ms, SHORTEST_HISTORY_MS), view.revision]
        return bool(await self._connection.run(positional("end_sample", RunKeys(run).replay_keys(), arguments)))

    async def end_of(self, run: str, sample_id: str) -> BatchEnd | None:
        """Read how a sample ended; None if it did not, or that was long ago."""
        return parse_end(await self._connection.call("HGET", RunKeys(run).history, f"sample:{sample_id}"))


def _parse(text: str) -> Manifest:
    values = json.loads(text)
    chunks = tuple(Drawn(key, uses, int(weight), _draw(draw)) for key, uses, weight, draw in values["chunks"])
    counts: dict[str, Any] = values["facts"]["counts"]
    for name in ("powers", "versions"):
        counts[name] = _whole(counts[name])
    return Manifest(chunks, DrawnOn(parse_sampling(values["facts"]["sampling"]), ChunkCounts(**counts)))


def _whole(counts: Mapping[str, int]) -> dict[int, int]:
    return {int(name): count for name, count in counts.items()}


def _draw(text: str) -> ChunkDraw:
    ranked_by, *numbers = text.split()
    return ChunkDraw(ChunkIndex(ranked_by), *map(int, numbers))


def _or_nothing(value: int | None) -> Argument:
    return "" if value is None else value
