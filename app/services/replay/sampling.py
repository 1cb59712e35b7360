"""Draw a sample from the buffer, and draw again if the buffer changed in the meantime."""

from typing import assert_never

from app.core.batches.leases import Lease
from app.core.groups.staleness import oldest_fresh
from app.core.replay.rate_limiter import LimiterBlock, may_sample, samples_open
from app.core.replay.sampling import MAX_WEIGHT, ChunkCounts, ChunkDraw, draw, totals_of
from app.services.replay.cleanup import ReplayCleanup
from app.services.threads import MANY_PLACES, in_thread_if
from app.store.replay.samples import DrawnOn, Limits, Missed, SampleManifest, SampleStore
from app.store.replay.store import ReplayStore
from app.store.replay.view import ReplayView, no_buffer
from lachesis.wire.replay import Sampling

_ATTEMPTS = 8
_POWERS = range(MAX_WEIGHT.bit_length())


class ChunkSampling:
    """Takes the chunks that a strategy draws."""

    def __init__(self, replay: ReplayStore, samples: SampleStore, cleanup: ReplayCleanup) -> None:
        self._replay = replay
        self._samples = samples
        self._cleanup = cleanup

    async def take(
        self, run: str, view: ReplayView, lease: Lease, wanted: int, sampling: Sampling
    ) -> SampleManifest | LimiterBlock | None:
        """Take this many chunks into a new sample, or return why not.

        Args:
            run: The run's name.
            view: The buffer as it was just now. It is read again only if it has changed.
            lease: The lease of the sample.
            wanted: Number of chunks.
            sampling: How to draw them.

        Returns:
            The chunks; or what blocks the sample; or None if the request already holds a sample.

        Raises:
            ReplayNotFound: The run has no replay buffer any more.
        """
        seen: ReplayView | None = view
        for _ in range(_ATTEMPTS):
            if seen is None:
                raise no_buffer(run)
            settings = seen.settings
            blocked = may_sample(wanted, seen.position, settings.limiter, settings.min_size_to_sample)
            if blocked is not None:
                return blocked
            found = await self._draw(run, seen, lease, wanted, sampling)
            if isinstance(found, SampleManifest):
                return found
            if found.why == "repeated":
                return None
            if found.why == "short":  # ineligible chunks have not been swept yet
                await self._cleanup.sweep(run)
            seen = await self._replay.view(run)
        return LimiterBlock("chunks", 1, f"the buffer changed during each attempt to draw {wanted} chunks")

    async def _draw(
        self, run: str, view: ReplayView, lease: Lease, wanted: int, sampling: Sampling
    ) -> SampleManifest | Missed:
        counts = await self.counts(run, view, sampling)
        if not counts.chunks:
            return Missed("short")
        drawn_on, seed = DrawnOn(sampling, totals_of(counts, sampling.strategy)), view.settings.seed
        counter, taken = view.total("draws"), tuple[ChunkDraw, ...]()
        while True:
            draws, counter = await in_thread_if(
                counts.chunks > MANY_PLACES, draw, counts, sampling, wanted, seed, counter, taken
            )
            found = await self._samples.take(run, lease, wanted, view, drawn_on, draws, counter, sampling_limits(view))
            more = isinstance(found, Missed) and len(found.found) > len(taken)
            if isinstance(found, SampleManifest) or sampling.strategy != "proportional" or not more:
                return found
            taken = found.found

    async def counts(self, run: str, view: ReplayView, sampling: Sampling) -> ChunkCounts:
        """Count the chunks of the buffer as the strategy needs."""
        version = view.context.version
        match sampling.strategy:
            case "proportional":
                ranges = [(2**power, 2 ** (power + 1) - 1) for power in _POWERS]
                found = await self._replay.counted(run, "weights", ranges)
                powers = {power: count for power, count in zip(_POWERS, found, strict=True) if count}
                return ChunkCounts(sum(powers.values()), view.weight, powers, {}, version)
            case "staleness":
                versions = {each: n for each, n in (await self._replay.versions(run)).items() if each <= version}
                return ChunkCounts(sum(versions.values()), versions=versions, version=version)
            case "uniform" | "fifo" | "lifo" | "rank" | "recency":
                return ChunkCounts(view.size, version=version)
            case never:
                assert_never(never)


def sampling_limits(view: ReplayView) -> Limits:
    """Return the limits of what may be sampled now. They also exclude ineligible chunks that are not swept yet."""
    settings, context = view.settings, view.context
    oldest_ms = 0 if settings.max_age_s is None else context.clock_ms - round(1000 * settings.max_age_s)
    most = None
    if settings.limiter is not None:
        most = view.position.samples + samples_open(view.position, settings.limiter, settings.min_size_to_sample)
    return Limits(oldest_fresh(context.version, settings.max_staleness), oldest_ms, most)
