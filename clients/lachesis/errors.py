"""What can go wrong, as one tree.

    LachesisError
    ├── Unreachable                 no answer, after the last repetition: the outcome is unknown
    ├── NoBatch                     no batch formed in the time given; the message says what is missing
    ├── NoPermit                    no group was wanted in the time given; the message says why
    ├── NoItem                      a curriculum had none to hand out in the time given; the message says why
    ├── NotSent                     groups that an environment could not hand over
    ├── FetchFailed                 a loader could not load a sample
    └── ServiceError                the service said no, with a code not known here
        ├── InvalidInput            what was sent cannot be accepted; nothing was stored       422
        │   ├── MalformedBody       not the format it claims to be                             400
        │   ├── BodyTooLarge        more bytes than the service takes in one request           413
        │   ├── UnsupportedEncoding a Content-Encoding that the service does not read          415
        │   ├── UnsupportedMediaType a Content-Type that the service does not read            415
        │   ├── NotAcceptable       the reply was asked for in a form that there is not        406
        │   ├── RequestTimeout      the body stopped arriving                                  408
        │   ├── InvalidDataset      a dataset on the service's disk is broken                  422
        │   └── InvalidField        a value is wrong; `errors` says where                      422
        │       └── SequenceTooLong a sequence is longer than the run, or a micro-batch, takes
        ├── Forbidden               the service refuses the request, whatever it asks for      403
        │   ├── CrossSiteRequest    it has the headers of a web page
        │   └── ForeignHost         the service does not know the host name of its URL
        ├── NotFound                it is not there (any more)                                 404
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
        ├── Conflict                it is there, but not as the request wants it               409
        │   ├── RunExists           a run of that name has other settings
        │   ├── EnvironmentSettingsDiffer   other members of the environment have other settings
        │   ├── RunInUse            groups keep coming while the run is being removed
        │   ├── RunArchived         the run takes no groups and hands out no batches
        │   ├── GroupExists         a group of that id has other contents
        │   ├── GroupNotWaiting     the group is in a batch, or has left: it cannot be deleted
        │   ├── FragmentExists      a fragment of that number has other contents
        │   ├── NotAnAtroposRun     the run was made under /v1: Atropos clients do not reset it
        │   ├── BatchInUse          the batch is not set aside, but in somebody's hands
        │   ├── LeaseLost           the batch or sample ended, or was handed out again, meanwhile
        │   ├── RewindImpossible    no batches are kept from that step on
        │   ├── RunRewound          the run went back to a saved state after this trainer began
        │   ├── RanksDisagree       the ranks before this one divide the batch otherwise
        │   └── StepMismatch        the batch this rank would get is of another step
        ├── QueueFull               the run's capacity is used up; try again later             429
        │   └── ReplayBlocked       the replay buffer takes no more before it is sampled
        └── StoreUnavailable        Redis did not answer in time; the outcome is unknown       503
            ├── StoreFull           Redis is out of memory; nothing was stored                 507
            ├── StoreRefused        Redis took a command for wrong                             500
            ├── UnreadableRecord    a record of the run in Redis is damaged                   500
            └── StoreMisconfigured  Redis cannot keep the service's promises                   503

Each class below ``ServiceError`` is one ``code`` of the service's answers.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, ClassVar


class LachesisError(Exception):
    """Something went wrong between this process and the service."""


class Unreachable(LachesisError):
    """No answer came, however often the request was repeated. Whether it was carried out is unknown."""


class NoBatch(LachesisError, TimeoutError):
    """No batch formed in the time given; the message says what the service was waiting for."""


class NoPermit(LachesisError, TimeoutError):
    """No group was wanted of an environment in the time given; the message says why."""


class NoItem(LachesisError, TimeoutError):
    """A curriculum had no item to hand out in the time given; the message says why."""


class NotSent(LachesisError):
    """Groups that an environment could not hand over; nothing of them is stored, as far as is known.

    Attributes:
        failures: What went wrong with each group, by its id.
    """

    def __init__(self, failures: dict[str, LachesisError]) -> None:
        first, reason = next(iter(failures.items()))
        others = f", and {len(failures) - 1} more" if len(failures) > 1 else ""
        super().__init__(f"group {first} was not sent: {reason}{others}")
        self.failures = failures

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.failures,), self.__dict__


class FetchFailed(LachesisError):
    """A loader could not load a sample; its cause says why.

    Attributes:
        key: The sample's.
    """

    def __init__(self, key: object, reason: str) -> None:
        super().__init__(key, reason)  # so that it can be pickled: it may have to leave a worker's process
        self.key = key

    def __str__(self) -> str:
        return "{!r} could not be loaded: {}".format(*self.args)


class ServiceError(LachesisError):
    """The service said no.

    Attributes:
        status: The HTTP status.
        code: The stable code of what went wrong.
        detail: What was wrong, with the values in it.
        errors: For wrong values: ``loc``, the path from the body's root, and ``msg``, for each.
        retry_after_s: When the service suggests to ask again, or None.
    """

    known_code: ClassVar[str | None] = None
    hint: ClassVar[str] = ""
    """What to do about it, where there is one thing: it ends the message."""

    def __init__(
        self,
        detail: str,
        *,
        status: int,
        code: str,
        errors: Sequence[dict[str, Any]] = (),
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(f"{detail}; {self.hint}" if self.hint else detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.errors = tuple(errors)
        self.retry_after_s = retry_after_s

    def __reduce__(self) -> tuple[Any, ...]:
        """Let it leave a worker's process: pickle calls a class without keyword arguments."""
        return partial(type(self), status=self.status, code=self.code), (self.detail,), self.__dict__

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r}, status={self.status}, code={self.code!r})"


