"""Read one taken batch of a run in one round trip."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

from app.core.batches.leases import Lease
from app.core.runs.settings import Policy
from app.store.redis.keys import NONE, RunKeys
from app.store.redis.pipeline import Command
from app.store.runs.clock import CLOCK_COMMANDS, CLOCK_FIELDS, Now
from app.store.runs.lease_codec import parse_lease
from app.store.runs.view import parse_policy
from lachesis.wire.states import BatchOutcome, SampleOutcome


class BatchEnd(NamedTuple):
    """How a batch or a sample ended; its lease, if any; the step of a batch, 0 for a sample; and when."""

    outcome: BatchOutcome | SampleOutcome
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

    The lease is read before the end. If the batch ends in between, the lease is returned, which is outdated by then.
    """
    of_run: Command = ("HMGET", keys.run, "config", "policy", *CLOCK_FIELDS)
    return [*CLOCK_COMMANDS, of_run, ("HGET", keys.lease_states, batch_id), ("HGET", keys.history, batch_id)]


def read_batch_view(batch_id: str, replies: Sequence[Any]) -> BatchView | None:
    """Parse the replies to `batch_commands`; None if the run does not exist."""
    time, service, (config, policy, *clock), lease, end = replies
    if config is None:
        return None
    held = None if lease is None else parse_lease(batch_id, lease.decode())
    return BatchView(parse_policy(policy), Now(time, service).run_clock_of(clock), held, parse_end(end))


def parse_end(found: bytes | None) -> BatchEnd | None:
    """Parse the history of a batch or sample. Return None if it is missing or about a step."""
    words = [] if found is None else found.decode().split()
    if len(words) <= 1:
        return None
    word, lease_id, step, clock_ms = words
    outcome = cast(BatchOutcome | SampleOutcome, word)
    return BatchEnd(outcome, None if lease_id == NONE else lease_id, int(step), int(clock_ms))
