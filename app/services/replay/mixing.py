"""Mix groups from the replay buffer into batches: choose them, and reserve their uses."""

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Any, NamedTuple

from app.core.batches.heads import with_unread
from app.core.batches.leases import Lease, LeasedGroup, Replayed
from app.core.batches.planning import Decision
from app.core.environments.scarcity import scarce_after
from app.core.model import Lane, LaneId, heads_in
from app.core.replay.buffer import chunk_drop_reason, uses_open
from app.core.replay.mixing import fresh_needed, mix
from app.core.replay.rate_limiter import samples_open
from app.core.replay.sampling import (
    ChunkCounts,
    ChunkDraw,
    ChunkTotals,
    draw,
    draw_probabilities,
    importance,
    order_by_weight,
    totals_of,
)
from app.core.runs.view import QueueView
from app.services.replay.reservations import RESERVED_MS
from app.services.replay.sampling import ChunkSampling, sampling_limits
from app.services.threads import MANY_GROUPS, MANY_PLACES, in_thread_if
from app.store.groups.store import GroupStore
from app.store.replay.entries import FragmentRecord, StoredChunk, chunk_key
from app.store.replay.samples import DrawnOn, SampleManifest, SampleStore
from app.store.replay.store import ReplayStore
from app.store.replay.view import ReplayView
from lachesis.wire.replay import Sampling
from lachesis.wire.states import SAMPLEABLE, DropReason

_CANDIDATES_PER_NEEDED = 4
_SPARE_CANDIDATES = 16
_MOST_CANDIDATES = 4096
_MANY = 256
_ATTEMPTS = 16
_NOT_DRAWN = Sampling(strategy="fifo")  # a reservation names its chunks: each has the probability 1, as in fifo


class _DrawnChunk(NamedTuple):
    """A chunk, and the first draw that named it."""

    stored: StoredChunk
    draw: ChunkDraw


@dataclass(frozen=True, slots=True)
class ReplayCandidate:
    """A group of the buffer: its chunk, its fragment, its facts, and the draw that chose it."""

    stored: StoredChunk
    fragment: FragmentRecord
    facts: Mapping[str, Any]
    draw: ChunkDraw

    @property
    def lane(self) -> LaneId:
        """Return its environment and size."""
        return self.facts.get("environment"), int(self.facts["sequences"])


@dataclass(frozen=True, slots=True)
class Mixture:
    """The groups that a batch takes from the buffer.

    Attributes:
        groups: The groups, in order.
        counter: The random counter after they are taken.
        revision: The revision of the buffer that they were chosen from.
    """

    groups: tuple[LeasedGroup, ...]
    counter: int
    revision: str


