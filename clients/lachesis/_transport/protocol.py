"""Build requests and read replies, without I/O.

Each `Call` may be sent again when its answer was lost. Most of them read, set, or name what they make: a run, an
environment, a group by its id, the end of a lease. Batches and rewinds have a request id. So the service recognises a
repetition. It does not recognise that a replay buffer or a curriculum is restored again, which discards what arrived in
between.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, NoReturn, TypeVar
from urllib.parse import quote

from pydantic import BaseModel, ValidationError

from lachesis._transport.bodies import checked
from lachesis._transport.files import FileBody, FileSink
from lachesis._transport.tracing import TraceHeaders
from lachesis.errors import BY_CODE, InvalidField, ServiceError
from lachesis.wire import batches
from lachesis.wire.blob import Buffer, DamagedBlob
from lachesis.wire.limits import MAX_WAIT_S

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)

WAITING = "lachesis-waiting"
"""Header of a reply without a batch: why there is none."""

JSON = "application/json"
"""Media type of most bodies."""

REQUEST_BYTES = 8 * 1024 * 1024
"""Maximum number of bytes that are sent together. A single group, fragment or item may be larger."""

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
    """A request, and how to read its answer.

    Attributes:
        method: The HTTP method.
        path: Below the service's URL, quoted.
        read: Turns a reply of status 2xx into its value.
        params: Of the query.
        body: What is sent, in one piece or from a file.
        content_type: What the body is.
        accept: What the reply should be.
        wait_s: How long the service may wait before it answers, in addition to its usual time.
        sink: Receives the body of a reply of status 2xx; ``read`` then gets an empty body.
        not_yet: An error that the caller waits out itself: the call is not repeated for it. None means no such error.
        trace: The headers of the span that it belongs to. None means the present one of the task that sends it.
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
    trace: TraceHeaders | None = None

    @property
    def headers(self) -> dict[str, str]:
        """What to send before the body."""
        return {"Accept": self.accept} | ({"Content-Type": self.content_type} if self.content_type else {})


@dataclass(frozen=True, slots=True)
class NothingYet:
    """There is no batch or sample yet, and why."""

    reason: str


class LeaseTime(BaseModel):
    """What the SDK reads of a reply to ack, nack and extend: seconds the lease lasts from now, if it was extended."""

    lease_s: float | None = None


def read_reply(call: Call[T], reply: Reply) -> T:
    """Return the value of a reply.

    Raises:
        ServiceError: The service refused the request, this version cannot read the reply, or it is not the service's.
    """
    if not 200 <= reply.status < 300 or _is_web_page(reply):
        _raise_problem(reply)
    try:
        return call.read(reply)
    except (DamagedBlob, ValidationError, LookupError) as error:
        message = f"the answer to {call.method} {call.path} cannot be read: {error}"
        unreadable = ServiceError(message)
        unreadable.code, unreadable.status = "unreadable_reply", reply.status
        raise unreadable from None


def is_gone(call: Call[T]) -> bool:
    """Return whether "not found" means that an earlier attempt of ``call`` was carried out."""
    return call.method == "DELETE" and call.read is read_nothing


@dataclass(frozen=True, slots=True)
class LeaseCalls:
    """The requests that end or extend the lease of one batch or one sample.

    Attributes:
        path: The batch or sample, below the service's URL.
        lease: The lease; None for a batch that no trainer holds.
        rank: Of a batch that is divided: whose shard it is.
    """

    path: str
    lease: str | None
    rank: int | None = None

    def ack(self) -> Call[LeaseTime]:
        given = {} if self.rank is None else {"rank": self.rank}
        return self._end("ack", checked(batches.Ack, lease=self.lease, **given))

    def nack(self, reason: str | None) -> Call[LeaseTime]:
        return self._end("nack", checked(batches.Nack, lease=self.lease, reason=reason and reason[:1000]))

    def extend(self, lease_s: float | None) -> Call[LeaseTime]:
        return self._end("extend", checked(batches.Extend, lease=self.lease, lease_s=lease_s))

    def _end(self, verb: str, body: BaseModel) -> Call[LeaseTime]:
        return Call("POST", f"{self.path}/{verb}", model_reader(LeaseTime), **json_body(body))


