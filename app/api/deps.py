"""Dependencies of routes: the services, the run's name, the body."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Annotated, Any, Literal, TypeVar

from fastapi import Depends, Path, Query, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError
from starlette.types import Scope

from app.api.codec.decoder import Decoder
from app.api.codec.json_reader import check_structure, parse_in_python, unknown
from app.api.http.bodies.body import read_body
from app.api.http.bodies.body_budget import BodyBudget, BodyShare
from app.api.http.bodies.content_budget import ContentBudget
from app.api.http.caller import IDENTITY, account_of, sender_of
from app.api.http.connection.client_connection import has_arrived
from app.api.http.connection.connections import OpenConnections
from app.api.http.shared_answers import SharedAnswers
from app.api.http.tracing import Tracing
from app.services.access.factory import AccessServices
from app.services.batches.factory import BatchServices
from app.services.curriculum.factory import CurriculumServices
from app.services.datasets import ShardPlanner
from app.services.environments.factory import EnvironmentServices
from app.services.events.factory import EventServices
from app.services.groups.factory import GroupServices
from app.services.groups.token_text import TokenText
from app.services.history.factory import HistoryServices
from app.services.maintenance import Maintenance
from app.services.metrics.scrape import Metrics
from app.services.replay.factory import ReplayServices
from app.services.request_counts import RequestCounts
from app.services.runs.factory import RunServices
from app.services.status import MOST_ENVIRONMENTS_SHOWN
from app.settings import ServiceSettings
from app.store.redis.client import RedisClient
from lachesis.wire.body import MAX_INTEGER
from lachesis.wire.errors import InvalidField, Unauthorized
from lachesis.wire.problems import format_validation_error, most_telling
from lachesis.wire.runs import DEFAULT_RUN, RUN_NAME

M = TypeVar("M", bound=BaseModel)
_SMALL_BYTES = 64 * 1024  # parsed at once: 20,000 objects take 30 ms
_LARGE_BYTES = 1024 * 1024
MOST_SHOWN = 80  # characters of an unknown name


@dataclass(frozen=True, slots=True)
class Services:
    """The use cases by noun, and what the HTTP edge needs; built once per process by `build_services`."""

    access: AccessServices
    events: EventServices
    runs: RunServices
    environments: EnvironmentServices
    groups: GroupServices
    batches: BatchServices
    replay: ReplayServices
    curriculum: CurriculumServices
    history: HistoryServices
    datasets: ShardPlanner
    token_text: TokenText | None
    maintenance: Maintenance
    metrics: Metrics
    requests: RequestCounts
    settings: ServiceSettings
    connection: RedisClient
    bodies: BodyBudget
    contents: ContentBudget
    answers: SharedAnswers
    connections: OpenConnections
    decoder: Decoder
    tracing: Tracing | None


async def get_services(request: Request) -> Services:
    """Return the services of this process. FastAPI would run a function in a thread, so this is a coroutine."""
    services: Services = request.state.services
    return services


RunName = Annotated[str, Path(description="The run's name.", pattern=f"^{RUN_NAME}$", examples=[DEFAULT_RUN])]


async def checked_run_name(run: RunName) -> str:
    """Check a run's name in a path, and declare it for OpenAPI. A `DirectRoute` never calls this."""
    return run


class InRun(BaseModel):
    """The path of a request about a run."""

    run: RunName = DEFAULT_RUN


def parameters(model: type[M], given: Mapping[str, Any], where: Literal["path", "query"]) -> M:
    """Read the parameters of a request to a `DirectRoute`. Errors are the same as FastAPI's.

    Raises:
        RequestValidationError: A parameter is wrong.
    """
    try:
        return model.model_validate(given)
    except ValidationError as error:
        raise RequestValidationError([{**one, "loc": (where, *one["loc"])} for one in error.errors()]) from None


def query_value(request: Request, name: str) -> str | None:
    """Return a parameter of the query; None if it is missing. Starlette takes 3 us to read an empty query."""
    return request.query_params.get(name) if request.scope["query_string"] else None


