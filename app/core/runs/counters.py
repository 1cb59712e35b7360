"""Define what is counted of a run: groups by place, kept batches, what arrived, and starvation."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class RunTotals:
    """Groups and bytes by where they are; ``accepted = queued + buffered + leased + delivered + dropped``."""

    accepted_groups: int = 0
    queued_groups: int = 0
    buffered_groups: int = 0
    leased_groups: int = 0
    delivered_groups: int = 0
    queued_bytes: int = 0
    buffered_bytes: int = 0
    leased_bytes: int = 0


@dataclass(frozen=True, slots=True)
class KeptBatches:
    """Acknowledged batches that are kept for a rewind.

    Attributes:
        checkpoint: Step of the last checkpoint that the trainer reported.
        checkpoint_version: The policy version of that state.
        unkept_step: The latest step whose batch was delivered and is not kept. A rewind cannot go before it.
        batches: Batches kept.
        payload_bytes: Their payload.
    """

    checkpoint: int | None = None
    unkept_step: int | None = None
    batches: int = 0
    payload_bytes: int = 0
    checkpoint_version: int | None = None


class VersionCycle(NamedTuple):
    """The policy versions that were set since a batch was acknowledged. Stored as a list, in the order of the fields.

    Attributes:
        versions: The number of these versions.
        batches: Batches acknowledged between the last version before them and the first of them.
        trained_before: `Trained.batches` before the first of them.
        trained_before_by_batch: The same, if each earlier cycle had versions for its own batches, however many.
        trained_after: `Trained.batches` after the last of them. More now means that a batch was acknowledged since.
        last_versions_per_batch: Versions per batch in the cycle before this one; 0: unknown.
    """

    versions: int = 0
    batches: int = 0
    trained_before: int = 0
    trained_before_by_batch: int = 0
    trained_after: int = 0
    last_versions_per_batch: float = 0


_NO_VERSIONS = VersionCycle()


@dataclass(frozen=True, slots=True)
class Trained:
    """Batches that were trained on and are in no policy version yet, for `app.core.environments.horizon`.

    Attributes:
        batches: Acknowledged batches with groups that name a version, minus those that a version was set for. Below 0
            while a trainer that sets the version first has not acknowledged its batch yet.
        last_ms: Run clock at the last of them, milliseconds.
        batches_per_version: Batches acknowledged one after the other before a version, as last seen, ``>= 1``.
        versions_per_batch: Versions that a trainer makes of a batch, as last seen, ``> 0``.
        cycle: The versions since the last acknowledgement before a version.
    """

    batches: int = 0
    last_ms: int = 0
    batches_per_version: int = 1
    versions_per_batch: float = 1
    cycle: VersionCycle = _NO_VERSIONS


@dataclass(frozen=True, slots=True)
class Sent:
    """The groups of an environment: run clock of the last one in ms, its size, and all stored sequences."""

    last_ms: int
    last_size: int
    sequences: int


@dataclass(frozen=True, slots=True)
class Starvation:
    """The groups since the last submission with anything to train on. Any such submission ends starvation.

    Attributes:
        since_ms: Run clock when the first of these groups came.
        sequences: The number of their sequences.
        dropped: The number of groups, by the reason why they were dropped on arrival or kept with a weight of 0.
    """

    since_ms: int = 0
    sequences: int = 0
    dropped: Mapping[str, int] = field(default_factory=dict)

    def alarms(self, batch_size: int, after_batches: int | None) -> bool:
        """Return whether there are as many sequences as in ``after_batches`` batches. None: never alarm."""
        return after_batches is not None and self.sequences >= after_batches * batch_size

    def __str__(self) -> str:
        reasons = ", ".join(f"{reason} {groups}" for reason, groups in sorted(self.dropped.items()))
        return f"nothing to train on in the last {self.sequences} sequences; dropped groups: {reasons}"
