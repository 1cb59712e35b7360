"""The composition root: settings in, application out."""

import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, TypedDict

from fastapi import APIRouter, Depends, FastAPI
from fastapi.routing import iter_route_contexts
from starlette.middleware import Middleware
from starlette.types import ASGIApp

from app.api.codec.decoder import Decoder
from app.api.deps import Services, checked_run_name
from app.api.http.access.control import AccessControl
from app.api.http.access.issuer_client import IssuerClient
from app.api.http.access.refusals import Refusals
from app.api.http.bodies.body_budget import BodyBudget
from app.api.http.bodies.content_budget import ContentBudget
from app.api.http.browser_guard import BrowserGuard, HostNames
from app.api.http.connection.connections import OpenConnections
from app.api.http.openapi import ATROPOS_IN_A_RUN, DocumentedApp, operation_id
from app.api.http.problems import FRAMEWORK_ERRORS, Problems
from app.api.http.request_metrics import RequestMetrics
from app.api.http.routing import GuardedRoute, Shortcut
from app.api.http.shared_answers import SharedAnswers
from app.api.http.tracing import start_tracing
from app.api.pages import api_docs, operators
from app.api.routes import (
    access,
    atropos,
    audit,
    batches,
    curriculum,
    datasets,
    environments,
    events,
    fragments,
    groups,
    history,
    replay,
    runs,
    samples,
    system,
)
from app.core.access.permissions import Permission
from app.events import stored_by
from app.services.access.factory import AccessServices
from app.services.batches.atropos_delivery import worker_name
from app.services.batches.factory import BatchServices
from app.services.curriculum.factory import CurriculumServices
from app.services.datasets import ShardPlanner
from app.services.environments.factory import EnvironmentServices
from app.services.events.factory import EventServices
from app.services.groups.commit_lock import CommitLock
from app.services.groups.factory import GroupServices
from app.services.groups.token_text import TokenText
from app.services.history.factory import HistoryServices
from app.services.history.recorder import HistoryRecorder
from app.services.maintenance import Maintenance
from app.services.metrics.scrape import Metrics
from app.services.replay.factory import ReplayServices
from app.services.request_counts import RequestCounts
from app.services.runs.capacity import RunCapacity
from app.services.runs.factory import RunServices
from app.services.runs.warnings import RunWarnings
from app.services.stores import Stores
from app.services.timing import Timing
from app.services.traces import TraceLinks
from app.settings import ServiceSettings
from app.store.redis.address import store_url
from app.store.redis.client import RedisClient
from app.store.server.probe import probe_patiently
from app.store.server.watch import StoreWatch
from app.tuning import connections_possible, tune_process
from app.version import lachesis_version
from lachesis.wire.errors import StoreMisconfigured

DESCRIPTION = """Exact, fair, durable batches between rollout workers and trainers in reinforcement learning.

The native API is under `/v1`. Atropos environments and trainers use the endpoints at the root (run `default`), or those
under `/runs/{run}/atropos` for any other run. Errors are RFC 9457 problem details.

A service with tokens asks for credentials of one of the roles that an endpoint names."""


_IN_A_RUN: dict[str, Any] = {"prefix": ATROPOS_IN_A_RUN, "dependencies": [Depends(checked_run_name)]}

log = logging.getLogger("lachesis.access")


class _Application(DocumentedApp):
    """The application. Its middleware is around all of FastAPI's, which `Shortcut` spares frequent requests."""

    def build_middleware_stack(self) -> ASGIApp:
        """Build what each request passes."""
        own, self.user_middleware = self.user_middleware, []
        app = super().build_middleware_stack()
        for middleware, args, kwargs in reversed(own):
            app = middleware(app, *args, **kwargs)
        return app


class State(TypedDict):
    """The state that the lifespan hands to requests."""

    services: Services
    connections: OpenConnections


def create_app(settings: ServiceSettings) -> FastAPI:
    """Build the application. It connects when it starts up, not before.

    Raises:
        StoreMisconfigured: (at start-up) there is no Redis to connect to, or its settings could lose data.
    """
    hosts = HostNames(settings.allowed_hosts or (), settings.host)
    direct = _frequent_routes()
    guarded = [route for route in system.router.routes if isinstance(route, GuardedRoute)]
    paths = {one: [route.path for route in guarded if route.permission is one] for one in Permission}
    app = _Application(
        title="Lachesis",
        version=lachesis_version(),
        description=DESCRIPTION,
        lifespan=lambda _: _running(settings),
        openapi_url=None,  # `api_docs` serves the document, and the page with all of its files
        docs_url=None,
        redoc_url=None,
        generate_unique_id_function=operation_id,
        redirect_slashes=False,  # clients remove `..` from a path: `DELETE` of an item would then delete its curriculum
        telemetry={"tracing": False, "metrics": False, "logs": False},  # looking for a collector takes 4 us
        exception_handlers=FRAMEWORK_ERRORS,
        middleware=[
            Middleware(RequestMetrics),
            Middleware(Problems, refusals=Refusals(settings.max_refusals_per_s)),
            Middleware(BrowserGuard, hosts=hosts, may_be_linked=operators.may_be_linked),
            Middleware(
                AccessControl,
                open_paths=paths[Permission.OPEN],
                outage_paths=paths[Permission.METRICS],
                is_page=operators.is_page,
                published_on=settings.published_on,
            ),
            Middleware(Shortcut, routes=direct.routes),
        ],
    )
    _include(app, direct)
    _check_permissions(app)
    return app


def _frequent_routes() -> APIRouter:
    """Return the routes of requests that come often. They do not reach FastAPI's router."""
    direct = APIRouter()
    for module in (groups, batches, environments, atropos, operators):
        direct.include_router(module.direct)
    direct.include_router(atropos.direct, **_IN_A_RUN)
    return direct


