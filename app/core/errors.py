"""What can go wrong, as one tree. The API maps each class to a status in one table (`app/api/http/problems.py`).

    LachesisError
    ├── InvalidInput                the caller's data is wrong: 4xx, nothing was stored
    │   ├── MalformedBody           not the format it claims to be (JSON, gzip, UTF-8)         400
    │   ├── BodyTooLarge            over the limit, as sent or once inflated                   413
    │   ├── UnsupportedEncoding     a Content-Encoding we do not read                          415
    │   ├── RequestTimeout          the body stopped arriving                                  408
    │   ├── UnsupportedMediaType    a Content-Type we do not read here                         415
    │   ├── NotAcceptable           no media type that we write is accepted                    406
    │   ├── InvalidDataset          a dataset on disk is broken, or of no layout we read       422
    │   └── InvalidField            a value is wrong; `location` says where                    422
    │       └── SequenceTooLong     longer than the run, or a micro-batch of its ranks, takes  422
    ├── Forbidden                   the request is refused, whatever it asks for                   403
    │   ├── CrossSiteRequest        a web page of another site sent it
    │   └── ForeignHost             its `Host` is a name that this service does not know
    ├── NotFound                    what the path names is not there                           404
    │   ├── RunNotFound
    │   ├── EnvironmentNotFound
    │   ├── MemberNotFound
    │   ├── GroupNotFound
    │   ├── BatchNotFound
    │   ├── ReplayNotFound
    │   ├── FragmentNotFound
    │   ├── SampleNotFound
    │   ├── SnapshotNotFound
    │   ├── CurriculumNotFound
    │   ├── ItemNotFound
    │   └── DatasetNotFound
    ├── Conflict                    right in itself, but not as things stand; nothing changed  409
    │   ├── RunExists               a run of this name has other settings
    │   ├── EnvironmentSettingsDiffer   a member joins with other settings than those in force
    │   ├── RunArchived             the run takes no groups and hands out no batches
    │   ├── GroupExists             a group of this id has other contents
    │   ├── GroupNotWaiting         the group is in a batch, or has left: it cannot be deleted
    │   ├── FragmentExists          a fragment of this number has other contents
    │   ├── LeaseLost               the batch or sample is no longer held under this lease
    │   ├── NotAnAtroposRun         the run was made under /v1: Atropos clients do not reset it
    │   ├── BatchInUse              the batch is not quarantined, so nobody may drop it
    │   ├── RunInUse                groups keep coming while the run is being removed
    │   ├── RewindImpossible        batches after that step are no longer kept
    │   ├── RunRewound              the run went back to a saved state after this trainer began
    │   ├── RanksDisagree           the ranks before this one divide the batch otherwise
    │   └── StepMismatch            the batch this rank would get is of another step
    ├── QueueFull                   the run's capacity is reached; come back later             429
    │   └── ReplayBlocked           the replay buffer's rate limiter holds inserts back
    └── StoreUnavailable            Redis did not answer in time; the outcome is unknown       503
        ├── StoreFull               Redis is out of memory; nothing was stored                 507
        ├── StoreRefused            Redis took a command for wrong: look at its keys and ACL   500
        ├── UnreadableRecord        a record of a run in Redis cannot be read: it was damaged            500
        └── StoreMisconfigured      Redis cannot keep our promises; refuse to start

Each class has a stable ``code``; the message says what was wrong with the values.
"""

from typing import ClassVar


class LachesisError(Exception):
    """Something went wrong that a caller can be told about."""

    code: ClassVar[str] = "error"


class InvalidInput(LachesisError):
    """What the caller sent cannot be accepted; nothing was stored."""

    code = "invalid_input"


class MalformedBody(InvalidInput):
    """The body is not the format it claims to be."""

    code = "malformed_body"


class BodyTooLarge(InvalidInput):
    """The body is over the limit, as sent or once inflated."""

    code = "body_too_large"


class UnsupportedEncoding(InvalidInput):
    """The body uses a Content-Encoding that is not read here."""

    code = "unsupported_encoding"


class RequestTimeout(InvalidInput):
    """The body made no progress for too long; nothing was stored."""

    code = "request_timeout"


class UnsupportedMediaType(InvalidInput):
    """The body is of a Content-Type that is not read here."""

    code = "unsupported_media_type"


class NotAcceptable(InvalidInput):
    """Nothing that could be answered here is of a media type the client accepts."""

    code = "not_acceptable"


class InvalidDataset(InvalidInput):
    """A dataset is broken, or of no layout that is read here; the message names the file and the place in it."""

    code = "invalid_dataset"


class InvalidField(InvalidInput):
    """A value in the body, the path or the query is wrong.

    Args:
        message: What is wrong, with the value in it.
        location: Where, as a path from the body's root, field names and 0-based positions; of a parameter, ``query`` or
            ``path`` and its name.
    """

    code = "invalid_field"

    def __init__(self, message: str, location: tuple[str | int, ...] = ()) -> None:
        super().__init__(message)
        self.location = location


class Forbidden(LachesisError):
    """The request is refused, whatever it asks for. Nothing was changed."""

    code = "forbidden"


class CrossSiteRequest(Forbidden):
    """A web page of another site sent the request."""

    code = "cross_site_request"


class ForeignHost(Forbidden):
    """The request names a host that the service does not know; the message says how to list it."""

    code = "foreign_host"