class ReplayMixing:
    """Chooses groups from the buffer, and reserves their uses."""

    def __init__(
        self, groups: GroupStore, replay: ReplayStore, samples: SampleStore, chunk_sampling: ChunkSampling
    ) -> None:
        self._groups = groups
        self._replay = replay
        self._samples = samples
        self._chunk_sampling = chunk_sampling

    async def decide(self, run: str, view: QueueView, lanes: Sequence[Lane]) -> tuple[Decision, Mixture] | None:
        """Choose a batch of fresh and replayed groups by `app.core.replay.mixing`; None for fresh groups only.

        Args:
            run: The run's name.
            view: The run; ``view.config`` must be set.
            lanes: Its lanes with their heads.
        """
        batch_size, fraction = view.batch_size, view.policy.fresh_fraction
        room = batch_size - fresh_needed(batch_size, fraction)
        if room < 1:
            return None
        buffer = await self._replay.view(run)
        if buffer is None:
            return None
        sampling = buffer.settings.sampling
        counts = await self._chunk_sampling.counts(run, buffer, sampling)
        candidates, counter = await self._candidates(run, buffer, counts, _wanted(view, room))
        drawn = [one.lane for one in candidates]
        every = with_unread(view.lanes, lanes)
        live = view.live
        limited_shares = {key: own for key, own in live.shares.items() if key in live.limited}
        is_large = len(candidates) + len(every) >= _MANY or heads_in(every) >= MANY_GROUPS
        mixed = await in_thread_if(is_large, mix, batch_size, fraction, every, drawn, limited_shares, view.debts)
        if mixed is None:
            return None
        chosen = [candidates[position] for position in mixed.replayed]
        mixture = Mixture(_leased(chosen, counts, sampling), counter, buffer.revision)
        scarce = scarce_after(view.scarce, view.bounds, mixed.got)
        replayed = tuple(group.group_id for group in mixture.groups)
        return Decision(mixed.fresh, debts=mixed.debts, scarce=scarce, replayed=replayed), mixture

    async def reserve(self, run: str, batch: Lease, mixture: Mixture) -> bool:
        """Reserve a use of each group for a batch that is about to be committed.

        The reservation is a sample under the batch's id. `app.services.replay.reservations` ends it with the batch.

        Returns:
            False if a group is no longer available, the settings of the buffer changed, or the buffer changed during
            each attempt: plan again. A buffer that was made again has other groups under the same numbers.
        """
        chunks = [group.replayed.chunk for group in mixture.groups if group.replayed is not None]
        draws = [ChunkDraw("order", chunk, chunk, 0) for chunk in chunks]
        for _ in range(_ATTEMPTS):
            view = await self._replay.view(run)
            if view is None or view.revision != mixture.revision:
                return False
            lease = replace(
                batch,
                state="held",
                lease_id=uuid.uuid4().hex,  # belongs to no trainer: it ends with the batch
                deadline_ms=view.context.clock_ms + RESERVED_MS,
                request_id="",
                contents=batch.replayed,
                sharding=None,
            )
            drawn_on = DrawnOn(_NOT_DRAWN, ChunkTotals(view.size, version=view.context.version))
            counter = max(mixture.counter, view.total("draws"))
            found = await self._samples.take(
                run, lease, len(chunks), view, drawn_on, draws, counter, sampling_limits(view)
            )
            if isinstance(found, SampleManifest) or found.why != "outdated":
                return isinstance(found, SampleManifest)
        return False

    async def retire_damaged(self, run: str, reasons: Mapping[LeasedGroup, DropReason]) -> None:
        """Retire the chunks of groups whose payloads cannot be read."""
        for group, reason in reasons.items():
            if group.replayed is not None:
                await self._replay.retire(run, reason, [chunk_key(group.replayed.chunk)])

    async def _candidates(
        self, run: str, view: ReplayView, counts: ChunkCounts, wanted: int
    ) -> tuple[list[ReplayCandidate], int]:
        """Draw groups that may be replayed now, without repetition, within the rate limiter's allowance."""
        settings, counter = view.settings, view.total("draws")
        credit = samples_open(view.position, settings.limiter, settings.min_size_to_sample)
        if not counts.chunks or not credit:
            return [], counter
        drawn, counter = await self._drawn(run, view, counts, min(wanted, counts.chunks))
        fit = [one for one in drawn if _may_be_replayed(one.stored, view)]
        fragments = await self._replay.fragments(run, [one.stored.fragment_ids[0] for one in fit])
        candidates = [
            ReplayCandidate(one.stored, fragment, facts, one.draw)
            for one, fragment in zip(fit, fragments, strict=True)
            if fragment is not None and "sequences" in (facts := json.loads(fragment.facts))
        ]
        # A group that was rewound and given back waits in the queue again. It must not be in one batch twice.
        waiting = await self._groups.queued(run, [(one.lane, one.fragment.fragment_id) for one in candidates])
        return [one for one, waits in zip(candidates, waiting, strict=True) if not waits][:credit], counter

    async def _drawn(
        self, run: str, view: ReplayView, counts: ChunkCounts, wanted: int
    ) -> tuple[list[_DrawnChunk], int]:
        """Draw at least this many different chunks if they are there, and return them in the order of their draws.

        If few chunks outweigh all others, one list of draws names hardly any others. Then draw more lists.
        """
        sampling, seed, counter = view.settings.sampling, view.settings.seed, view.total("draws")
        found: dict[str, _DrawnChunk] = {}
        while True:
            taken, first = [one.draw for one in found.values()], counter
            draws, counter = await in_thread_if(
                counts.chunks > MANY_PLACES, draw, counts, sampling, wanted, seed, first, taken
            )
            for key, one in (await self._accepted(run, draws)).items():
                found.setdefault(key, one)
            if sampling.strategy != "proportional" or len(found) >= wanted or len(found) == len(taken):
                break
        drawn = list(found.values())
        if sampling.strategy == "proportional" and wanted == counts.chunks:
            order = order_by_weight([one.stored.weight for one in drawn], seed, first)
            drawn = [drawn[position] for position in order]
        return drawn, counter

    async def _accepted(self, run: str, draws: Sequence[ChunkDraw]) -> dict[str, _DrawnChunk]:
        """Return the chunks that draws name and accept, by key."""
        named = await self._samples.named(run, draws)
        keys = list(dict.fromkeys(key for key in named if key is not None))
        entries = dict(zip(keys, await self._replay.entries(run, keys), strict=True))
        accepted: dict[str, _DrawnChunk] = {}
        for key, drawn in zip(named, draws, strict=True):
            stored = None if key is None else entries[key]
            if key is not None and stored is not None and drawn.accept < stored.weight:
                accepted.setdefault(key, _DrawnChunk(stored, drawn))
        return accepted


def _wanted(view: QueueView, room: int) -> int:
    """Return how many candidates to draw to replay ``room`` sequences."""
    sizes = [size for _, size in view.lanes] + [one.group_size for one in view.environments.values()]
    needed = ceil(room / max(1, min(sizes, default=1)))
    return min(_MOST_CANDIDATES, _CANDIDATES_PER_NEEDED * needed + _SPARE_CANDIDATES)


def _may_be_replayed(entry: StoredChunk, view: ReplayView) -> bool:
    fit = entry.place == SAMPLEABLE and chunk_drop_reason(entry.chunk, view.context, view.settings) is None
    return fit and uses_open(entry.chunk, view.settings) != 0


def _leased(chosen: Sequence[ReplayCandidate], counts: ChunkCounts, sampling: Sampling) -> tuple[LeasedGroup, ...]:
    """Return the groups as a batch has them."""
    weights = [one.stored.weight for one in chosen]
    totals = totals_of(counts, sampling.strategy)
    probabilities = draw_probabilities([one.draw for one in chosen], weights, totals, sampling)
    return tuple(
        LeasedGroup(
            group_id=one.fragment.fragment_id,
            arrival=0,
            environment=one.lane[0],
            size=one.lane[1],
            payload_bytes=one.fragment.payload_bytes,
            checksum=one.fragment.checksum,
            accepted_ms=one.stored.chunk.inserted_ms,
            policy_version=one.stored.chunk.versions.lowest,
            given_id=one.facts.get("group"),
            filtered_by=one.facts.get("filtered_by"),
            loss_weight=one.facts.get("loss_weight", 1.0),
            replayed=Replayed(one.stored.chunk.chunk_id, one.stored.chunk.uses, probability, weight),
        )
        for one, probability, weight in zip(
            chosen, probabilities, importance(probabilities, sampling.beta), strict=True
        )
    )
