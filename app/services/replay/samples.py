"""Take, show, acknowledge, give back and extend samples of the replay buffer."""

import asyncio
import logging
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from weakref import WeakValueDictionary

from app.core.batches.leases import (
    Lease,
    deadlines_ahead,
    extended_deadline_ms,
    is_expired,
    lease_deadline_ms,
    retry_deadline_ms,
)
from app.core.replay.checks import chunks_wanted
from app.core.replay.rate_limiter import LimiterBlock, demand_to_note, samples_in_order
from app.services.leases import LeaseKind, LeaseReading
from app.services.long_poll import AttemptLock, LongPoll, WaitPolicy
from app.services.replay.request import ReplaySample, ReplaySampleRequest, SampledFragment, sampling_of
from app.services.replay.sampling import ChunkSampling
from app.store.redis.compare_and_swap import Attempts
from app.store.redis.notifications import Listen
from app.store.replay.samples import SampleManifest, SampleStore
from app.store.replay.store import ReplayStore
from app.store.replay.view import ReplayView
from lachesis.wire.errors import InvalidField, SampleNotFound
from lachesis.wire.states import LeaseOutcome

log = logging.getLogger("lachesis.replay")


class SampleLeaseKind(LeaseKind[ReplayView]):
    """Samples that trainers hold under leases."""

    noun = "sample"

    def __init__(self, replay: ReplayStore, samples: SampleStore) -> None:
        self._replay = replay
        self._samples = samples

    async def read(self, run: str, leased_id: str) -> LeaseReading[ReplayView]:
        """Read the lease of a sample, or how it ended."""
        view = await self._replay.existing(run)
        lease = await self.lease_of(run, leased_id)
        end = await self._samples.end_of(run, leased_id) if lease is None else None
        return LeaseReading(view, view.context.clock_ms, view.lease_s, lease, end)

    async def lease_of(self, run: str, sample_id: str) -> Lease | None:
        """Return the lease of a sample that a trainer holds; None for a reservation of a batch."""
        lease = await self._samples.lease(run, sample_id)
        return None if lease is None or lease.is_reservation else lease

    async def change(self, run: str, before: Lease, after: Lease) -> bool:
        """Replace a lease; False if it has changed since it was read."""
        return await self._samples.change(run, before, after)

    def not_found(self, run: str, leased_id: str) -> SampleNotFound:
        """Return the error for an id that the run does not know."""
        return SampleNotFound(f"run {run} knows no sample {leased_id}")


_Outcome = ReplaySample | LimiterBlock


