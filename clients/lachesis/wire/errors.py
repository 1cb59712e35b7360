"""The errors that the service answers: the one definition of each, for the service, the SDK and the documents.

Each class has a ``code``, an HTTP ``status`` and a ``remedy``. Its docstring is its meaning: it stands in OpenAPI and
in docs/reference/errors.md, beside the tree of classes (`make reference`). The service raises these classes, and the
SDK raises them again.
"""

from collections.abc import Iterator, Sequence
from typing import Any


class LachesisError(Exception):
    """The root of all errors of Lachesis."""


class ServiceError(LachesisError):
    """The service refused a request, or failed.

    Attributes:
        code: The stable name of the error.
        status: The HTTP status of the reply.
        detail: What is wrong, with the values.
        remedy: What to do about it.
        errors: For wrong values: the place of each (``loc``) and what is wrong with it (``msg``).
        retry_after_s: When to try again, seconds; None if the service suggests nothing.
    """

    code: str = "error"
    status: int = 500
    remedy: str = ""
    retry_after_s: float | None = None

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail
        self.errors: tuple[dict[str, Any], ...] = ()

    def __str__(self) -> str:
        end = "" if self.detail.endswith((".", "?", "!")) else "."
        return f"{self.detail}{end} {self.remedy}" if self.remedy else self.detail

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.detail!r}, status={self.status}, code={self.code!r})"


class InvalidInput(ServiceError):
    """The service cannot accept the request. Nothing was stored."""

    code = "invalid_input"
    status = 422
    remedy = "Correct the request and send it again."


class MalformedBody(InvalidInput):
    """The body is not in the format that its headers name."""

    code = "malformed_body"
    status = 400
    remedy = "Send the body in the format of its Content-Type and Content-Encoding."


class BodyTooLarge(InvalidInput):
    """The body exceeds the size limit, as sent or decompressed."""

    code = "body_too_large"
    status = 413
    remedy = "Send less in one request, or raise LACHESIS_MAX_BODY_BYTES of the service."


class UnsupportedEncoding(InvalidInput):
    """The service does not read this Content-Encoding."""

    code = "unsupported_encoding"
    status = 415
    remedy = "Send the body as it is, or with one layer of gzip."


class UnsupportedMediaType(InvalidInput):
    """The service does not read this Content-Type at this path."""

    code = "unsupported_media_type"
    status = 415
    remedy = "Send one of the types that the message names."


class NotAcceptable(InvalidInput):
    """The service has no reply of a type that the request accepts."""

    code = "not_acceptable"
    status = 406
    remedy = "Accept one of the types that the message names."


class RequestTimeout(InvalidInput):
    """The body stopped arriving. Nothing was stored."""

    code = "request_timeout"
    status = 408
    remedy = "Send the request again. If the network is slow, raise LACHESIS_BODY_TIMEOUT_S of the service."


class InvalidDataset(InvalidInput):
    """A dataset on the service's disk is broken, or has a layout that the service does not read."""

    code = "invalid_dataset"
    remedy = "Repair the file that the message names."

    def __str__(self) -> str:
        return self.detail  # it names the file and the fault; the remedy adds nothing for people


class InvalidField(InvalidInput):
    """A value in the body, the path or the query is wrong. The SDK raises this before sending where it can.

    Args:
        message: What is wrong, with the value.
        location: Where: the path from the body's root, field names and positions from 0; of a parameter, ``query`` or
            ``path`` and its name.
    """

    code = "invalid_field"
    remedy = "Correct the value. `errors` names its place."

    def __init__(self, message: str, location: Sequence[str | int] = ()) -> None:
        super().__init__(f"{place(location)}: {message}" if location else message)
        if location:
            self.errors = ({"loc": list(location), "msg": message},)

    def __str__(self) -> str:
        return self.detail  # it names the place and the value; the remedy adds nothing for people

    @property
    def message(self) -> str:
        """What is wrong with the value, without its place."""
        return str(self.errors[0]["msg"]) if self.errors else self.detail

    @property
    def location(self) -> tuple[str | int, ...]:
        """The place of the value; empty if the whole body is wrong."""
        return tuple(self.errors[0]["loc"]) if self.errors else ()


class SequenceTooLong(InvalidField):
    """A sequence has more tokens than the run accepts, or than fit into a micro-batch.

    Args:
        message: What is wrong, with the group and the values.
        location: As for `InvalidField`.
        group_id: The service's id of the group, if it is stored.
    """

    code = "sequence_too_long"
    remedy = "Send shorter sequences, raise `max_sequence_tokens` of the run, or ask for larger micro-batches."

    def __init__(self, message: str, location: Sequence[str | int] = (), group_id: str = "") -> None:
        super().__init__(message, location)
        self.group_id = group_id