async def run_name(request: Request) -> str:
    """Return the run of a request: the checked name in its path, or the default run."""
    name = request.scope["path_params"].get("run")
    return DEFAULT_RUN if name is None else _checked_name(name)


@lru_cache(maxsize=1024)
def _checked_name(name: str) -> str:
    return parameters(InRun, {"run": name}, "path").run


class SubmittedBody:
    """The run, the services and the body of a request that submits something.

    Used as a context: at its end the body's share of the memory budget is released.
    """

    def __init__(self, request: Request, limit_bytes: int | None = None) -> None:
        self._request = request
        self._services: Services = request.scope["state"]["services"]
        self._share = self._services.bodies.share(sender_of(request.scope), account_of(request.scope))
        most_bytes = self._services.settings.max_body_bytes
        # A route whose decoder takes more memory has a lower limit.
        self._limit_bytes = most_bytes if limit_bytes is None else min(most_bytes, limit_bytes)

    async def __aenter__(self) -> tuple[str, Services, bytes]:
        run = await run_name(self._request)
        try:
            text = await _body(self._request, self._services, self._share, self._limit_bytes)
        except BaseException:
            self._share.release()
            raise
        return run, self._services, text

    async def __aexit__(self, *_: object) -> None:
        self._share.release()

    def may_wait_s(self, wait_s: float) -> float:
        """Return how long the request may now wait for something other than memory: ``wait_s``, or 0 (`let_wait`)."""
        return wait_s if wait_s > 0 and self._share.let_wait() else 0.0


async def small_body(request: Request, services: Annotated[Services, Depends(get_services)]) -> bytes:
    """Read a small body."""
    settings = services.settings
    limit, share = (
        min(settings.max_body_bytes, _SMALL_BYTES),
        services.bodies.share(sender_of(request.scope), account_of(request.scope)),
    )
    try:
        return await _body(request, services, share, limit)
    finally:
        share.release()


async def _body(request: Request, services: Services, share: BodyShare, limit_bytes: int) -> bytes:
    came_at_once = has_arrived(request.scope)
    text = await read_body(request, share, limit_bytes=limit_bytes, timeout_s=services.settings.body_timeout_s)
    if share.waited or not came_at_once:
        await check_credentials(request.scope)
    return text


async def check_credentials(scope: Scope) -> None:
    """Check the credentials of a request again, after it had to wait for its body.

    Raises:
        Unauthorized: They have ended since the request began, or the service was open then and is closed now.
    """
    services: Services = scope["state"]["services"]
    if not await services.access.authenticator.is_valid(scope[IDENTITY]):
        raise Unauthorized("the credentials are no longer valid: they ended before the body of the request had arrived")


def parse(model: type[M], text: bytes) -> M:
    """Read a small body as ``model``.

    Raises:
        MalformedBody: It is not JSON, or has duplicate keys.
        InvalidField: A value is wrong.
    """
    value = parse_in_python(text)
    check_structure(value)
    try:
        return model.model_validate(value)
    except ValidationError as error:
        first = most_telling(error.errors())
        *above, name = first["loc"] or ("",)
        if first["type"] != "extra_forbidden":
            raise InvalidField(format_validation_error(first), tuple(first["loc"])) from None
        known = () if above else model.model_fields  # nested fields are not looked up
        raise InvalidField(unknown(str(name), known), tuple(first["loc"])) from None


async def parse_large(model: type[M], request: Request) -> M:
    """Read a body of up to 1 MiB as ``model``, like `parse`, without blocking the event loop."""
    async with SubmittedBody(request, _LARGE_BYTES) as (_, services, text):
        return await services.decoder.json(partial(parse, model), text, request.scope)


Run = Annotated[str, Depends(run_name)]
ServicesDep = Annotated[Services, Depends(get_services)]
SmallBody = Annotated[bytes, Depends(small_body)]
ShownEnvironments = Annotated[int, Query(ge=1, le=MOST_ENVIRONMENTS_SHOWN, description="Environments on a page.")]
AfterEnvironment = Annotated[int, Query(ge=-1, le=MAX_INTEGER, description="Show environments with larger ids.")]
NamedRun = Annotated[str, Depends(checked_run_name)]
