"""The errors of groups."""

from collections.abc import Sequence

from lachesis.wire.errors._base import ServiceError
from lachesis.wire.errors._requests import Conflict, InvalidField, NotFound


class SequenceTooLong(InvalidField):
    """A sequence has more tokens than the run accepts, or than fit into a micro-batch.

    Beside the arguments of `InvalidField` it has ``group_id``: the service's id of the group, if it is stored.
    """

    code = "sequence_too_long"
    remedy = "Send shorter sequences, raise `max_sequence_tokens` of the run, or ask for larger micro-batches."

    def __init__(self, message: str, location: Sequence[str | int] = (), group_id: str = "") -> None:
        super().__init__(message, location)
        self.group_id = group_id


class GroupNotFound(NotFound):
    """The run has no group of this id, or has forgotten it."""

    code = "group_not_found"
    remedy = (
        "Check the id. The run forgets a group that has left after the longer of `history_retention_s` and "
        "`dedup_window_s`."
    )


class GroupGone(ServiceError):
    """The group has left the run, and its contents are not kept any more. The message says why, and since when."""

    code, status = "group_gone", 410
    remedy = (
        "Read contents while the group waits, is in a batch, or is kept for a rewind (`keep_batches`) or for replay."
    )


class AnnotationsFull(ServiceError):
    """The annotations of the run take too much memory. Nothing was stored."""

    code, status = "annotations_full", 429
    remedy = "Shorten `history_retention_s` and `dedup_window_s`, or annotate fewer groups."


class GroupExists(Conflict):
    """The run has a group of this id with other contents."""

    code = "group_exists"
    remedy = "If it is the same group in another format, it is stored already. If not, give it an id of its own."


class GroupNotWaiting(Conflict):
    """The group is in a batch or has left the run, so it cannot be deleted."""

    code = "group_not_waiting"
    remedy = "Delete waiting groups only. `GET /v1/runs/{run}/groups/{group}` says where a group is."


class QueueFull(ServiceError):
    """The waiting groups of the run, or those of the token, have reached a limit. Nothing was stored."""

    code, status, retry_after_s = "queue_full", 429, 1.0
    remedy = "Send the groups later. If this lasts, train faster, or raise `max_queued_groups` or `max_queued_bytes`."