class Forbidden(ServiceError):
    """The service refuses the request because of where it comes from. Nothing was changed."""

    code = "forbidden"
    status = 403
    remedy = "Send the request from a program, under a host name that the service knows."


class CrossSiteRequest(Forbidden):
    """A web page of another site sent the request."""

    code = "cross_site_request"
    remedy = "Open a page of the service itself, or send the request from a program."


class ForeignHost(Forbidden):
    """The request names a host that the service does not know."""

    code = "foreign_host"
    remedy = "Use a host name that the service knows, or add this one to LACHESIS_ALLOWED_HOSTS of the service."


class NotFound(ServiceError):
    """Nothing of this name or id exists here, or it no longer exists."""

    code = "not_found"
    status = 404
    remedy = "Check the name or id. `/docs` lists all endpoints."


class RunNotFound(NotFound):
    """No run has this name."""

    code = "run_not_found"
    remedy = "Create the run with `POST /v1/runs` (SDK: `Trainer.create_run`), or check the name."


class EnvironmentNotFound(NotFound):
    """The run has no environment of this id."""

    code = "environment_not_found"
    remedy = "Join the run as an environment first, or check the id with `GET /v1/runs/{run}/environments`."


class MemberNotFound(NotFound):
    """The environment has no member of this id: it left, was silent for too long, or never joined."""

    code = "member_not_found"
    remedy = "Join the environment again."


class GroupNotFound(NotFound):
    """The run has no group of this id, or has forgotten it."""

    code = "group_not_found"
    remedy = "Check the id. The run forgets a group `history_retention_s` seconds after the group has left."


class BatchNotFound(NotFound):
    """The run has no batch of this id, or has forgotten it."""

    code = "batch_not_found"
    remedy = "Take another batch. `GET /v1/runs/{run}/batches` lists those that trainers hold."


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
    """The replay buffer has no snapshot of this name, or has removed it for a newer one."""

    code = "snapshot_not_found"
    remedy = "Check the name in the list of snapshots. `keep_snapshots` of the buffer limits how many it keeps."


class CurriculumNotFound(NotFound):
    """The run has no curriculum of this name."""

    code = "curriculum_not_found"
    remedy = "Create it with `PUT /v1/runs/{run}/curricula/{curriculum}` (SDK: `Curriculum.set_up`), or check the name."


class ItemNotFound(NotFound):
    """The curriculum has no item of this key."""

    code = "item_not_found"
    remedy = "Register the item first, or check the key."


class DatasetNotFound(NotFound):
    """The service has no dataset at this path, or reads no datasets."""

    code = "dataset_not_found"
    remedy = "Give a path below LACHESIS_DATASETS_DIR of the service."


class Conflict(ServiceError):
    """The request does not fit the present state. Nothing was changed."""

    code = "conflict"
    status = 409
    remedy = "Read the present state and send a request that fits it."


class RunExists(Conflict):
    """A run of this name exists with other settings."""

    code = "run_exists"
    remedy = "Ask for these settings, change the run with `PATCH /v1/runs/{run}`, or use another name."


class EnvironmentSettingsDiffer(Conflict):
    """A member joins a live environment with other settings than the environment has."""

    code = "environment_settings_differ"
    remedy = "Leave the settings out to join with the present ones, or set `change_settings` to change them for all."


class RunArchived(Conflict):
    """The run is archived: it accepts no groups and hands out no batches."""

    code = "run_archived"
    remedy = 'Reopen the run with `PATCH /v1/runs/{run}` and `{"archived": false}`, or use another run.'


class RunInUse(Conflict):
    """Groups keep arriving while the run is being removed."""

    code = "run_in_use"
    remedy = "Stop the environments of the run, then remove it again."


class GroupExists(Conflict):
    """The run has a group of this id with other contents."""

    code = "group_exists"
    remedy = "Give each group an id of its own."


class GroupNotWaiting(Conflict):
    """The group is in a batch or has left the run, so it cannot be deleted."""

    code = "group_not_waiting"
    remedy = "Delete only groups that wait. `GET /v1/runs/{run}/groups/{group}` says where a group is."


class FragmentExists(Conflict):
    """The worker sent a fragment of this number before, with other contents."""

    code = "fragment_exists"
    remedy = "Number the fragments of a session from 0 without repetition, or begin a new session."


class LeaseLost(Conflict):
    """The batch or sample is no longer held under this lease: it ended, or another trainer has it."""

    code = "lease_lost"
    remedy = "Drop the data and take another batch or sample."


