"""How one worker's fragments become chunks: in order, without ever waiting for long."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from app.core.replay import Fragment, ReplayPolicy


@dataclass(frozen=True, slots=True)
class WorkerState:
    """Where a worker is in the numbers it sends.

    Attributes:
        session: The training attempt its numbers are of.
        next_number: The number that goes on from what is here in order.
        open_part: Fragments in order, fewer than a chunk; the last has the number before `next_number`.
        waiting: Fragments behind a gap, by number.
        heard_ms: Run clock when a fragment last arrived, milliseconds.
        given_up: The last few gaps that were given up, as (first, last) number.
    """

    session: int
    next_number: int = 0
    open_part: tuple[Fragment, ...] = ()
    waiting: tuple[Fragment, ...] = ()
    heard_ms: int = 0
    given_up: tuple[tuple[int, int], ...] = ()


class Arrival(StrEnum):
    """What became of a fragment that arrived. All but STORED leave nothing stored."""

    STORED = "stored"
    REPEATED = "repeated"
    CONFLICT = "conflict"
    LATE = "late"
    OLD_SESSION = "old_session"


class Dropped(StrEnum):
    """Why a fragment that was stored is in no chunk."""

    GAP = "gap"
    EXPIRED = "expired"
    OLD_SESSION = "old_session"


@dataclass(frozen=True, slots=True)
class Step:
    """What an event changed.

    Attributes:
        state: The worker's state now.
        chunks: Chunks that were formed: `fragments_per_chunk` consecutive fragments each, in order.
        dropped: Fragments that will be in no chunk, and why.
        gaps: Gaps that were given up, as (first, last) number.
    """

    state: WorkerState
    chunks: tuple[tuple[Fragment, ...], ...] = ()
    dropped: tuple[tuple[Fragment, Dropped], ...] = ()
    gaps: tuple[tuple[int, int], ...] = ()


def arrive(
    state: WorkerState, fragment: Fragment, policy: ReplayPolicy, chunked: Mapping[int, str] | None = None
) -> tuple[Arrival, Step]:
    """Take in a fragment. Time passes first, up to its `accepted_ms`, whatever becomes of it.

    Args:
        state: Where its worker is.
        fragment: What arrived, of this session or a later one, which then begins here.
        policy: The buffer's.
        chunked: Checksums, by number, of this worker's fragments in chunks, as far as they are still known.
    """
    raise NotImplementedError


def pass_time(state: WorkerState, policy: ReplayPolicy, clock_ms: int) -> Step:
    """Give up gaps that were waited for long enough, and expire what a silent worker left."""
    raise NotImplementedError


def change_session(state: WorkerState, session: int) -> Step:
    """Drop what is in no chunk, and begin at number 0 of a new session."""
    raise NotImplementedError