class SequenceTooLong(InvalidField):
    """A sequence has more tokens than the run takes, or than fit into a micro-batch; the message names it.

    Args:
        message: What is wrong, with the group and the values in it.
        location: As for `InvalidField`.
        group_id: The service's own id of the group, if it is stored.
    """

    code = "sequence_too_long"

    def __init__(self, message: str, location: tuple[str | int, ...] = (), group_id: str = "") -> None:
        super().__init__(message, location)
        self.group_id = group_id


class NotFound(LachesisError):
    """What the path names is not there."""

    code = "not_found"


class RunNotFound(NotFound):
    """There is no run of this name."""

    code = "run_not_found"


class EnvironmentNotFound(NotFound):
    """The run has no such environment."""

    code = "environment_not_found"


class MemberNotFound(NotFound):
    """The environment has no member of this id: it left, was silent for too long, or never joined."""

    code = "member_not_found"


class GroupNotFound(NotFound):
    """The run knows no such group, or no longer."""

    code = "group_not_found"


class BatchNotFound(NotFound):
    """The run knows no such batch, or no longer."""

    code = "batch_not_found"


class ReplayNotFound(NotFound):
    """The run has no replay buffer."""

    code = "replay_not_found"


class FragmentNotFound(NotFound):
    """The run's replay buffer has no such fragment, or no longer."""

    code = "fragment_not_found"


class SampleNotFound(NotFound):
    """The run knows no such sample, or no longer."""

    code = "sample_not_found"


class SnapshotNotFound(NotFound):
    """The run's replay buffer has no snapshot of this name, or no longer."""

    code = "snapshot_not_found"


class CurriculumNotFound(NotFound):
    """The run has no curriculum of this name."""

    code = "curriculum_not_found"


class ItemNotFound(NotFound):
    """The curriculum has no such item."""

    code = "item_not_found"


class DatasetNotFound(NotFound):
    """There is no dataset at this path, or this service reads none."""

    code = "dataset_not_found"


class Conflict(LachesisError):
    """What was asked for is right in itself, but not as things stand. Nothing was changed."""

    code = "conflict"


class RunExists(Conflict):
    """There is a run of this name, with other settings."""

    code = "run_exists"


class EnvironmentSettingsDiffer(Conflict):
    """A joining member names other settings than those of the environment, which is alive."""

    code = "environment_settings_differ"


class RunArchived(Conflict):
    """The run is archived: it takes no groups and hands out no batches."""

    code = "run_archived"


class GroupExists(Conflict):
    """There is a group of this id, with other contents."""

    code = "group_exists"


class GroupNotWaiting(Conflict):
    """The group is in a batch or has left, so it cannot be deleted; the message says where it is."""

    code = "group_not_waiting"


class FragmentExists(Conflict):
    """The worker has sent a fragment of this number before, with other contents."""

    code = "fragment_exists"


class LeaseLost(Conflict):
    """The batch or sample is no longer held under this lease; the message says what happened to it."""

    code = "lease_lost"


class NotAnAtroposRun(Conflict):
    """The run was made under `/v1`: clients of Atropos do not reset it, `DELETE /v1/runs/{run}` removes it."""

    code = "not_an_atropos_run"


class BatchInUse(Conflict):
    """The batch is not quarantined: a trainer has it or will have it, so nobody may drop it."""

    code = "batch_in_use"


class RunInUse(Conflict):
    """Groups keep coming while the run is being removed: stop what sends them first."""

    code = "run_in_use"


class RewindImpossible(Conflict):
    """Some batch after that step is no longer kept; the message says how far back the run can go."""

    code = "rewind_impossible"


class RunRewound(Conflict):
    """The run went back to a saved state after this trainer began: load that state and start again."""

    code = "run_rewound"


class RanksDisagree(Conflict):
    """The ranks that have this batch divide it otherwise than this one would; the message says in what."""

    code = "ranks_disagree"


class StepMismatch(Conflict):
    """The batch this rank would get is of another step than the one it says it is at."""

    code = "step_mismatch"


class QueueFull(LachesisError):
    """The run holds as much as it may. Nothing was stored; come back in ``retry_after_s`` seconds.

    Args:
        message: What is full, and how full it is.
        retry_after_s: When it is worth trying again, seconds.
    """

    code = "queue_full"

    def __init__(self, message: str, retry_after_s: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class ReplayBlocked(QueueFull):
    """The replay buffer's rate limiter holds inserts back until there are samples; the message says how many."""

    code = "replay_blocked"


class StoreUnavailable(LachesisError):
    """Redis did not answer in time. Whether the last change was made is unknown; ask again."""

    code = "store_unavailable"


class StoreFull(StoreUnavailable):
    """Redis is out of memory. Nothing was stored, nothing is lost; make room or raise ``maxmemory``."""

    code = "store_full"


class StoreRefused(StoreUnavailable):
    """Redis took a command for wrong: a key of another type than ours, or a command its ACL forbids."""

    code = "store_refused"


class UnreadableRecord(StoreUnavailable):
    """A record of a run in Redis cannot be read: something else wrote it. The message names the run."""

    code = "unreadable_record"


class StoreMisconfigured(StoreUnavailable):
    """This Redis cannot keep our promises; the message says which setting to change."""

    code = "store_misconfigured"
