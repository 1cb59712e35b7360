"""What to send and how to read the answer, without I/O.

Each `Call` may be sent again when its answer was lost: it reads, it sets, or it names what it makes (a run, an
environment, groups by their ids, a batch by its request id, the end of a lease), so that the service knows it again.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NoReturn, TypeVar
from urllib.parse import quote

from pydantic import BaseModel, ValidationError

from lachesis._transport.bodies import checked, invalid
from lachesis._transport.files import FileBody, FileSink
from lachesis.errors import BY_CODE, ServiceError
from lachesis.rank import Rank
from lachesis.wire import batches, environments, frame, groups, runs
from lachesis.wire.batch_file import BatchFile
from lachesis.wire.blob import Buffer, DamagedBlob
from lachesis.wire.ranks import MAX_WAIT_S
from lachesis.wire.status import RunStatus

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)

WAITING = "lachesis-waiting"
"""Header of a reply without a batch: why there is none."""

JSON = "application/json"
"""Media type of most bodies."""

_MOST_SHOWN = 300


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer as it came.

    Attributes:
        status: The HTTP status.
        headers: By name, in lower case.
        body: All of it.
    """

    status: int
    headers: Mapping[str, str]
    body: Buffer


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """A request, and how its answer is read.

    Attributes:
        method: The HTTP method.
        path: Below the service's URL, quoted.
        read: Turns a reply of status 2xx into its value.
        params: Of the query.
        body: What is sent, in one piece or from a file.
        content_type: What the body is.
        accept: What the reply should be.
        wait_s: How long the service may take before it begins to answer, beside its usual time.
        sink: Takes the body of a reply of status 2xx, of which ``read`` then sees nothing.
        not_yet: An error that its caller waits out, so that it is not sent again for it; None: there is none.
    """

    method: str
    path: str
    read: Callable[[Reply], T]
    params: Mapping[str, str] = field(default_factory=dict)
    body: Buffer | FileBody = b""
    content_type: str | None = None
    accept: str = JSON
    wait_s: float = 0.0
    sink: FileSink | None = None
    not_yet: type[ServiceError] | None = None

    @property
    def headers(self) -> dict[str, str]:
        """What to send before the body."""
        return {"Accept": self.accept} | ({"Content-Type": self.content_type} if self.content_type else {})


@dataclass(frozen=True, slots=True)
class Taken:
    """A batch as it was handed out: what it is, and the reply that holds its columns."""

    info: batches.BatchInfo
    file: BatchFile


@dataclass(frozen=True, slots=True)
class NothingYet:
    """No batch formed in time."""

    reason: str


def read_reply(call: Call[T], reply: Reply) -> T:
    """Return what a reply says.

    Raises:
        ServiceError: The service said no, or something that this version does not understand.
    """
    if not 200 <= reply.status < 300:
        _raise_problem(reply)
    try:
        return call.read(reply)
    except (DamagedBlob, ValidationError, LookupError) as error:
        message = f"the answer to {call.method} {call.path} cannot be read: {error}"
        raise ServiceError(message, status=reply.status, code="unreadable_reply") from None


def is_gone(call: Call[T]) -> bool:
    """Whether "not found" means that ``call``, sent before, was carried out."""
    return call.method == "DELETE" and call.read is read_nothing