class InvalidInput(ServiceError):
    """What was sent cannot be accepted; nothing was stored."""

    known_code = "invalid_input"


class MalformedBody(InvalidInput):
    """The body is not the format it claims to be."""

    known_code = "malformed_body"


class BodyTooLarge(InvalidInput):
    """The body has more bytes than the service takes in one request."""

    known_code = "body_too_large"


class UnsupportedEncoding(InvalidInput):
    """The service does not read this Content-Encoding."""

    known_code = "unsupported_encoding"


class UnsupportedMediaType(InvalidInput):
    """The service does not read this Content-Type."""

    known_code = "unsupported_media_type"


class NotAcceptable(InvalidInput):
    """The service has no reply of the form that was asked for."""

    known_code = "not_acceptable"


class RequestTimeout(InvalidInput):
    """The body stopped arriving for too long; nothing was stored."""

    known_code = "request_timeout"


class InvalidDataset(InvalidInput):
    """A dataset on the service's disk is broken, or of no layout that it reads; the message names the file."""

    known_code = "invalid_dataset"


class InvalidField(InvalidInput):
    """A value is wrong; ``errors`` says where. Also raised before anything is sent, where that can be seen here."""

    known_code = "invalid_field"


class SequenceTooLong(InvalidField):
    """A sequence has more tokens than the run takes, or than fit into a micro-batch; the message names it."""

    known_code = "sequence_too_long"


class Forbidden(ServiceError):
    """The service refuses the request, whatever it asks for."""

    known_code = "forbidden"


class CrossSiteRequest(Forbidden):
    """The request has the headers of a web page of another site."""

    known_code = "cross_site_request"


class ForeignHost(Forbidden):
    """The service does not know the host name of its URL; the message says which setting of the service to change."""

    known_code = "foreign_host"


class NotFound(ServiceError):
    """It is not there, or not any more."""

    known_code = "not_found"


class RunNotFound(NotFound):
    """There is no run of that name."""

    known_code = "run_not_found"
    hint = "a trainer makes it: Trainer.create_run(batch_size=...)"


class EnvironmentNotFound(NotFound):
    """There is no such environment in the run."""

    known_code = "environment_not_found"


class MemberNotFound(NotFound):
    """The environment has no member of that id: it left, or was silent for too long. Join again."""

    known_code = "member_not_found"


class GroupNotFound(NotFound):
    """There is no such group, or it is too long since it left."""

    known_code = "group_not_found"


class BatchNotFound(NotFound):
    """There is no such batch, or it is too long since it ended."""

    known_code = "batch_not_found"


class ReplayNotFound(NotFound):
    """The run has no replay buffer."""

    known_code = "replay_not_found"
    hint = "a trainer makes it: Replay.set_up(...)"


