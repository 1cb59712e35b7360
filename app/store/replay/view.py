"""Read a replay buffer without its contents in one round trip, as one frozen value."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from app.core.replay.buffer import Eviction, Occupancy, ReplayContext, ReplayPolicy
from app.core.replay.rate_limiter import LimiterState
from app.store.redis.keys import ReplayPart, RunKeys
from app.store.redis.pipeline import Command
from app.store.replay.entries import parse_policy
from app.store.runs.view import parse_policy as parse_run_policy
from app.store.runs.view import run_clock

STALENESS_BOUNDS = ("0", "1", "2", "4", "8", "16", "32", "64", "128", "256", "more")
"""What `lua/replay/count_staleness.lua` counts sampled chunks by: the most versions each is stale, by doubling."""

_EVICTED_FROM: dict[Eviction, tuple[ReplayPart, ReplayPart]] = {
    Eviction.OLDEST: ("order", "reserved_order"),
    Eviction.MOST_USED: ("uses", "reserved_uses"),
    Eviction.LOWEST_PRIORITY: ("weights", "reserved_weights"),
}

NO_TOTALS = {"config", "revision", "session", "offset", "demand", "unsettled", "restored"}
"""Fields of the buffer's hash that count nothing."""


@dataclass(frozen=True, slots=True)
class ReplayView:
    """A buffer without what is in it: what every use case starts from.

    Attributes:
        policy: Its configuration.
        revision: Changes whenever that or the session does.
        standing: What chunks are judged by now.
        size: Sampleable chunks.
        totals: What is counted, by name.
        demand: Chunks in the largest sample that recently had to wait, and until when that counts, run clock.
        lease_s: How long the run leases what it hands out, seconds.
        memory_ms: How long it is remembered who was there, and how a sample ended, run clock.
        unsettled: The revision whose consequences chunks have not all been looked over for, or None.
    """

    policy: ReplayPolicy
    revision: str
    standing: ReplayContext
    size: int
    totals: Mapping[str, int]
    demand: tuple[int, int]
    lease_s: float
    memory_ms: int
    unsettled: str | None
    offset: float

    @property
    def position(self) -> LimiterState:
        """Where the rate limiter stands."""
        demand, until_ms = self.demand
        demand = demand if self.standing.clock_ms < until_ms else 0
        return LimiterState(self.total("inserts"), self.total("samples"), self.size, self.offset, demand)

    @property
    def held(self) -> Occupancy:
        """What the buffer holds."""
        return Occupancy(self.total("chunks"), self.total("chunk_bytes"))

    def named(self, prefix: str) -> dict[str, int]:
        """Return what was counted by reason: totals that begin so, without the beginning, by name."""
        named = sorted((name, total) for name, total in self.totals.items() if name.startswith(prefix))
        return {name.removeprefix(prefix): total for name, total in named if total}

    def staleness_buckets(self) -> list[tuple[str, int]]:
        """Return how many chunks were at most so many versions stale when they were sampled, by that bound."""
        counts = accumulate(self.total(f"staleness:{bound}") for bound in STALENESS_BOUNDS)
        return list(zip((*STALENESS_BOUNDS[:-1], "+Inf"), counts, strict=True))

    @property
    def weight(self) -> int:
        """The sum of the sampleable chunks' weights, which is counted in two parts."""
        return self.total("weight") + (self.total("weight_high") << 32)

    def total(self, name: str) -> int:
        """Return what was counted under a name, 0 if nothing was."""
        return self.totals.get(name, 0)


@dataclass(frozen=True, slots=True)
class ReplaySummary:
    """A buffer, and how much is in it.

    Attributes:
        view: The buffer.
        reserved: Chunks whose uses are all reserved.
        archived: Chunks of former sessions, kept for inspection.
        retired_in_use: Retired chunks that samples still hold.
        samples: Samples in trainers' hands.
    """

    view: ReplayView
    reserved: int
    archived: int
    retired_in_use: int
    samples: int


def view_commands(keys: RunKeys) -> list[Command]:
    """Return the commands whose replies `read_view` reads."""
    run: Command = ("HMGET", keys.run, "clock_ms", "time_ms", "policy_version", "policy")
    return [("TIME",), run, ("HGETALL", keys.replay), ("ZCARD", keys.replay_part("order"))]


def read_view(replies: Sequence[Any]) -> ReplayView | None:
    """Read what Redis answered to `view_commands`; None if the run has no buffer."""
    time, (clock_ms, time_ms, version, policy), replay, size = replies
    if b"config" not in replay:
        return None
    texts = {name.decode(): text.decode() for name, text in replay.items()}
    run_policy = parse_run_policy(policy)
    marks = {name: int(text) for name, text in (("clock_ms", clock_ms), ("time_ms", time_ms)) if text is not None}
    standing = ReplayContext(int(texts["session"]), int(version or 0), run_clock(time, marks))
    demand, until_ms = map(int, texts.get("demand", "0 0").split())
    return ReplayView(
        policy=parse_policy(texts["config"]),
        revision=texts["revision"],
        standing=standing,
        size=size,
        totals={name: int(text) for name, text in texts.items() if name not in NO_TOTALS},
        demand=(demand, until_ms),
        lease_s=run_policy.lease_s,
        memory_ms=round(1000 * run_policy.dedup_window_s),
        unsettled=texts.get("unsettled"),
        offset=float(texts["offset"]),
    )


def summary_commands(keys: RunKeys) -> list[Command]:
    """Return the commands whose replies `read_summary` reads; each is O(1), however much is in the buffer."""
    part = keys.replay_part
    lengths: list[Command] = [("ZCARD", part("reserved")), ("ZCARD", part("archived"))]
    lengths += [("HLEN", part("chunks")), ("HLEN", part("samples"))]
    return [*view_commands(keys), *lengths]


def read_summary(replies: Sequence[Any]) -> ReplaySummary | None:
    """Read what Redis answered to `summary_commands`; None if the run has no buffer."""
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
    """Return the next chunks to evict, in the order of `app.core.replay.buffer.eviction_key`.

    Chunks of former sessions come first. The others follow by score, whether samples hold all their uses or not.
    """
    archived, *live = replies
    ordered = sorted((score, key) for head in live for key, score in head)
    return [key.decode() for key in (*(key for key, _ in archived), *(key for _, key in ordered))][:most]


def decoded(replies: Sequence[Sequence[bytes]]) -> list[str]:
    """Put keys that were read by several commands in one list."""
    return [key.decode() for keys in replies for key in keys]