def _include(app: FastAPI, direct: APIRouter) -> None:
    """Add all routes. They are tried in order, so the ones that are called most come first."""
    app.include_router(direct)
    app.include_router(operators.roots)  # browsers get the page, others what Atropos answers
    app.include_router(atropos.router)
    app.include_router(atropos.router, **_IN_A_RUN)
    modules = (
        batches,
        environments,
        fragments,
        samples,
        replay,
        curriculum,
        runs,
        groups,
        history,
        events,
        datasets,
        access,
        audit,
        system,
        operators,
        api_docs,
    )
    for module in modules:
        app.include_router(module.router)


@contextlib.asynccontextmanager
async def _running(settings: ServiceSettings) -> AsyncIterator[State]:
    """Connect to Redis, start the background work, and stop it in the end.

    Raises:
        StoreMisconfigured: There is no Redis to connect to, or its settings could lose data.
    """
    logging.getLogger("lachesis").setLevel(settings.log_level.upper())
    if settings.redis_url is None:
        raise StoreMisconfigured(
            "LACHESIS_REDIS_URL is not set: set it, or use `python -m app serve`, which starts an embedded Valkey"
        )
    url, patience_s = store_url(settings), settings.store_patience_s
    facts = await probe_patiently(url, patience_s)
    async with contextlib.AsyncExitStack() as ending:
        connection = RedisClient(url, patience_s, settings.store_timeout_s)
        ending.push_async_callback(connection.aclose)
        connection.transacts = not facts.torn_multi_bug
        services = build_services(settings, connection, facts.summary)
        for stop in _stops(services):
            ending.push_async_callback(stop)
        stored_by.set(services.events.recorder.record)
        services.events.recorder.start()
        await services.access.authenticator.start()
        await services.access.rate_limits.start()
        if settings.insecure:
            log.warning("LACHESIS_INSECURE is set: anyone who reaches the service may do everything")
        services.maintenance.start()
        tune_process()
        yield {"services": services, "connections": services.connections}


def _stops(services: Services) -> Iterator[Callable[[], Awaitable[None]]]:
    """Yield what ends the background work, the last one first."""
    if services.tracing is not None:
        yield services.tracing.stop
    yield services.events.stop
    yield services.replay.insertion.queue.stop
    yield services.replay.samples.queue.stop
    yield services.batches.long_poll.stop
    yield services.maintenance.stop
    yield services.access.authenticator.stop
    yield services.access.rate_limits.stop


def _check_permissions(app: FastAPI) -> None:
    """Check that every route checks a permission.

    Raises:
        TypeError: A route does not.
    """
    routes = [context.original_route for context in iter_route_contexts(app.routes)]
    if unguarded := [route for route in routes if not isinstance(route, GuardedRoute)]:
        raise TypeError(f"{unguarded}: give their router a route_class that checks permissions (GuardedRoute)")


def build_services(
    settings: ServiceSettings, connection: RedisClient, durability: str, worker: str | None = None
) -> Services:
    """Build the use cases of one process.

    Args:
        settings: The settings of the process.
        connection: The connection to Redis.
        durability: How Redis kept its data at start, for the status.
        worker: The name of this process in leases; None for a new name.
    """
    timing = Timing.of(settings)
    stores = Stores.on(connection, timing.environment_ttl_ms, settings.run_events)
    worker = worker or worker_name()
    events = EventServices.create(stores)
    capacity = RunCapacity(stores.runs, stores.groups)
    warnings = RunWarnings(stores.runs)
    watch = StoreWatch(connection.url, durability)
    recorder = HistoryRecorder()
    replay = ReplayServices.create(stores, worker)
    groups = GroupServices.create(stores, capacity, warnings, replay.eviction, recorder, CommitLock.of_service())
    batches = BatchServices.create(stores, groups, replay, capacity, warnings, timing, worker, recorder)
    environments = EnvironmentServices.create(
        stores, batches.retention, warnings, settings.max_new_environments_per_minute
    )
    accessing = AccessServices.create(stores.access, stores.audit, stores.limits, settings, IssuerClient(settings))
    runs = RunServices.create(stores, batches, groups.staleness, replay.cleanup, warnings, accessing.rate_limits, watch)
    curriculum = CurriculumServices.create(stores)
    requests = RequestCounts()
    histories = HistoryServices.create(stores, recorder, batches.diagnostics)
    bodies = BodyBudget(settings.body_budget_bytes)
    connections = OpenConnections(
        min(settings.max_connections, connections_possible()),
        settings.max_connections_per_address,
        settings.max_connections_per_token,
    )
    return Services(
        access=accessing,
        events=events,
        runs=runs,
        environments=environments,
        groups=groups,
        batches=batches,
        replay=replay,
        curriculum=curriculum,
        history=histories,
        datasets=ShardPlanner(settings.datasets_dir),
        token_text=TokenText.load(settings.tokenizer_file),
        maintenance=Maintenance(
            stores,
            runs,
            environments,
            groups,
            batches,
            replay,
            curriculum,
            histories.writer,
            events,
            watch,
            timing,
        ),
        metrics=Metrics(stores, batches, replay, requests, runs.failures, edge=[bodies.samples, connections.samples]),
        requests=requests,
        settings=settings,
        connection=connection,
        bodies=bodies,
        contents=ContentBudget(),
        answers=SharedAnswers(),
        connections=connections,
        decoder=Decoder(),
        tracing=start_tracing(TraceLinks(stores.traces)),
    )


def __getattr__(name: str) -> Any:
    """Build `app` when a server asks for it (`uvicorn app.main:app`), not when the module is imported."""
    if name == "app":
        return create_app(ServiceSettings())
    raise AttributeError(name)
