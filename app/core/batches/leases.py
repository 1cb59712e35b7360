"""Follow leased batches through their states, and decide which are handed out again.

commit ──▶ sending ──reply complete──▶ sent ──next completed GET──▶ delivered           (Atropos)
              │ broke off, sender gone  │ a trainer registers again
              ▼                         ▼
           returned ◀───────────────────┘
              │ taken again, delivery_count + 1: ``sending`` or ``held``
commit ──▶  held ──ack──▶ delivered                                                     (/v1)
              │ nack: dissolved, its groups are at the front of their lanes; a rewound batch stays whole: ``returned``
              │ deadline passed: handed out again, ``held`` under another lease; or, for the last time:
              ▼
          quarantined ──nack──▶ dissolved, or dropped by an operator
              │ ack under the last lease ──▶ delivered
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from app.core.model import environment_key
from app.core.ranks.sharding import Sharding, untouched
from lachesis.wire.states import LeaseState

_RETRY_MS = 10_000  # a trainer whose reply broke off asks again within seconds or never


class Portion(NamedTuple):
    """What an environment (None: no environment) has in a batch."""

    environment: int | None
    groups: int
    sequences: int


@dataclass(frozen=True, slots=True)
class Replayed:
    """How a group came from the replay buffer into a batch.

    Attributes:
        chunk: The group's chunk in the buffer.
        uses: Acknowledged samples and batches that the chunk was in before, since it was first trained on.
        probability: The probability that one draw from the whole buffer gives it. 1 for fifo and lifo.
        importance: Importance weight, divided by the largest one among the batch's replayed groups.
    """

    chunk: int
    uses: int
    probability: float
    importance: float


@dataclass(frozen=True, slots=True)
class LeasedGroup:
    """A group in a batch that a trainer holds.

    `arrival` is its place in its lane if it goes back there. `filtered_by` and `loss_weight` are those of its
    `app.core.groups.filters.FilterMark`, if it has one. A group with `replayed` comes from the replay buffer: it was
    delivered before and does not return to a lane. `tokens` are those of its sequences; 0 with `replayed`, because they
    were counted before.
    """

    group_id: str
    arrival: int
    environment: int | None
    size: int
    payload_bytes: int
    checksum: str
    accepted_ms: int
    policy_version: int | None = None
    given_id: str | None = None
    filtered_by: str | None = None
    loss_weight: float = 1.0
    tokens: int = 0
    replayed: Replayed | None = None


WITH_A_TRAINER = frozenset({"sending", "sent", "held"})
"""The states in which a trainer has the batch."""


@dataclass(frozen=True, slots=True)
class Lease:
    """The lease of a batch.

    Attributes:
        batch_id: Its id. A sample of the replay buffer has a lease, too: then this is the id of the sample.
        state: See `lachesis.wire.states.LeaseState`.
        worker: The API process that sends or sent it.
        delivery_count: How often it was handed out, without deliveries that are known to have reached no trainer.
        step: The run's step after it was taken; after another configuration, at most its starting step.
        relaxed: Whether some minimum is not kept.
        lease_id: Names this delivery while the batch is held, or the last one if it is quarantined. A trainer that lost
            the batch cannot end it.
        deadline_ms: Run clock at which a held batch is handed out again.
        request_id: The request that took a held batch, if it had an id.
        trainer: The trainer that took a held batch, if it gave a name.
        contents: Its contents, by environment.
        sharding: How it is divided between ranks, or None.
        replayed: The part of its contents from the replay buffer, in the same form. Empty for samples.
        debts: Its changes of the debts to environments (`app.core.environments.shares.debt_changes`).
        rewound: Number of the rewind that brought it back, from 1; 0: none. Such a batch stays whole until it is
            trained on. If a trainer gives it back, it waits to be handed out again.
        given_back: The last lease since the rewind that gave it back whole.
        stored: The text that it was read from; empty for a lease that was not read. `replace` does not copy it.
    """

    batch_id: str
    state: LeaseState
    worker: str
    delivery_count: int
    step: int
    relaxed: bool
    lease_id: str = ""
    deadline_ms: int = 0
    request_id: str = ""
    trainer: str = ""
    contents: tuple[Portion, ...] = ()
    sharding: Sharding | None = None
    replayed: tuple[Portion, ...] = ()
    debts: tuple[tuple[int, int], ...] = ()
    rewound: int = 0
    given_back: str = ""
    stored: str = field(default="", init=False, compare=False, repr=False)

    @property
    def groups(self) -> int:
        """Groups in its batch."""
        return sum(portion.groups for portion in self.contents)

    @property
    def size(self) -> int:
        """Sequences in its batch."""
        return sum(portion.sequences for portion in self.contents)

    @property
    def is_reservation(self) -> bool:
        """Whether a sample only reserves uses for a batch. It has the id of the batch, and no trainer holds it."""
        return bool(self.replayed)


def contents_of(groups: Iterable[LeasedGroup]) -> tuple[Portion, ...]:
    """Return a batch's groups and sequences by environment, those without one first."""
    counts: dict[int | None, tuple[int, int]] = {}
    for group in groups:
        groups_so_far, sequences = counts.get(group.environment, (0, 0))
        counts[group.environment] = (groups_so_far + 1, sequences + group.size)
    ordered = sorted(counts.items(), key=lambda item: environment_key(item[0]))
    return tuple(Portion(environment, *count) for environment, count in ordered)