@dataclass(frozen=True, slots=True)
class RunCalls:
    """The requests about one run, by what they do."""

    run: str

    def create(self, new: runs.RunCreate) -> Call[runs.Run]:
        return Call("POST", "/v1/runs", model_reader(runs.Run), **json_body(new))

    def show(self) -> Call[runs.Run]:
        return Call("GET", self._path(), model_reader(runs.Run))

    def change(self, change: runs.RunChange) -> Call[runs.Run]:
        return Call("PATCH", self._path(), model_reader(runs.Run), **json_body(change))

    def delete(self) -> Call[None]:
        return Call("DELETE", self._path(), read_nothing)

    def status(self) -> Call[RunStatus]:
        return Call("GET", self._path("status"), model_reader(RunStatus))

    def join(self, new: environments.EnvironmentCreate) -> Call[environments.Joined]:
        return Call("POST", self._path("environments"), model_reader(environments.Joined), **json_body(new))

    def leave(self, environment: int, member: str) -> Call[None]:
        return Call("DELETE", self._path("environments", environment), read_nothing, {"member": member})

    def heartbeat(
        self, environment: int, member: str, running_groups: int, start_groups: int = 0
    ) -> Call[environments.Credits]:
        beat = checked(environments.Heartbeat, member=member, running_groups=running_groups, start_groups=start_groups)
        path = self._path("environments", environment, "heartbeat")
        return Call("POST", path, model_reader(environments.Credits), **json_body(beat))

    def submit(self, blobs: Sequence[Buffer]) -> Call[groups.Receipts]:
        """Build the submission of groups, each with an id of its own, in one request."""
        body = blobs[0] if len(blobs) == 1 else frame.frame(blobs, "groups")
        return Call(
            "POST", self._path("groups"), model_reader(groups.Receipts), body=body, content_type=groups.SAFETENSORS
        )

    def find_group(self, group: str) -> Call[groups.Lineage]:
        return Call("GET", self._path("groups", group), model_reader(groups.Lineage))

    def delete_group(self, group: str) -> Call[None]:
        return Call("DELETE", self._path("groups", group), read_nothing)

    def delete_groups(self, said: Mapping[str, str]) -> Call[groups.GroupsDeleted]:
        return Call("DELETE", self._path("groups"), model_reader(groups.GroupsDeleted), said)

    def take(self, take: batches.TakeBatch, wait_s: float) -> Call[Taken | NothingYet]:
        """Build the request for the next batch; ``take`` has a ``request_id``.

        Raises:
            InvalidField: ``wait_s`` is longer than the service waits, or below 0.
        """
        return self._take(take, wait_s, {})

    def take_shard(
        self, take: batches.TakeBatch, wait_s: float, rank: Rank, after: int | None
    ) -> Call[Taken | NothingYet]:
        """Build the request of a rank for its shard of the batch after step ``after``, or of its oldest.

        Raises:
            InvalidField: ``wait_s`` is longer than the service waits, or below 0.
        """
        said = rank.query() | ({} if after is None else {"after": after})
        return self._take(take, wait_s, {name: str(value) for name, value in said.items()})

    def _take(self, take: batches.TakeBatch, wait_s: float, said: Mapping[str, str]) -> Call[Taken | NothingYet]:
        if not 0 <= wait_s <= MAX_WAIT_S:
            raise invalid(f"should be 0 to {MAX_WAIT_S:g} seconds, not {wait_s}", ("wait_s",))
        return Call(
            "POST",
            self._path("batches"),
            _taken,
            {"wait_s": f"{wait_s:g}", **said},
            accept=groups.SAFETENSORS,
            wait_s=wait_s,
            **json_body(take),
        )

    def leased(self) -> Call[batches.LeasedBatches]:
        return Call("GET", self._path("batches"), model_reader(batches.LeasedBatches))

    def explain(self) -> Call[batches.Explanation]:
        return Call("GET", self._path("batches", "explain"), model_reader(batches.Explanation))

    def ack(self, batch: str, lease: str, rank: int | None = None) -> Call[batches.LeaseEnd]:
        said = {} if rank is None else {"rank": rank}
        return self._end(batch, "ack", checked(batches.Ack, lease=lease, **said))

    def nack(self, batch: str, lease: str | None, reason: str | None) -> Call[batches.LeaseEnd]:
        return self._end(batch, "nack", checked(batches.Nack, lease=lease, reason=reason and reason[:1000]))

    def extend(self, batch: str, lease: str, lease_s: float | None) -> Call[batches.LeaseEnd]:
        return self._end(batch, "extend", checked(batches.Extend, lease=lease, lease_s=lease_s))

    def discard(self, batch: str) -> Call[None]:
        return Call("DELETE", self._path("batches", batch), read_nothing)

    def set_policy_version(self, version: int, rewinds: int | None) -> Call[runs.PolicyVersionSet]:
        said = {} if rewinds is None else {"rewinds": rewinds}
        body = checked(runs.PolicyVersion, policy_version=version, **said)
        return Call("PUT", self._path("policy-version"), model_reader(runs.PolicyVersionSet), **json_body(body))

    def checkpoint(self, step: int, policy_version: int | None, rewinds: int | None) -> Call[runs.RetentionState]:
        said = {"policy_version": policy_version, "rewinds": rewinds}
        body = checked(runs.Checkpoint, step=step, **{name: value for name, value in said.items() if value is not None})
        return Call("POST", self._path("checkpoints"), model_reader(runs.RetentionState), **json_body(body))

    def rewind(self, step: int) -> Call[runs.Rewound]:
        return Call(
            "POST", self._path("rewind"), model_reader(runs.Rewound), **json_body(checked(runs.Rewind, step=step))
        )

    def _end(self, batch: str, verb: str, body: BaseModel) -> Call[batches.LeaseEnd]:
        return Call("POST", self._path("batches", batch, verb), model_reader(batches.LeaseEnd), **json_body(body))

    def _path(self, *parts: object) -> str:
        return "/v1/runs/" + "/".join(quote(str(part), safe="") for part in (self.run, *parts))


def get_json(path: str) -> Call[Any]:
    """Build a request for any JSON, such as ``/version``."""
    return Call("GET", path, _any_json)


def json_body(body: BaseModel) -> dict[str, Any]:
    """Return what a `Call` with this body in JSON has beside its method and path."""
    # Only what was set: an older service refuses fields it does not know, and a change must name no others.
    return {"body": body.model_dump_json(exclude_unset=True).encode(), "content_type": JSON}


def model_reader(cls: type[M]) -> Callable[[Reply], M]:
    """Return what reads a reply in JSON."""
    return lambda reply: cls.model_validate_json(bytes(reply.body))


def read_nothing(_: Reply) -> None:
    """Read a reply without a body."""


def _any_json(reply: Reply) -> Any:
    try:
        return json.loads(bytes(reply.body))
    except ValueError as error:
        raise LookupError(f"it is not JSON: {error}") from None


def _taken(reply: Reply) -> Taken | NothingYet:
    if reply.status == 204:
        return NothingYet(reply.headers.get(WAITING, "the service did not say why"))
    file = BatchFile(reply.body)
    info = batches.BatchInfo.model_validate_json(file.metadata["batch"])
    if len(info.groups) != file.group_count:
        raise DamagedBlob(f"{len(info.groups)} groups are described and {file.group_count} are there")
    return Taken(info, file)


def _raise_problem(reply: Reply) -> NoReturn:
    try:
        problem = json.loads(bytes(reply.body))
        code, detail, errors = str(problem["code"]), str(problem["detail"]), list(problem.get("errors", []))
    except (ValueError, LookupError, TypeError):  # something between us and the service answered
        code, errors = f"http_{reply.status}", []
        detail = f"status {reply.status}: {bytes(reply.body[:_MOST_SHOWN]).decode('utf-8', 'replace')}"
    cls = BY_CODE.get(code, ServiceError)
    raise cls(detail, status=reply.status, code=code, errors=errors, retry_after_s=_retry_after_s(reply))


def _retry_after_s(reply: Reply) -> float | None:
    seconds = reply.headers.get("retry-after", "")
    return float(seconds) if seconds.isascii() and seconds.isdigit() else None  # the service never names a date