class ReplaySamples:
    """Hands out samples, and ends them.

    Attributes:
        queue: The requests that wait for a sample.
    """

    def __init__(
        self,
        replay: ReplayStore,
        samples: SampleStore,
        chunk_sampling: ChunkSampling,
        listen: Listen,
        worker: str,
    ) -> None:
        self._replay = replay
        self._samples = samples
        self._leased = SampleLeaseKind(replay, samples)
        self._chunk_sampling = chunk_sampling
        policy = WaitPolicy[ReplaySampleRequest, _Outcome](
            attempt=self._attempt,
            overtaking=self._overtaking,
            found=_is_sample,
            release=self._release,
            own_errors=(InvalidField, SampleNotFound),
        )
        self.queue = LongPoll(policy, listen)
        self._worker = worker
        self._attempt_locks: WeakValueDictionary[str, AttemptLock] = WeakValueDictionary()

    async def take(
        self, run: str, request: ReplaySampleRequest, wait_s: float = 0.0, stop: "asyncio.Future[None] | None" = None
    ) -> ReplaySample | LimiterBlock:
        """Take a sample; wait for it up to ``wait_s`` seconds. Do not cancel this call, end ``stop`` instead.

        Returns:
            A sample, or what blocks it.

        Raises:
            ReplayNotFound: The run has no replay buffer.
            InvalidField: The request is not for whole chunks, or for more than the buffer can ever hold.
        """
        return await self.queue.take(run, request, wait_s, stop)

    async def _attempt(
        self,
        run: str,
        request: ReplaySampleRequest,
        ahead: Sequence[ReplaySampleRequest],
        *,
        compete: bool,  # noqa: ARG002 - processes take no turns in samples
    ) -> _Outcome:
        # Concurrent samples of one process would make each other retry.
        async with self._attempt_locks.setdefault(run, AttemptLock()).attempt():
            return await self._take(run, request, ahead)

    async def _overtaking(self, run: str, requests: Sequence[ReplaySampleRequest]) -> list[int]:
        """Return the requests that need less than those before them, or already hold a sample."""
        view = await self._replay.existing(run)
        held = await self._samples.answered(run, {request.request_id for request in requests if request.request_id})
        blocks = _blocks(view, requests)
        return [
            position
            for position, (request, blocked) in enumerate(zip(requests, blocks, strict=True))
            if blocked is None or request.request_id in held
        ]

    async def _release(self, run: str, found: _Outcome) -> None:
        """Give back a sample whose request has gone away. One that it held before stays until its deadline."""
        if isinstance(found, ReplaySample) and not found.repeated:
            await self._samples.end(run, found.lease, "given_back", await self._replay.existing(run))

    async def _take(
        self, run: str, request: ReplaySampleRequest, ahead: Sequence[ReplaySampleRequest]
    ) -> ReplaySample | LimiterBlock:
        attempts = Attempts("take a sample", run)
        while attempts.again():
            view = await self._replay.existing(run)
            held = await self._held_by(run, request)
            if held is not None:
                again = await self._again(run, request, held, view)
                if again is not None:
                    return again
                continue
            wanted = chunks_wanted(request.num_fragments, request.num_chunks, view.settings)
            sampling = sampling_of(request, view.settings.sampling)
            lease = self._lease(request, view)
            found: SampleManifest | LimiterBlock | None = _blocks(view, [*ahead, request])[-1]
            if found is None:
                found = await self._chunk_sampling.take(run, view, lease, wanted, sampling)
            if isinstance(found, SampleManifest):
                return await self._sample(run, lease, found, view)
            # Another process may have answered the same request in the meantime, perhaps with the last chunks.
            if isinstance(found, LimiterBlock) and await self._held_by(run, request) is None:
                await self._note_demand(run, wanted, view)
                return found

    async def _note_demand(self, run: str, wanted: int, view: ReplayView) -> None:
        """Allow the inserts that a sample needs, whether its trainer waits here or polls."""
        demand = None if view.settings.limiter is None else demand_to_note(wanted, view.demand, view.context.clock_ms)
        if demand is not None:
            await self._replay.note_demand(run, *demand)

    async def _held_by(self, run: str, request: ReplaySampleRequest) -> Lease | None:
        """Return the lease of the sample that this request already took."""
        return await self._samples.taken_by(run, request.request_id) if request.request_id else None

    async def _again(
        self, run: str, request: ReplaySampleRequest, held: Lease, view: ReplayView
    ) -> ReplaySample | None:
        """Extend and return the sample of a request; None if it has ended, or its lease changed in the meantime."""
        if is_expired(held, view.context.clock_ms):
            await self._samples.end(run, held, "expired", view)
            return None
        deadline_ms = extended_deadline_ms(held, view.context.clock_ms, request.lease_s, view.lease_s)
        extended = replace(held, deadline_ms=deadline_ms)
        manifest = await self._samples.manifest(run, held.batch_id)
        if manifest is None or not await self._samples.change(run, held, extended):
            return None
        return replace(await self._sample(run, extended, manifest, view), repeated=True)

    def _lease(self, request: ReplaySampleRequest, view: ReplayView) -> Lease:
        return Lease(
            batch_id=uuid.uuid4().hex,
            state="held",
            worker=self._worker,
            delivery_count=1,
            step=0,
            relaxed=False,
            lease_id=uuid.uuid4().hex,
            deadline_ms=lease_deadline_ms(view.context.clock_ms, request.lease_s, view.lease_s),
            request_id=request.request_id,
            trainer=request.trainer,
        )

    async def show(self, run: str, sample_id: str) -> ReplaySample:
        """Return a held sample again, with the same records in the same order.

        Raises:
            ReplayNotFound: The run has no replay buffer.
            SampleNotFound: No sample with that id is held.
        """
        view = await self._replay.existing(run)
        lease, manifest = await self._leased.lease_of(run, sample_id), await self._samples.manifest(run, sample_id)
        if lease is None or manifest is None:
            raise SampleNotFound(f"run {run} has no sample {sample_id} that is held")
        return await self._sample(run, lease, manifest, view)

    async def _sample(self, run: str, lease: Lease, manifest: SampleManifest, view: ReplayView) -> ReplaySample:
        """Return the contents of a sample, which stay in the store while it is held."""
        contents = await self._replay.contents(run, [drawn.key for drawn in manifest.chunks])
        ids = [fragment_id for content in contents if content is not None for fragment_id in content.fragment_ids]
        found = await self._replay.fragments(run, ids)
        if None in contents or None in found:
            raise SampleNotFound(f"sample {lease.batch_id} of run {run} ended during the request")
        fragments = {fragment.fragment_id: fragment for fragment in found if fragment is not None}
        probabilities, weights = manifest.probabilities()
        current = manifest.drawn_on.totals.version
        records = [
            SampledFragment(
                fragment=fragments[fragment_id],
                chunk_id=int(drawn.key),
                version=content.version,
                staleness=max(0, current - content.version),
                uses=drawn.uses,
                probability=probability,
                importance=weight,
            )
            for content, drawn, probability, weight in zip(
                contents, manifest.chunks, probabilities, weights, strict=True
            )
            if content is not None
            for fragment_id in content.fragment_ids
        ]
        return ReplaySample(lease, view.context.clock_ms, manifest.drawn_on.sampling, current, tuple(records))

    async def acknowledge(self, run: str, sample_id: str, lease_id: str) -> None:
        """End a sample that was trained on: its uses count. Safe to repeat.

        Raises:
            ReplayNotFound: The run has no replay buffer.
            SampleNotFound: The run does not know the sample, or it ended long ago.
            LeaseLost: The sample is no longer held under that lease. Nothing was changed.
        """
        await self._end(run, sample_id, lease_id, "acknowledged")

    async def give_back(self, run: str, sample_id: str, lease_id: str, reason: str | None) -> None:
        """End a sample that was not trained on: its uses do not count. Safe to repeat.

        Raises:
            ReplayNotFound, SampleNotFound, LeaseLost: As for `acknowledge`.
        """
        if await self._end(run, sample_id, lease_id, "given_back"):
            log.info("sample %s of run %s was given back: %r", sample_id, run, reason)

    async def extend(self, run: str, sample_id: str, lease_id: str, lease_s: float | None) -> float:
        """Extend a sample to ``lease_s`` seconds from now, or by the run's default; return the seconds.

        Raises:
            ReplayNotFound, SampleNotFound, LeaseLost: As for `acknowledge`.
        """
        return await self._leased.extend(run, sample_id, lease_id, lease_s)

    async def let_expire(self, run: str, lease: Lease) -> None:
        """Record that the first reply with a sample broke off, and shorten the lease. Until then it may be repeated.

        Raises:
            ReplayNotFound: The run has no replay buffer.
        """
        soon_ms = retry_deadline_ms((await self._replay.existing(run)).context.clock_ms)
        if soon_ms < lease.deadline_ms:
            await self._samples.change(run, lease, replace(lease, deadline_ms=soon_ms))

    async def end_expired(self, run: str, view: ReplayView) -> int:
        """End the samples whose leases have run out, and give back their uses; return how many."""
        ended = 0
        for lease in await self._samples.leases(run):
            if not lease.is_reservation and is_expired(lease, view.context.clock_ms):
                ended += await self._samples.end(run, lease, "expired", view)
        return ended

    async def deadlines_ahead(self, run: str, clock_ms: int) -> list[int]:
        """Return the deadlines of samples and reservations that are later than run clock ``clock_ms``."""
        return deadlines_ahead(await self._samples.leases(run), clock_ms)

    async def _end(self, run: str, sample_id: str, lease_id: str, outcome: LeaseOutcome) -> bool:
        """End a sample; False if it had already ended with this outcome."""

        async def finish(lease: Lease, view: ReplayView) -> bool:
            return await self._samples.end(run, lease, outcome, view)

        return await self._leased.end(run, sample_id, lease_id, outcome, finish)


def _blocks(view: ReplayView, requests: Sequence[ReplaySampleRequest]) -> list[LimiterBlock | None]:
    """Return what blocks each request after those before it. None means not blocked, or invalid: its attempt raises."""
    settings, counts = view.settings, dict[int, int]()
    for position, request in enumerate(requests):
        with suppress(InvalidField):
            counts[position] = chunks_wanted(request.num_fragments, request.num_chunks, settings)
    blocks = samples_in_order(list(counts.values()), view.position, settings.limiter, settings.min_size_to_sample)
    found = dict(zip(counts, blocks, strict=True))
    return [found.get(position) for position in range(len(requests))]


def _is_sample(outcome: _Outcome) -> bool:
    return isinstance(outcome, ReplaySample)