class BatchInUse(Conflict):
    """The batch is not quarantined: a trainer holds it or will get it."""

    code = "batch_in_use"
    remedy = "Drop only quarantined batches. Acknowledge or nack the others."


class NotAnAtroposRun(Conflict):
    """The run was created under `/v1`, so clients of Atropos cannot reset it."""

    code = "not_an_atropos_run"
    remedy = "Remove the run with `DELETE /v1/runs/{run}`, or use another one for Atropos."


class RewindImpossible(Conflict):
    """The run no longer keeps all batches after that step."""

    code = "rewind_impossible"
    remedy = "Rewind to a later step. To go back further another time, raise `keep_batches` and `keep_bytes`."


class RunRewound(Conflict):
    """The run was rewound after this trainer began."""

    code = "run_rewound"
    remedy = "Load the saved state and start the training loop again."


class RanksDisagree(Conflict):
    """This rank asks to divide the batch in another way than the ranks before it."""

    code = "ranks_disagree"
    remedy = "Give all ranks the same world size, cost and limits."


class StepMismatch(Conflict):
    """The next batch for this rank belongs to another step than the rank is at."""

    code = "step_mismatch"
    remedy = "Load the same saved state on all ranks, and rewind the run to its step."


class QueueFull(ServiceError):
    """The run holds as much as its limits allow. Nothing was stored."""

    code = "queue_full"
    status = 429
    remedy = "Send it again later. If this lasts, train faster or raise `max_queued_groups` and `max_queued_bytes`."
    retry_after_s = 1.0


class ReplayBlocked(QueueFull):
    """The rate limiter of the replay buffer holds inserts back until trainers sample more."""

    code = "replay_blocked"
    remedy = "Send it again later. If this lasts, sample faster or widen the limiter's band."


class TooManyConflicts(ServiceError):
    """Other requests changed the same thing during every attempt. Nothing of this request was stored."""

    code = "too_many_conflicts"
    status = 503
    remedy = "Send the request again in a second. If this lasts, send fewer requests at the same time."
    retry_after_s = 1.0


class StoreUnavailable(ServiceError):
    """Redis did not answer in time. The outcome of the request is unknown."""

    code = "store_unavailable"
    status = 503
    remedy = "Send the request again: repetition is safe. If this lasts, check that Redis runs."
    retry_after_s: float | None = 2.0


class StoreFull(StoreUnavailable):
    """Redis is out of memory. Nothing was stored, and nothing is lost."""

    code = "store_full"
    status = 507
    remedy = "Free memory: train or drop queued groups, lower replay limits, or raise `maxmemory` of Redis."
    retry_after_s = 10.0


class StoreRefused(StoreUnavailable):
    """Redis rejected a command: a key has another type than expected, or the ACL forbids the command."""

    code = "store_refused"
    status = 500
    remedy = "Check the ACL of the service's Redis user, and that nothing else writes keys under `lachesis:`."
    retry_after_s = None


class UnreadableRecord(StoreUnavailable):
    """A record of a run in Redis cannot be read: something other than the service wrote it."""

    code = "unreadable_record"
    status = 500
    remedy = "Repair the record in Redis, or remove the run with `DELETE /v1/runs/{run}`."
    retry_after_s = None


class StoreMisconfigured(StoreUnavailable):
    """This Redis cannot keep the promises of the service, so the service does not start."""

    code = "store_misconfigured"
    remedy = "Change the setting that the message names, and start the service again."


class MaintenanceEnded(ServiceError):
    """The background maintenance of this process of the service has ended. Only `/readyz` answers this."""

    code = "maintenance_ended"
    status = 503
    remedy = "Restart the process. Its log says why maintenance ended."
    retry_after_s = 2.0


class InternalError(ServiceError):
    """A bug of the service."""

    code = "internal_error"
    remedy = "Report it with the traceback in the log of the service."


def place(location: Sequence[str | int]) -> str:
    """Write a location as people do: ``tokens[3][17]``."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location).removeprefix(".")


def meaning(cls: type[ServiceError]) -> str:
    """Return what an error means, in a sentence or two."""
    return (cls.__doc__ or "").partition("\n")[0]


def descendants(cls: type[ServiceError]) -> Iterator[type[ServiceError]]:
    """Yield every class below ``cls``, parents first."""
    for sub in cls.__subclasses__():
        yield sub
        yield from descendants(sub)


BY_CODE: dict[str, type[ServiceError]] = {cls.code: cls for cls in descendants(ServiceError)}
"""The class of each code."""