class FragmentNotFound(NotFound):
    """The replay buffer has no such fragment, or not any more."""

    known_code = "fragment_not_found"


class SampleNotFound(NotFound):
    """There is no such sample, or it is too long since it ended."""

    known_code = "sample_not_found"


class SnapshotNotFound(NotFound):
    """The replay buffer has no snapshot of this name, or no longer."""

    known_code = "snapshot_not_found"


class CurriculumNotFound(NotFound):
    """The run has no curriculum of this name."""

    known_code = "curriculum_not_found"


class ItemNotFound(NotFound):
    """The curriculum has no such item."""

    known_code = "item_not_found"


class DatasetNotFound(NotFound):
    """The service has no dataset at this path, or reads none."""

    known_code = "dataset_not_found"


class Conflict(ServiceError):
    """It is there, but not as the request wants it."""

    known_code = "conflict"


class RunExists(Conflict):
    """A run of that name is there already, with other settings."""

    known_code = "run_exists"


class EnvironmentSettingsDiffer(Conflict):
    """The environment is alive with other settings than those given; ``change_settings=True`` changes them for all."""

    known_code = "environment_settings_differ"


class RunInUse(Conflict):
    """Groups keep coming while the run is being removed: stop what sends them first."""

    known_code = "run_in_use"


class RunArchived(Conflict):
    """The run is archived: it takes no groups and hands out no batches."""

    known_code = "run_archived"


class GroupExists(Conflict):
    """A group of that id was submitted before, with other contents."""

    known_code = "group_exists"


class GroupNotWaiting(Conflict):
    """The group is in a batch or has left, so it cannot be deleted; the message says where it is."""

    known_code = "group_not_waiting"


class FragmentExists(Conflict):
    """The worker has sent a fragment of that number before, with other contents."""

    known_code = "fragment_exists"


class NotAnAtroposRun(Conflict):
    """The run was made under ``/v1``: clients of Atropos do not reset it."""

    known_code = "not_an_atropos_run"


class BatchInUse(Conflict):
    """The batch is not quarantined: it is in somebody's hands, or on its way."""

    known_code = "batch_in_use"


class LeaseLost(Conflict):
    """The batch or sample is no longer held under this lease: it ended, or was handed on. Nothing has changed."""

    known_code = "lease_lost"


class RewindImpossible(Conflict):
    """The batches since that step are not kept; the message says which step the run can still go back to."""

    known_code = "rewind_impossible"


class RunRewound(Conflict):
    """Another trainer rewound the run after this one began: load the saved state, then open another loop."""

    known_code = "run_rewound"


class RanksDisagree(Conflict):
    """The ranks that have this batch divide it otherwise than this one would; the message says in what."""

    known_code = "ranks_disagree"


class StepMismatch(Conflict):
    """The batch this rank would get is of another step than the one it says it is at."""

    known_code = "step_mismatch"


class QueueFull(ServiceError):
    """The run's capacity is used up. Try again later."""

    known_code = "queue_full"


class ReplayBlocked(QueueFull):
    """The replay buffer takes no more before it is sampled; the message says how far ahead it is. Try again later."""

    known_code = "replay_blocked"


class StoreUnavailable(ServiceError):
    """The service's Redis did not answer in time. Whether the request was carried out is unknown."""

    known_code = "store_unavailable"


class StoreFull(StoreUnavailable):
    """The service's Redis is out of memory; nothing was stored."""

    known_code = "store_full"


class StoreRefused(StoreUnavailable):
    """The service's Redis took a command for wrong; its operators must look."""

    known_code = "store_refused"


class UnreadableRecord(StoreUnavailable):
    """A record of the run in Redis cannot be read: something else wrote it. Tell the operator."""

    known_code = "unreadable_record"


class StoreMisconfigured(StoreUnavailable):
    """The service's Redis cannot keep its promises; its operators must look."""

    known_code = "store_misconfigured"


def _below(cls: type[ServiceError]) -> Iterator[type[ServiceError]]:
    for sub in cls.__subclasses__():
        yield sub
        yield from _below(sub)


BY_CODE = {cls.known_code: cls for cls in _below(ServiceError)}
"""The class of each code; what is not in it is a plain `ServiceError`."""
