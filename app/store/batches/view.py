"""Read one taken batch of a run in one round trip."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from app.core.batches.leases import Lease
from app.core.runs.settings import Policy
from app.store.groups.entries import BATCH_HISTORY_WORDS
from app.store.redis.keys import NONE, RunKeys
from app.store.redis.pipeline import Command
from app.store.runs.view import parse_lease, parse_policy, run_clock


class BatchEnd(NamedTuple):
    """How a batch ended: ``acknowledged``, ``given_back`` or ``discarded``; its lease, if any; its step; and when."""

    outcome: str
    lease_id: str | None
    step: int
    clock_ms: int


@dataclass(frozen=True, slots=True)
class BatchView:
    """A batch, with the values needed to end it.

    Attributes:
        policy: The policy of its run.
        clock_ms: Run clock now.
        lease: Its lease, until it ends.
        end: How it ended; None if it has not ended, or ended long ago.
    """

    policy: Policy
    clock_ms: int
    lease: Lease | None
    end: BatchEnd | None


def batch_commands(keys: RunKeys, batch_id: str) -> list[Command]:
    """Return the commands whose replies `read_batch_view` reads.

    The lease comes before its end: of a batch that ends in between, the lease is seen, which by then is outdated.
    """
    of_run: Command = ("HMGET", keys.run, "config", "policy", "clock_ms", "time_ms")
    return [("TIME",), of_run, ("HGET", keys.lease_states, batch_id), ("HGET", keys.history, batch_id)]


def read_batch_view(batch_id: str, replies: Sequence[Any]) -> BatchView | None:
    """Read what Redis answered to `batch_commands`; None if nobody has made the run."""
    time, (config, policy, *clock), lease, end = replies
    if config is None:
        return None
    of_run = {name: int(value) for name, value in zip(("clock_ms", "time_ms"), clock, strict=True) if value is not None}
    held = None if lease is None else parse_lease(batch_id, lease.decode())
    return BatchView(parse_policy(policy), run_clock(time, of_run), held, parse_end(end))


def parse_end(found: bytes | None) -> BatchEnd | None:
    """Read how a batch or sample ended from its history; None if this is none."""
    words = [] if found is None else found.decode().split()
    if len(words) != BATCH_HISTORY_WORDS:
        return None
    outcome, lease_id, step, clock_ms = words
    return BatchEnd(outcome, None if lease_id == NONE else lease_id, int(step), int(clock_ms))
