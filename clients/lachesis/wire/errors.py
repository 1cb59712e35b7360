"""The errors that the service answers: the one definition of each, for the service, the SDK and the documents.

Each class has a ``code``, an HTTP ``status`` and a ``remedy``. Its docstring is its meaning in OpenAPI and in
docs/reference/errors.md (`make reference`). The service raises these classes, and the SDK raises them again.
"""

from collections.abc import Sequence

from lachesis.wire.access_errors import ClosedByDefault as ClosedByDefault
from lachesis.wire.access_errors import CrossSiteRequest as CrossSiteRequest
from lachesis.wire.access_errors import Forbidden as Forbidden
from lachesis.wire.access_errors import ForeignHost as ForeignHost
from lachesis.wire.access_errors import IssuerUnavailable as IssuerUnavailable
from lachesis.wire.access_errors import PermissionDenied as PermissionDenied
from lachesis.wire.access_errors import Unauthorized as Unauthorized
from lachesis.wire.error_base import LachesisError as LachesisError
from lachesis.wire.error_base import ServiceError as ServiceError
from lachesis.wire.error_base import descendants as descendants
from lachesis.wire.problems import place, wrong_value


class InvalidInput(ServiceError):
    """The service cannot accept the request. Nothing was stored."""

    code, status = "invalid_input", 422
    remedy = "Correct the request and send it again."


class MalformedBody(InvalidInput):
    """The body is not in the format that its headers name."""

    code, status = "malformed_body", 400
    remedy = "Send the body in the format of its Content-Type and Content-Encoding."


class BadRequest(InvalidInput):
    """The bytes on the connection are not an HTTP request. The service closes the connection."""

    code, status = "bad_request", 400
    remedy = "Send HTTP on a new connection, in plain text or through a proxy that ends TLS."


class MethodNotAllowed(InvalidInput):
    """The path exists, and does not take this method. The `Allow` header lists the methods that it takes."""

    code, status = "method_not_allowed", 405
    remedy = "Use one of the methods that the message names."


class HeadersTooLarge(InvalidInput):
    """The request line and headers exceed the size limit. The service closes the connection."""

    code, status = "request_header_fields_too_large", 431
    remedy = "Send shorter headers, cookies and query parameters on a new connection."


class BodyTooLarge(InvalidInput):
    """The body exceeds the size limit, as sent or decompressed."""

    code, status = "body_too_large", 413
    remedy = "Send less in one request. If the limit is LACHESIS_MAX_BODY_BYTES of the service, you can raise it."


class UnsupportedEncoding(InvalidInput):
    """The service does not read this Content-Encoding."""

    code, status = "unsupported_encoding", 415
    remedy = "Send the body as it is, or with one layer of gzip."


class UnsupportedMediaType(InvalidInput):
    """The service does not read this Content-Type at this path."""

    code, status = "unsupported_media_type", 415
    remedy = "Send one of the types that the message names."


class NotAcceptable(InvalidInput):
    """The service has no reply in a type that the request accepts."""

    code, status = "not_acceptable", 406
    remedy = "Accept one of the types that the message names."


class RequestTimeout(InvalidInput):
    """The body stopped arriving, or was slow while others waited for memory. Nothing was stored."""

    code, status = "request_timeout", 408
    remedy = "Send the request again. If the network is slow, raise the setting that the message names."
    retry_after_s = 2.0


class InvalidDataset(InvalidInput):
    """A dataset on the service's disk is broken, or has a layout that the service does not read."""

    code = "invalid_dataset"
    remedy = "Repair the file that the message names."
    _detail_says_all = True  # it names the file and the fault