def path_of(run: str, *parts: object) -> str:
    """Return a path of a run, quoted."""
    return "/v1/runs/" + "/".join(quote(str(part), safe="") for part in (run, *parts))


def query_of(**values: object) -> dict[str, str]:
    """Return the query of a request. None means that a parameter is not given."""
    return {name: str(value) for name, value in values.items() if value is not None}


def checked_wait(wait_s: float) -> dict[str, str]:
    """Return the query of a request that waits.

    Raises:
        InvalidField: ``wait_s`` is longer than the service waits, or below 0.
    """
    if not 0 <= wait_s <= MAX_WAIT_S:
        raise InvalidField(f"should be 0 to {MAX_WAIT_S:g} seconds, not {wait_s}", ("wait_s",))
    return {"wait_s": f"{wait_s:g}"}


def get_json(path: str) -> Call[Any]:
    """Build a request for any JSON, such as ``/version``."""
    return Call("GET", path, _any_json)


def json_body(body: BaseModel) -> dict[str, Any]:
    """Return what a `Call` with this body in JSON has besides its method and path."""
    # Only what was set: an older service refuses fields it does not know, and a change must name no others.
    return {"body": body.model_dump_json(exclude_unset=True).encode(), "content_type": JSON}


def model_reader(cls: type[M], extra: Literal["ignore"] | None = "ignore") -> Callable[[Reply], M]:
    """Return what reads a reply in JSON.

    Args:
        cls: The model of the reply.
        extra: What to do with unknown fields, which a newer service may send. Settings in replies are the models of
            requests, which refuse them. None means what ``cls`` and its parts say.
    """
    return lambda reply: cls.model_validate_json(bytes(reply.body), extra=extra)


def read_nothing(_: Reply) -> None:
    """Read a reply without a body."""


def read_body(reply: Reply) -> Buffer:
    """Read a body as it is."""
    return reply.body


def _any_json(reply: Reply) -> Any:
    try:
        return json.loads(bytes(reply.body))
    except (ValueError, RecursionError) as error:
        raise LookupError(f"it is not JSON: {error}") from None


def nothing_yet(reply: Reply) -> NothingYet:
    """Read a reply without a batch or sample."""
    return NothingYet(reply.headers.get(WAITING, "the service did not say why"))


def _raise_problem(reply: Reply) -> NoReturn:
    try:
        problem = json.loads(bytes(reply.body))
        code, error = str(problem["code"]), _error(problem)
    except (ValueError, LookupError, TypeError, RecursionError):  # something between us and the service answered
        code, error = _gateway_code(reply.status), ServiceError(_not_a_problem(reply))
    error.code, error.status, error.retry_after_s = code, reply.status, _retry_after_s(reply)
    raise error


def is_from_gateway(error: ServiceError) -> bool:
    """Return whether something between us and the service gave this answer."""
    return error.code == _gateway_code(error.status)


def _gateway_code(status: int) -> str:
    return f"http_{status}"


def _not_a_problem(reply: Reply) -> str:
    """Say that something other than the service answered."""
    if _is_web_page(reply):
        return f"status {reply.status} with a web page, which Lachesis does not send: check the address, or the proxy"
    return f"status {reply.status}: {bytes(reply.body[:_MOST_SHOWN]).decode('utf-8', 'replace')}"


def _is_web_page(reply: Reply) -> bool:
    """Return whether a reply is a page for people, such as a proxy's that asks them to sign in."""
    return "html" in reply.headers.get("content-type", "")


def _error(problem: Mapping[str, Any]) -> ServiceError:
    """Build the error of a problem; of a newer service's, a `ServiceError` with its remedy."""
    error = BY_CODE.get(problem["code"], ServiceError)(str(problem["detail"]))
    error.errors = tuple(problem.get("errors", ()))
    error.remedy = error.remedy or str(problem.get("remedy", ""))
    return error


def _retry_after_s(reply: Reply) -> float | None:
    seconds = reply.headers.get("retry-after", "")
    return float(seconds) if seconds.isascii() and seconds.isdigit() else None  # the service never names a date
