"""Read a replay buffer without its contents in one round trip, as one frozen value."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from app.core.replay.buffer import Occupancy, ReplayContext
from app.core.replay.rate_limiter import LimiterState
from app.store.redis.keys import ReplayPart, RunKeys
from app.store.redis.pipeline import Command
from app.store.replay.entries import parse_replay_settings
from app.store.runs.clock import CLOCK_COMMANDS, CLOCK_FIELDS, Now
from app.store.runs.view import parse_policy
from lachesis.wire.errors import ReplayNotFound
from lachesis.wire.replay import Eviction, ReplaySettings

STALENESS_BOUNDS = ("0", "1", "2", "4", "8", "16", "32", "64", "128", "256", "more")
"""The upper bounds, in versions, of the buckets in which `lua/replay/count_staleness.lua` counts sampled chunks."""

_EVICTED_FROM: dict[Eviction, tuple[ReplayPart, ReplayPart]] = {
    "oldest": ("order", "reserved_order"),
    "most_used": ("uses", "reserved_uses"),
    "lowest_priority": ("weights", "reserved_weights"),
}

NO_TOTALS = {"config", "revision", "session", "offset", "demand", "unsettled", "restored"}
"""Fields of the buffer's hash that are not totals."""


def no_buffer(run: str) -> ReplayNotFound:
    """Return the error for a run without a replay buffer."""
    return ReplayNotFound(f"run {run} has no replay buffer")


@dataclass(frozen=True, slots=True)
class ReplayView:
    """A buffer without its contents. Every use case starts from one such read.

    Attributes:
        settings: Its settings.
        revision: Changes whenever the settings or the session do.
        context: The values that decide about chunks now.
        size: Sampleable chunks.
        totals: Its totals, by name.
        demand: Chunks in the largest sample that recently had to wait, and until when that counts, run clock.
        lease_s: How long the run leases what it hands out, seconds.
        memory_ms: How long the run remembers workers, and how samples ended, milliseconds of run clock.
        unsettled: The revision whose settings not all chunks have been checked against yet, or None.
        offset: Added to the error of the rate limiter (`LimiterState`).
    """

    settings: ReplaySettings
    revision: str
    context: ReplayContext
    size: int
    totals: Mapping[str, int]
    demand: tuple[int, int]
    lease_s: float
    memory_ms: int
    unsettled: str | None
    offset: float

    @property
    def position(self) -> LimiterState:
        """The state of the rate limiter."""
        demand, until_ms = self.demand
        demand = demand if self.context.clock_ms < until_ms else 0
        return LimiterState(self.total("inserts"), self.total("samples"), self.size, self.offset, demand)

    @property
    def held(self) -> Occupancy:
        """The contents of the buffer, in numbers."""
        return Occupancy(self.total("chunks"), self.total("chunk_bytes"))

    def named(self, prefix: str) -> dict[str, int]:
        """Return the totals whose names begin with ``prefix``, by the rest of their names."""
        named = sorted((name, total) for name, total in self.totals.items() if name.startswith(prefix))
        return {name.removeprefix(prefix): total for name, total in named if total}

    def staleness_buckets(self) -> list[tuple[str, int]]:
        """Return the number of sampled chunks by upper bound of their staleness, in versions."""
        counts = accumulate(self.total(f"staleness:{bound}") for bound in STALENESS_BOUNDS)
        return list(zip((*STALENESS_BOUNDS[:-1], "+Inf"), counts, strict=True))

    @property
    def weight(self) -> int:
        """The sum of the sampleable chunks' weights, which is counted in two parts."""
        return self.total("weight") + (self.total("weight_high") << 32)

    def total(self, name: str) -> int:
        """Return a total by its name; 0 before anything was counted."""
        return self.totals.get(name, 0)


@dataclass(frozen=True, slots=True)
class ReplaySummary:
    """A buffer with the numbers of its contents.

    Attributes:
        view: The buffer.
        reserved: Chunks whose uses are all reserved.
        archived: Chunks of former sessions, kept for inspection.
        retired_in_use: Retired chunks that samples still hold.
        samples: Samples that trainers hold, and batches with replayed groups.
    """

    view: ReplayView
    reserved: int
    archived: int
    retired_in_use: int
    samples: int


def view_commands(keys: RunKeys) -> list[Command]:
    """Return the commands whose replies `read_view` reads."""
    run: Command = ("HMGET", keys.run, *CLOCK_FIELDS, "policy_version", "policy")
    return [*CLOCK_COMMANDS, run, ("HGETALL", keys.replay), ("ZCARD", keys.replay_part("order"))]


def read_view(replies: Sequence[Any]) -> ReplayView | None:
    """Parse the replies to `view_commands`; None if the run has no buffer."""
    time, service, (*clock, version, policy), replay, size = replies
    if b"config" not in replay:
        return None
    texts = {name.decode(): text.decode() for name, text in replay.items()}
    run_policy = parse_policy(policy)
    context = ReplayContext(int(texts["session"]), int(version or 0), Now(time, service).run_clock_of(clock))
    demand, until_ms = map(int, texts.get("demand", "0 0").split())
    return ReplayView(
        settings=parse_replay_settings(texts["config"]),
        revision=texts["revision"],
        context=context,
        size=size,
        totals={name: int(text) for name, text in texts.items() if name not in NO_TOTALS},
        demand=(demand, until_ms),
        lease_s=run_policy.lease_s,
        memory_ms=run_policy.request_memory_ms,
        unsettled=texts.get("unsettled"),
        offset=float(texts["offset"]),
    )


def summary_commands(keys: RunKeys) -> list[Command]:
    """Return the commands whose replies `read_summary` reads. Each is O(1)."""
    part = keys.replay_part
    lengths: list[Command] = [("ZCARD", part("reserved")), ("ZCARD", part("archived"))]
    lengths += [("HLEN", part("chunks")), ("HLEN", part("samples"))]
    return [*view_commands(keys), *lengths]


def read_summary(replies: Sequence[Any]) -> ReplaySummary | None:
    """Parse the replies to `summary_commands`; None if the run has no buffer."""
    *first, reserved, archived, chunks, samples = replies
    view = read_view(first)
    if view is None:
        return None
    return ReplaySummary(view, reserved, archived, max(0, chunks - view.total("chunks")), samples)


def candidate_commands(keys: RunKeys, eviction: Eviction, most: int) -> list[Command]:
    """Return the commands for the next chunks to evict; `read_candidates` parses their replies."""
    heads: tuple[ReplayPart, ...] = ("archived", *_EVICTED_FROM[eviction])
    return [("ZRANGE", keys.replay_part(part), 0, most - 1, "WITHSCORES") for part in heads]


def read_candidates(replies: Sequence[Sequence[tuple[bytes, float]]], most: int) -> list[str]:
    """Return the next chunks to evict, in the order of `lachesis.wire.replay.Eviction`.

    Chunks of former sessions come first. The others follow by score, whether samples hold all their uses or not.
    """
    archived, *live = replies
    ordered = sorted((score, key) for head in live for key, score in head)
    return [key.decode() for key in (*(key for key, _ in archived), *(key for _, key in ordered))][:most]
