"""What maintenance learns of a run each second."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tick:
    """What a tick tells of a run, so that a run with nothing to do costs no further look.

    Attributes:
        clock_ms: The run clock, milliseconds; 0 if the run is not there.
        buffered: Whether groups wait in buffers.
        unindexed: Whether there are payloads that no index entry names.
        trash: Whether payloads of a reset are still to be removed.
        leased: Whether there are batches that were taken and have not ended.
        due: Whether there are names and histories whose time to be forgotten has come.
        aging: Whether groups grow too old by waiting.
        replay: Whether the run has a replay buffer.
        loading: Whether states of curricula are being loaded.
        held: Whether the run holds anything at all.
    """

    clock_ms: int
    buffered: bool
    unindexed: bool
    trash: bool
    leased: bool
    due: bool
    aging: bool
    replay: bool
    loading: bool
    held: bool
