"""Define the values that maintenance writes to a run, and those that it reads."""

from collections.abc import Mapping, Set
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class PendingHeartbeats:
    """The signs of life in a run since they were last written.

    Attributes:
        environments: Environments without members, such as those of Atropos: by id, the run clock of the last sign,
            milliseconds. An environment that left through another process since then stays away.
        members: Members, each with its environment's id.
    """

    environments: Mapping[int, int] = field(default_factory=dict)
    members: Set[tuple[int, str]] = frozenset()


@dataclass(frozen=True, slots=True)
class LastTick:
    """What the process that ticks a run knows of the tick before.

    Attributes:
        clock_ms: The run clock then, milliseconds; None if there was no tick.
        work_ms: The run clock at which leases or the replay buffer need work, if nothing happens; None if not known.
    """

    clock_ms: int | None = None
    work_ms: int | None = None


NO_TICK = LastTick()


@dataclass(frozen=True, slots=True)
class Tick:
    """The state of a run at a tick. A run with nothing to do needs no further read.

    A run sleeps after the tick if there is nothing to do but to forget environments. One with leases or a replay buffer
    also needs a `LastTick`.

    Attributes:
        clock_ms: The run clock, milliseconds; 0 if the run is not there.
        expired: Members that were silent for too long and were removed: environment and member.
        calm: Whether nothing has happened since the last tick.
        buffered: Whether groups wait in buffers.
        unreferenced: Whether there are payloads that no index entry names.
        marked_hashes: Whether payloads of a reset are still to be deleted.
        leased: Whether there are batches that were taken and have not ended.
        due: Whether there are ids or histories to forget.
        aging: Whether groups grow too old by waiting.
        replay: Whether the run has a replay buffer.
        loading: Whether states of curricula are being loaded.
        unswept: Whether waiting groups are to be checked against the policy version.
        environments: Whether the run has environments.
        held: Whether the run holds anything at all.
    """

    clock_ms: int
    expired: tuple[tuple[int, str], ...]
    calm: bool = False
    buffered: bool = False
    unreferenced: bool = False
    marked_hashes: bool = False
    leased: bool = False
    due: bool = False
    aging: bool = False
    replay: bool = False
    loading: bool = False
    unswept: bool = False
    environments: bool = False
    held: bool = False