def as_returned(lease: Lease) -> Lease:
    """Return the lease after its holder lost it: its batch waits to be handed out again."""
    sharding = None if lease.sharding is None else untouched(lease.sharding)
    free = replace(lease, lease_id="", deadline_ms=0, request_id="", trainer="", sharding=sharding)
    return replace(free, state="returned")


def after_registration(leases: Sequence[Lease], starting_step: int | None) -> list[Lease]:
    """Return leases after a trainer of Atropos registered. What a former one did not acknowledge is handed out again.

    In a new configuration, these batches come before all others: their steps end at the starting step. Their debts and
    rewinds belong to the former configuration.

    Args:
        leases: All leases of the run, by step.
        starting_step: The starting step of a new configuration; None if the configuration stays.
    """
    after = [as_returned(lease) if lease.state in ("sending", "sent") else lease for lease in leases]
    if starting_step is None:
        return after
    steps = range(starting_step - len(after) + 1, starting_step + 1)
    return [replace(own, step=step, debts=(), rewound=0, given_back="") for own, step in zip(after, steps, strict=True)]


def as_rewound(lease: Lease, rewind: int) -> Lease:
    """Return the lease after a rewind of this number: its batch waits to be handed out again, whole."""
    return replace(as_returned(lease), rewound=rewind, given_back="")


def in_saved_state(lease: Lease) -> bool:
    """Return whether a rewind treats a batch of an earlier step as trained on.

    True if a trainer holds it, or if an earlier rewind brought it back and no trainer took it since then. False if it
    was given back, or never reached a trainer.
    """
    if lease.state == "returned":
        return lease.rewound > 0 and not lease.given_back
    return lease.state != "quarantined"


def as_given_back(lease: Lease) -> Lease:
    """Return the lease after its trainer gave a rewound batch back: it waits whole, in its place.

    In their lanes, its groups could be dropped for their age or come in another order.
    """
    return replace(as_returned(lease), given_back=lease.lease_id)


def as_quarantined(lease: Lease) -> Lease:
    """Return a lease that ran out for the last time. No trainer holds it, and its batch is not handed out again.

    It keeps its id: its trainer may still acknowledge the batch.
    """
    return replace(lease, state="quarantined", deadline_ms=0, request_id="")


def as_withdrawn(lease: Lease) -> Lease:
    """Return the lease of a quarantined batch after a rewind to an earlier step: its trainer can no longer end it."""
    return replace(lease, lease_id="")


def lease_deadline_ms(clock_ms: int, asked_s: float | None, default_s: float) -> int:
    """Return the deadline of a lease that begins now, on the run clock.

    Args:
        clock_ms: The run clock now.
        asked_s: How long the request wants the lease; None for the default.
        default_s: The default of the run.
    """
    return clock_ms + round(1000 * (default_s if asked_s is None else asked_s))


def extended_deadline_ms(lease: Lease, clock_ms: int, asked_s: float | None, default_s: float) -> int:
    """Return the deadline of a lease that its trainer extends now, or takes again. A later deadline stays.

    Other ranks may need the lease longer, and a request that comes late undoes no extension.

    Args:
        lease: The lease before.
        clock_ms: The run clock now.
        asked_s: How long from now the request wants the lease; None for the default.
        default_s: The default of the run.
    """
    return max(lease.deadline_ms, lease_deadline_ms(clock_ms, asked_s, default_s))


def retry_deadline_ms(clock_ms: int) -> int:
    """Return the deadline of a lease whose reply broke off now, unless it ends before that."""
    return clock_ms + _RETRY_MS


def is_expired(lease: Lease, clock_ms: int) -> bool:
    """Return whether a trainer held a batch beyond its deadline, at run clock ``clock_ms``."""
    return lease.state == "held" and clock_ms >= lease.deadline_ms


def deadlines_ahead(leases: Iterable[Lease], clock_ms: int) -> list[int]:
    """Return the deadlines of leases that are later than run clock ``clock_ms``."""
    return [lease.deadline_ms for lease in leases if lease.deadline_ms > clock_ms]


def seconds_left(lease: Lease, clock_ms: int) -> float | None:
    """Return the seconds until the lease of a held batch expires, at run clock ``clock_ms``; None for other batches."""
    return max(0, lease.deadline_ms - clock_ms) / 1000 if lease.state == "held" else None


def is_exhausted(lease: Lease, clock_ms: int, max_deliveries: int) -> bool:
    """Return whether a batch's lease ran out as often as the run allows. Then the batch is quarantined."""
    return is_expired(lease, clock_ms) and lease.delivery_count >= max_deliveries


def is_redeliverable(lease: Lease, clock_ms: int, max_deliveries: int, *, being_sent: bool) -> bool:
    """Return whether a batch waits to be handed out again: returned, expired, or no longer being sent.

    Args:
        lease: The lease.
        clock_ms: The run clock now.
        max_deliveries: How often the run hands out a batch at most, ``>= 1``. Applies to ``held`` batches.
        being_sent: Whether some process still sends it. Applies to ``sending`` batches.
    """
    match lease.state:
        case "sending":
            return not being_sent
        case "held":
            return is_expired(lease, clock_ms) and not is_exhausted(lease, clock_ms, max_deliveries)
        case "returned":
            return True
        case _:
            return False