class InvalidField(InvalidInput):
    """A value in the body, the path or the query is wrong. The SDK raises this before sending where it can.

    Args:
        message: What is wrong, with the value.
        location: Where: the path from the body's root, field names and positions from 0; of a parameter, ``query`` or
            ``path`` and its name.
    """

    code = "invalid_field"
    remedy = "Correct the value. `errors` names its place."
    _detail_says_all = True  # it names the place and the value

    def __init__(self, message: str, location: Sequence[str | int] = ()) -> None:
        wrong = wrong_value(message, location)
        super().__init__(f"{place(wrong['loc'])}: {wrong['msg']}" if location else message)
        if location:
            self.errors = (wrong,)

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

    Beside the arguments of `InvalidField` it has ``group_id``: the service's id of the group, if it is stored.
    """

    code = "sequence_too_long"
    remedy = "Send shorter sequences, raise `max_sequence_tokens` of the run, or ask for larger micro-batches."

    def __init__(self, message: str, location: Sequence[str | int] = (), group_id: str = "") -> None:
        super().__init__(message, location)
        self.group_id = group_id


class NotFound(ServiceError):
    """No endpoint exists at this path, or no object with this name or id."""

    code, status = "not_found", 404
    remedy = "Check the path, name or id. `/docs` lists all endpoints."


class RunNotFound(NotFound):
    """No run has this name."""

    code = "run_not_found"
    remedy = "Create the run with `POST /v1/runs` (SDK: `Trainer.create_run`), or check the name and your token."


class TokenNotFound(NotFound):
    """No token has this id."""

    code = "token_not_found"
    remedy = "Check the id with `GET /v1/tokens`. A token is forgotten 7 days after it has ended."


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


class GroupGone(ServiceError):
    """The group has left the run, and its contents are not kept any more. The message says why, and since when."""

    code, status = "group_gone", 410
    remedy = (
        "Read contents while the group waits, is in a batch, or is kept for a rewind (`keep_batches`) or for replay."
    )


class AnnotationsFull(ServiceError):
    """The annotations of the run take too much memory. Nothing was stored."""

    code, status = "annotations_full", 429
    remedy = "Shorten `history_retention_s`, or annotate fewer groups."


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
    """The replay buffer has no snapshot of this name, or has replaced it with a newer snapshot."""

    code = "snapshot_not_found"
    remedy = "Check the name in the list of snapshots. `keep_snapshots` of the buffer limits their number."


class CurriculumNotFound(NotFound):
    """The run has no curriculum of this name."""

    code = "curriculum_not_found"
    remedy = "Check the name, or create the curriculum with `PUT /v1/runs/{run}/curricula/{curriculum}`."


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

    code, status = "conflict", 409
    remedy = "Read the present state and send a request that fits it."


class RunExists(Conflict):
    """A run of this name exists with other settings."""

    code = "run_exists"
    remedy = "Ask for these settings, change the run with `PATCH /v1/runs/{run}`, or use another name."


class TooManyRuns(Conflict):
    """The service has the largest number of runs."""

    code = "too_many_runs"
    remedy = "Delete runs that are not needed: `GET /v1/runs` lists them, also those without settings."


class EnvironmentSettingsDiffer(Conflict):
    """A member joins a live environment with other settings than the environment has."""

    code = "environment_settings_differ"
    remedy = "Join without settings to take those of the environment, or set `change_settings` to change them for all."


class RunArchived(Conflict):
    """The run is archived: it accepts no groups and hands out no batches."""

    code = "run_archived"
    remedy = 'Reopen the run with `PATCH /v1/runs/{run}` and `{"archived": false}`, or use another run.'


class RunInUse(Conflict):
    """Groups keep arriving while the run is being removed."""

    code = "run_in_use"
    remedy = "Stop the environments of the run. Then remove the run again."


class GroupExists(Conflict):
    """The run has a group of this id with other contents."""

    code = "group_exists"
    remedy = "If it is the same group in another format, it is stored already. If not, give it an id of its own."


class GroupNotWaiting(Conflict):
    """The group is in a batch or has left the run, so it cannot be deleted."""

    code = "group_not_waiting"
    remedy = "Delete waiting groups only. `GET /v1/runs/{run}/groups/{group}` says where a group is."


class FragmentExists(Conflict):
    """The worker sent a fragment of this number before with other contents."""

    code = "fragment_exists"
    remedy = "Number the fragments of a session from 0 without repetition, or begin a new session."


class LeaseLost(Conflict):
    """The lease of the batch or sample has ended, or another trainer has the batch or sample."""

    code = "lease_lost"
    remedy = "Drop the data and take another batch or sample."


class BatchInUse(Conflict):
    """The batch is not quarantined: a trainer holds it or will get it."""

    code = "batch_in_use"
    remedy = "Drop quarantined batches only. Acknowledge or nack other batches."


class NotAnAtroposRun(Conflict):
    """The run was created under `/v1`, so clients of Atropos cannot reset it or replace its configuration."""

    code = "not_an_atropos_run"
    remedy = "Remove the run with `DELETE /v1/runs/{run}`, or use another run for Atropos."


class RewindImpossible(Conflict):
    """The run no longer keeps all batches after the step."""

    code = "rewind_impossible"
    remedy = "Rewind to a later step. Raise `keep_batches` and `keep_bytes` to keep more batches from now on."


class RunRewound(Conflict):
    """The run was rewound after this trainer began."""

    code = "run_rewound"
    remedy = "Load the saved state and start the training loop again."


class RanksDisagree(Conflict):
    """This rank asks for another division of the batch than the ranks before it."""

    code = "ranks_disagree"
    remedy = "Give all ranks the same world size, cost and limits."


class StepMismatch(Conflict):
    """The next batch for this rank belongs to another step than the rank is at."""

    code = "step_mismatch"
    remedy = "Load the same saved state on all ranks, and rewind the run to its step."


class QueueFull(ServiceError):
    """The waiting groups of the run, or those of the token, have reached a limit. Nothing was stored."""

    code, status, retry_after_s = "queue_full", 429, 1.0
    remedy = "Send the groups later. If this lasts, train faster, or raise `max_queued_groups` or `max_queued_bytes`."


class IntakePaused(ServiceError):
    """An operator has paused the intake of the run. Nothing was stored."""

    code, status, retry_after_s = "intake_paused", 429, 2.0
    remedy = 'Send the groups again later. Intake resumes after `PATCH /v1/runs/{run}` with `{"intake_paused": false}`.'


class TooManyNewEnvironments(ServiceError):
    """The sender brings environments of new names into the run too fast, or too many. Nothing was stored."""

    code, status, retry_after_s = "too_many_new_environments", 429, 1.0
    remedy = "Join again later, or join an environment that exists. If the message names a setting, raise it."


class RunFull(ServiceError):
    """The run has the largest number of environments or members. Nothing was stored."""

    code, status, retry_after_s = "run_full", 429, 5.0
    remedy = "Join again later: the run forgets silent ones. Or end those that are not needed."


class TooManyConnections(ServiceError):
    """The service, an address, a token or a run has too many open connections. The service closes this one."""

    code, status, retry_after_s = "too_many_connections", 429, 5.0
    remedy = "Close idle connections, or raise the setting that the message names."


class TooManyReads(ServiceError):
    """Replies with contents of groups or fragments, which clients have not yet taken, fill the memory for them."""

    code, status, retry_after_s = "too_many_reads", 429, 5.0
    remedy = "Read each reply to its end before you ask for the next, and ask for fewer contents at a time."


class RateLimited(ServiceError):
    """The token or the run sends more per second than a limit allows. Nothing was stored."""

    code, status, retry_after_s = "rate_limited", 429, 1.0
    remedy = "Send the request again after `Retry-After`. If this lasts, send less, or raise the limit."

    def __init__(self, detail: str, retry_after_s: float = 1.0) -> None:
        super().__init__(detail)
        self.retry_after_s = retry_after_s


class ReplayBlocked(QueueFull):
    """The rate limiter of the replay buffer holds inserts back until trainers sample more."""

    code = "replay_blocked"
    remedy = "Send the fragments again later. If this lasts, sample faster, or widen the band of the limiter."


class TooManyConflicts(ServiceError):
    """Other requests changed the same object during every attempt. Nothing of this request was stored."""

    code, status, retry_after_s = "too_many_conflicts", 503, 1.0
    remedy = "Send the request again in a second. If this lasts, send fewer requests at the same time."


class StoreUnavailable(ServiceError):
    """Redis did not answer in time. The outcome of the request is unknown."""

    code, status = "store_unavailable", 503
    remedy = "Send the request again: repetition is safe. If this lasts, check that Redis runs."
    retry_after_s: float | None = 2.0


class StoreFull(StoreUnavailable):
    """Redis is out of memory. Nothing of this request was stored. Earlier data stays."""

    code, status = "store_full", 507
    remedy = "Free memory: train or drop queued groups, lower replay limits, or raise `maxmemory` of Redis."
    retry_after_s = 10.0


class StoreRefused(StoreUnavailable):
    """Redis rejected a command: a key has another type than expected, or the ACL forbids the command."""

    code, status = "store_refused", 500
    remedy = "Check the ACL of the service's Redis user. Check that other programs write no keys under `lachesis:`."
    retry_after_s = None


class UnreadableRecord(StoreUnavailable):
    """A record of a run in Redis cannot be read, because another program changed it."""

    code, status = "unreadable_record", 500
    remedy = "Repair the record in Redis, or remove the run with `DELETE /v1/runs/{run}`."
    retry_after_s = None


class StoreMisconfigured(StoreUnavailable):
    """A setting, its file, or the configuration of Redis is wrong. The service does not start, or is not ready."""

    code = "store_misconfigured"
    remedy = "Change the setting that the message names, and start the service again."


class MaintenanceEnded(ServiceError):
    """Background maintenance has ended in this API process. Only `/readyz` returns this error."""

    code, status, retry_after_s = "maintenance_ended", 503, 2.0
    remedy = "Restart the process. Its log says why maintenance ended."


class ServiceStopping(ServiceError):
    """The service stops, and the body of the request was still on its way. Nothing of it was stored."""

    code, status, retry_after_s = "service_stopping", 503, 2.0
    remedy = "Send the request again. If this lasts, start the service."


class InternalError(ServiceError):
    """A bug of the service."""

    code = "internal_error"
    remedy = "Report the bug with the traceback in the log of the service."


BY_CODE: dict[str, type[ServiceError]] = {cls.code: cls for cls in descendants(ServiceError)}
"""The class of each code."""
