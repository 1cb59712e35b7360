"""The values that rules use: small, frozen, and without tokens.

A rule never sees a payload. It sees lanes (how many groups of which size wait for which environment, and
the oldest few of them) and the bounds of each environment. It answers with a plan, or says why no batch is
possible.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from lachesis.wire.blockers import Blocker

MOST_HINTS = 8
"""How many groups a `NotReady` names, of those that would let a batch form."""

LaneId = tuple[int | None, int]
"""(environment id or None, size in sequences)."""

Naming = Callable[[int], str]
"""What a sentence calls the environment with an id."""


def environment_key(environment: int | None) -> int:
    """Return a number to sort environments by: the id, or -1 for none, which comes first."""
    return -1 if environment is None else environment


def environment_of(key: int) -> int | None:
    """Return the environment with this `environment_key`."""
    return None if key < 0 else key


def by_number(environment: int) -> str:
    """Return what a sentence calls an environment whose name is unknown: ``environment 1``."""
    return f"environment {environment}"


def sequences_in(groups: Mapping[LaneId, int]) -> int:
    """Return the number of sequences of so many groups in each lane."""
    return sum([size * count for (_, size), count in groups.items()])


@dataclass(frozen=True, slots=True, order=True)
class QueuedGroup:
    """The values of a queued group that selection needs.

    ``arrival`` is the run's submission counter: unique, and smaller for older groups.
    """

    arrival: int
    group_id: str


@dataclass(frozen=True, slots=True)
class Lane:
    """The queued groups of one environment and one size.

    Attributes:
        environment: Environment id, or None for groups that no registered environment owns (they have no share).
        size: Sequences in each group, ``>= 1``.
        queued: Groups in the lane, ``>= len(heads)``.
        heads: The oldest groups, oldest first; at least ``min(queued, batch_size // size)`` of them. Empty if
            no batch can need this lane, because enough older groups of its size wait (`app.core.batches.heads`).
    """

    environment: int | None
    size: int
    queued: int
    heads: tuple[QueuedGroup, ...]

    @property
    def id(self) -> LaneId:
        """What the counts of a run call the lane."""
        return self.environment, self.size


def sequences_by_environment(lanes: Iterable[Lane]) -> Counter[int | None]:
    """Count the sequences of lanes by environment."""
    sequences = Counter[int | None]()
    for lane in lanes:
        sequences[lane.environment] += lane.size * lane.queued
    return sequences


def lanes_of(groups: Mapping[LaneId, int]) -> list[Lane]:
    """Return lanes with so many groups, without heads: for rules that read counts only."""
    return [Lane(*lane, count, ()) for lane, count in groups.items()]


def heads_in(lanes: Iterable[Lane]) -> int:
    """Return how many groups of lanes were read."""
    return sum(len(lane.heads) for lane in lanes)


@dataclass(frozen=True, slots=True)
class Bounds:
    """The fewest and the most sequences of an environment in one batch."""

    minimum: int = 0
    maximum: int | None = None


NO_BOUNDS = Bounds()
"""The bounds of an environment without shares. Thousands of environments have these, and to make them takes time."""


@dataclass(frozen=True, slots=True)
class PlannedGroup:
    """A group chosen for a batch."""

    arrival: int
    group_id: str
    environment: int | None
    size: int


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """Whole groups whose sizes sum to exactly the batch size, in arrival order.

    Attributes:
        groups: The chosen groups, oldest first.
        relaxed: Whether some minimum is not kept (only after ``relax_after_s`` or ``relax_scarce_after_s``).
    """

    groups: tuple[PlannedGroup, ...]
    relaxed: bool = False

    @property
    def sequences_by_environment(self) -> Counter[int | None]:
        """Sequences that each environment has in the batch, by id (None: no environment)."""
        sequences = Counter[int | None]()
        for group in self.groups:
            sequences[group.environment] += group.size
        return sequences


@dataclass(frozen=True, slots=True)
class NotReady:
    """The reason why there is no batch now, with numbers that an operator can act on.

    Attributes:
        blocker: The reason.
        detail: The reason as a sentence with its values.
        missing_sequences: The fewest sequences that must still arrive, over all environments, in groups of any size.
        missing_by_environment: Sequences each environment is short of its own minimum.
        oversized_groups: Groups that can never fit into a batch, by environment (None: no environment).
        unblocked_by: Single groups that would each let a batch form: (environment, size) pairs, smallest first.
        at_maximum: Environments of which no more sequences can enter a batch.
    """

    blocker: Blocker
    detail: str
    missing_sequences: int = 0
    missing_by_environment: Mapping[int, int] = field(default_factory=dict)
    oversized_groups: Mapping[int | None, int] = field(default_factory=dict)
    unblocked_by: tuple[tuple[int | None, int], ...] = ()
    at_maximum: frozenset[int] = frozenset()

    def adding(self, detail: str | None) -> "NotReady":
        """Return the same reason with one more clause in its sentence. None adds nothing."""
        return self if detail is None else replace(self, detail=f"{self.detail}; {detail}")
