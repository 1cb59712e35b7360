"""Take, lease and end samples in Redis."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, cast

from app.core.batches.leases import Lease
from app.core.replay.sampling import ChunkCounts, ChunkDraw, ChunkTotals, draw_probabilities, importance, totals_of
from app.store.batches import scripts as batch_scripts
from app.store.batches.view import BatchEnd, parse_end
from app.store.redis.client import RedisClient
from app.store.redis.keys import ReplayKeys, RunKeys
from app.store.redis.scripts import json_text
from app.store.replay import scripts
from app.store.replay.view import ReplayView
from app.store.runs.lease_codec import lease_text, parse_lease, stored_text
from lachesis.wire.replay import Sampling
from lachesis.wire.states import ChunkSorting, SampleOutcome


@dataclass(frozen=True, slots=True)
class DrawnChunk:
    """A chunk of a sample: its key, its uses and weight when it was taken, and the draw that named it."""

    key: str
    uses: int
    weight: int
    draw: ChunkDraw


@dataclass(frozen=True, slots=True)
class DrawnOn:
    """The settings that a sample was drawn with, and the totals of the chunks that it was drawn from."""

    sampling: Sampling
    totals: ChunkTotals


@dataclass(frozen=True, slots=True)
class SampleManifest:
    """The chunks of a sample, in order, and the values it was drawn with."""

    chunks: tuple[DrawnChunk, ...]
    drawn_on: DrawnOn

    def probabilities(self) -> tuple[list[float], list[float]]:
        """Return the chunks' probabilities and importance weights."""
        sampling, weights = self.drawn_on.sampling, [drawn.weight for drawn in self.chunks]
        probabilities = draw_probabilities(
            [drawn.draw for drawn in self.chunks], weights, self.drawn_on.totals, sampling
        )
        return probabilities, importance(probabilities, sampling.beta)


@dataclass(frozen=True, slots=True)
class Missed:
    """Why a sample was not taken.

    Attributes:
        why: ``outdated``, ``repeated`` (the request holds a sample), ``blocked`` (by the rate limiter), or ``short`` of
            chunks.
        found: If chunks were missing: the draws that gave a chunk.
    """

    why: str
    found: tuple[ChunkDraw, ...] = ()


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a sample: the oldest version, the earliest insertion (run clock), samples in all (None: any)."""

    oldest_version: int
    oldest_ms: int
    most_samples: int | None


class SampleStore:
    """Leases chunks of the buffer to samples, and takes them back."""

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
    ) -> SampleManifest | Missed:
        """Give the first ``wanted`` chunks that draws name to a new sample, and reserve a use of each. Safe to repeat.

        Returns:
            The sample's manifest. Or nothing has changed, and `Missed` says why: read and draw again, or draw more.
        """
        command = scripts.take_sample(
            ReplayKeys(RunKeys(run)),
            sample_id=lease.batch_id,
            lease=lease_text(lease),
            revision=view.revision,
            policy_version=view.context.version,
            random_counter=view.total("draws"),
            new_counter=counter,
            wanted=wanted,
            max_reuse=view.settings.max_reuse,
            oldest_version=limits.oldest_version,
            oldest_ms=limits.oldest_ms,
            session=view.context.session,
            most_samples=limits.most_samples,
            drawn_on=json_text({"sampling": drawn_on.sampling.model_dump(), "totals": asdict(drawn_on.totals)}),
            request_id=lease.request_id,
            draws=draws,
        )
        word, *rest = await self._connection.run(command)
        match word:
            case b"taken":
                return _parse(rest[0].decode())
            case b"short":
                return Missed("short", tuple(draws[number - 1] for number in rest[0]))
        return Missed(word.decode())

    async def named(self, run: str, draws: Sequence[ChunkDraw]) -> list[str | None]:
        """Look up the keys of the chunks at the places of draws, without taking them; None for an empty place."""
        part = RunKeys(run).replay_part
        spans = list(dict.fromkeys((draw.ranked_by, draw.low) for draw in draws))
        counted = await self._connection.pipeline([("ZCOUNT", part(order), "-inf", f"({low}") for order, low in spans])
        below = dict(zip(spans, counted, strict=True))
        places = [below[draw.ranked_by, draw.low] + draw.rank for draw in draws]
        found = await self._connection.pipeline(
            [
                ("ZRANGE", part(draw.ranked_by), place, place, "WITHSCORES")
                for draw, place in zip(draws, places, strict=True)
            ]
        )
        return [
            reply[0][0].decode() if reply and reply[0][1] <= draw.high else None
            for draw, reply in zip(draws, found, strict=True)
        ]

    async def leases(self, run: str) -> list[Lease]:
        """Read the leases of all held samples, in the order of their deadlines."""
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

    async def answered(self, run: str, request_ids: Collection[str]) -> set[str]:
        """Return those of these requests that were given a sample which has not ended."""
        ids = list(request_ids)
        if not ids:
            return set()
        found = await self._connection.call("HMGET", RunKeys(run).replay_part("requests"), *ids)
        return {request_id for request_id, sample_id in zip(ids, found, strict=True) if sample_id is not None}

    async def manifest(self, run: str, sample_id: str) -> SampleManifest | None:
        """Read the manifest of a sample; None if it is not leased."""
        found = await self._connection.call("HGET", RunKeys(run).replay_part("samples"), sample_id)
        return None if found is None else _parse(found.decode())

    async def change(self, run: str, seen: Lease, new: Lease) -> bool:
        """Replace a lease that was read. False if it is now neither the old nor the new one."""
        keys = RunKeys(run)
        command = batch_scripts.change_lease(
            keys,
            lease_states=keys.replay_part("sample_states"),
            batch_id=seen.batch_id,
            seen=stored_text(seen),
            new=lease_text(new),
            notify=False,
            epoch=None,
        )
        return bool(await self._connection.run(command))

    async def end(self, run: str, lease: Lease, outcome: SampleOutcome, view: ReplayView) -> bool:
        """End a sample. False if the sample or the buffer changed."""
        command = scripts.end_sample(
            ReplayKeys(RunKeys(run)),
            sample_id=lease.batch_id,
            seen=stored_text(lease),
            outcome=outcome,
            max_reuse=view.settings.max_reuse,
            lease_id=lease.lease_id,
            memory_ms=view.memory_ms,
            revision=view.revision,
        )
        return bool(await self._connection.run(command))

    async def end_of(self, run: str, sample_id: str) -> BatchEnd | None:
        """Read how a sample ended; None if it has not ended, or ended long ago."""
        return parse_end(await self._connection.call("HGET", RunKeys(run).history, f"sample:{sample_id}"))


def _parse(text: str) -> SampleManifest:
    values = json.loads(text)
    chunks = tuple(DrawnChunk(key, uses, int(weight), _draw(draw)) for key, uses, weight, draw in values["chunks"])
    return SampleManifest(chunks, _drawn_on(values["facts"]))


def _drawn_on(facts: Mapping[str, Any]) -> DrawnOn:
    sampling = Sampling.model_validate(facts["sampling"])
    if "totals" in facts:
        return DrawnOn(sampling, ChunkTotals(**facts["totals"]))
    counts = facts["counts"]  # earlier builds stored the counts
    versions = {int(version): chunks for version, chunks in counts["versions"].items()}
    seen = ChunkCounts(counts["chunks"], counts["weight"], versions=versions, version=counts["version"])
    return DrawnOn(sampling, totals_of(seen, sampling.strategy))


def _draw(text: str) -> ChunkDraw:
    ranked_by, *numbers = text.split()
    return ChunkDraw(cast(ChunkSorting, ranked_by), *map(int, numbers))
