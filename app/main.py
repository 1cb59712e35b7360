"""The composition root: settings in, application out."""

import contextlib
import logging
from collections.abc import AsyncIterator
from functools import partial
from typing import Any, TypedDict

from fastapi import Depends, FastAPI
from starlette.middleware import Middleware

from app.api.codec.decoder import Decoder
from app.api.deps import Services, checked_run_name
from app.api.http.body_budget import BodyBudget
from app.api.http.browser_guard import BrowserGuard, HostNames
from app.api.http.openapi import DocumentedApp
from app.api.http.problems import FRAMEWORK_ERRORS, Problems
from app.api.http.request_metrics import RequestMetrics
from app.api.http.routing import Shortcut
from app.api.pages import api_docs
from app.api.routes import (
    atropos,
    batches,
    curriculum,
    datasets,
    environments,
    groups,
    replay,
    runs,
    system,
)
from app.core.errors import StoreMisconfigured
from app.services.batches.atropos_delivery import worker_name
from app.services.batches.factory import BatchServices
from app.services.batches.request import Timing
from app.services.curriculum.factory import CurriculumServices
from app.services.datasets import ShardPlanner
from app.services.environments.factory import EnvironmentServices
from app.services.groups.factory import GroupServices
from app.services.maintenance import Maintenance
from app.services.metrics import Metrics
from app.services.replay.factory import ReplayServices
from app.services.request_counts import RequestCounts
from app.services.runs.capacity import RunCapacity
from app.services.runs.factory import RunServices
from app.services.runs.warnings import RunWarnings
from app.services.stores import Stores
from app.settings import Settings
from app.store.redis.client import RedisClient
from app.store.server.probe import probe_patiently
from app.tuning import tune_process
from app.version import lachesis_version

DESCRIPTION = """Exact, fair, durable batches between rollout workers and trainers in reinforcement learning.

The native API is under `/v1`. Atropos environments and trainers use the endpoints at the root (run `default`), or those
under `/runs/{run}/atropos` for any other run. Errors are RFC 9457 problem details."""


class State(TypedDict):
    """The state that the lifespan hands to requests."""

    services: Services


def create_app(settings: Settings) -> FastAPI:
    """Build the application. It connects when it starts up, not before.

    Raises:
        StoreMisconfigured: (at start-up) there is no Redis to connect to, or its settings could lose data.
    """

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[State]:
        if settings.redis_url is None:
            raise StoreMisconfigured(
                "LACHESIS_REDIS_URL is not set: set it, or use `python -m app serve`, which starts an embedded Redis"
            )
        url, patience_s = settings.redis_url.get_secret_value(), settings.store_patience_s
        facts = await probe_patiently(url, patience_s)
        connection = RedisClient(url, patience_s, settings.store_timeout_s)
        try:
            connection.transacts = not facts.torn_multi_bug
            services = wire(settings, connection, facts.summary)
            services.maintenance.start()
            tune_process()
            try:
                yield {"services": services}
            finally:
                await services.maintenance.stop()
        finally:
            await connection.aclose()

    logging.getLogger("lachesis").setLevel(settings.log_level.upper())
    hosts = HostNames(settings.allowed_hosts or (), settings.host)
    # Requests that come thousands of times a second do not reach FastAPI's router.
    direct = [*groups.submissions.routes, *batches.handing.routes, *atropos.submissions.routes]
    app = DocumentedApp(
        title="Lachesis",
        version=lachesis_version(),
        description=DESCRIPTION,
        lifespan=lifespan,
        docs_url=None,  # `api_docs` serves the page with all of its files
        redoc_url=None,
        telemetry={"tracing": False, "metrics": False, "logs": False},  # looking for a collector takes 4 us
        exception_handlers=FRAMEWORK_ERRORS,
        middleware=[
            Middleware(RequestMetrics),
            Middleware(Problems),
            Middleware(BrowserGuard, hosts=hosts),
            Middleware(Shortcut, routes=direct),
        ],
    )
    in_a_run = partial(app.include_router, prefix="/runs/{run}/atropos", dependencies=[Depends(checked_run_name)])
    for router in (groups.submissions, batches.handing, atropos.submissions):
        app.include_router(router)
    in_a_run(atropos.submissions)
    app.include_router(atropos.router)
    in_a_run(atropos.router)
    # Routes are tried in order, so the ones that are called most come first.
    for module in (batches, environments, replay, curriculum, runs, groups, datasets, system, api_docs):
        app.include_router(module.router)
    return app


def wire(settings: Settings, connection: RedisClient, durability: str, worker: str | None = None) -> Services:
    """Build the use cases of one process.

    Args:
        settings: The settings of the process.
        connection: The connection to Redis.
        durability: How Redis keeps its data, for the status.
        worker: The name of this process in leases; None for a new name.
    """
    stores, timing, worker = Stores.on(connection), Timing.of(settings), worker or worker_name()
    capacity = RunCapacity(stores.runs, stores.groups, timing.environment_ttl_ms)
    warnings = RunWarnings(stores.runs, timing.environment_ttl_ms)
    replay = ReplayServices.create(stores, worker)
    groups = GroupServices.create(stores, capacity, warnings, replay.eviction)
    batches = BatchServices.create(stores, groups, replay, capacity, warnings, timing, worker)
    environments = EnvironmentServices.create(stores, batches.retention, warnings, timing.environment_ttl_ms)
    runs = RunServices.create(
        stores, batches, groups.staleness, replay.cleanup, warnings, timing.environment_ttl_ms, durability
    )
    curriculum, requests = CurriculumServices.create(stores), RequestCounts()
    return Services(
        runs=runs,
        environments=environments,
        groups=groups,
        batches=batches,
        replay=replay,
        curriculum=curriculum,
        datasets=ShardPlanner(settings.datasets_dir),
        maintenance=Maintenance(stores, runs, environments, groups, batches, replay, curriculum, timing),
        metrics=Metrics(stores, batches, replay, requests, runs.failures, timing.environment_ttl_ms),
        requests=requests,
        settings=settings,
        connection=connection,
        bodies=BodyBudget(settings.body_budget_bytes),
        decoder=Decoder(),
    )


def __getattr__(name: str) -> Any:
    """Build `app` when a server asks for it (`uvicorn app.main:app`), not when the module is imported."""
    if name == "app":
        return create_app(Settings())
    raise AttributeError(name)
