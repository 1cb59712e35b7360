"""Dependencies of routes: the services, the run's name, the body."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Annotated, Any, Literal, TypeVar

from fastapi import Depends, Path, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError

from app.api.codec.decoder import Decoder
from app.api.codec.json_reader import check_structure, parse_in_python
from app.api.http.body import read_body
from app.api.http.body_budget import UNCOUNTED_BYTES, BodyBudget
from app.core.errors import InvalidField
from app.services.batches.factory import BatchServices
from app.services.curriculum.factory import CurriculumServices
from app.services.datasets import ShardPlanner
from app.services.environments.factory import EnvironmentServices
from app.services.groups.factory import GroupServices
from app.services.maintenance import Maintenance
from app.services.metrics import Metrics
from app.services.replay.factory import ReplayServices
from app.services.request_counts import RequestCounts
from app.services.runs.factory import RunServices
from app.settings import Settings
from app.store.redis.client import RedisClient
from lachesis.wire.problems import format_validation_error, most_telling
from lachesis.wire.runs import RUN_NAME

M = TypeVar("M", bound=BaseModel)
DEFAULT_RUN = "default"
MOST_SHOWN = 80  # characters of an unknown name


@dataclass(frozen=True, slots=True)
class Services:
    """The use cases by noun, and what the HTTP edge needs; built once per process by `app.main.wire`."""

    runs: RunServices
    environments: EnvironmentServices
    groups: GroupServices
    batches: BatchServices
    replay: ReplayServices
    curriculum: CurriculumServices
    datasets: ShardPlanner
    maintenance: Maintenance
    metrics: Metrics
    requests: RequestCounts
    settings: Settings
    connection: RedisClient
    bodies: BodyBudget
    decoder: Decoder


async def get_services(request: Request) -> Services:
    """Return the services of this process. FastAPI would run a function in a thread, so this is a coroutine."""
    services: Services = request.state.services
    return services


RunName = Annotated[str, Path(description="The run's name.", pattern=f"^{RUN_NAME}$", examples=["default"])]


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
        raise RequestValidationError([one | {"loc": (where, *one["loc"])} for one in error.errors()]) from None


async def run_name(request: Request) -> str:
    """Return the run of a request: the checked name in its path, or the default run."""
    return parameters(InRun, request.path_params, "path").run


class SubmittedBody:
    """The run, the services and the body of a request that submits something.

    Used as a context: at its end the body's share of the memory budget is released.
    """

    def __init__(self, request: Request, limit_bytes: int | None = None) -> None:
        self._request = request
        self._services: Services = request.scope["state"]["services"]
        self._share = self._services.bodies.share()
        most_bytes = self._services.settings.max_body_bytes
        # A route whose decoder takes more memory has a lower limit.
        self._limit_bytes = most_bytes if limit_bytes is None else min(most_bytes, limit_bytes)

    async def __aenter__(self) -> tuple[str, Services, bytes]:
        run = await run_name(self._request)
        timeout_s = self._services.settings.body_timeout_s
        try:
            text = await read_body(self._request, self._share, limit_bytes=self._limit_bytes, timeout_s=timeout_s)
        except BaseException:
            self._share.release()
            raise
        return run, self._services, text

    async def __aexit__(self, *_: object) -> None:
        self._share.release()


async def small_body(request: Request, services: Annotated[Services, Depends(get_services)]) -> bytes:
    """Read a small body."""
    settings = services.settings
    limit = min(settings.max_body_bytes, UNCOUNTED_BYTES)
    return await read_body(request, services.bodies.share(), limit_bytes=limit, timeout_s=settings.body_timeout_s)


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


def unknown(name: str, known: Collection[str]) -> str:
    """Return the message for an unknown field or parameter, with a suggestion."""
    near = get_close_matches(name[:MOST_SHOWN], sorted(known))
    if near:
        return f"is unknown here; did you mean {' or '.join(near)}?"
    return "is unknown here" + (f"; known are {', '.join(sorted(known))}" if known else "")


Run = Annotated[str, Depends(run_name)]
ServicesDep = Annotated[Services, Depends(get_services)]
SmallBody = Annotated[bytes, Depends(small_body)]
NamedRun = Annotated[str, Depends(checked_run_name)]
