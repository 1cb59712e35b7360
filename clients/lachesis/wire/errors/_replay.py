"""The errors of replay buffers."""

from lachesis.wire.errors._groups import QueueFull
from lachesis.wire.errors._requests import Conflict, NotFound


class ReplayNotFound(NotFound):
    """The run has no replay buffer."""

    code = "replay_not_found"
    remedy = "Create the buffer with `PUT /v1/runs/{run}/replay` (SDK: `Replay.set_up`)."


class FragmentNotFound(NotFound):
    """The replay buffer has no fragment of this id, or has retired it."""

    code = "fragment_not_found"
    remedy = "Take another sample, or check the id."


class SampleNotFound(NotFound):
    """The run has no sample of this id, or has forgotten it."""

    code = "sample_not_found"
    remedy = "Take another sample."


class SnapshotNotFound(NotFound):
    """The replay buffer has no snapshot of this name, or has replaced it with a newer snapshot."""

    code = "snapshot_not_found"
    remedy = "Check the name in the list of snapshots. `keep_snapshots` of the buffer limits their number."


class FragmentExists(Conflict):
    """The worker sent a fragment of this number before with other contents."""

    code = "fragment_exists"
    remedy = "Number the fragments of a session from 0 without repetition, or begin a new session."


class ReplayBlocked(QueueFull):
    """The rate limiter of the replay buffer holds inserts back until trainers sample more."""

    code = "replay_blocked"
    remedy = "Send the fragments again later. If this lasts, sample faster, or widen the band of the limiter."
