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
from app.services.batches.atropos_delivery import AtroposDelivery
from app.services.batches.dispatch import Dispatch
from app.services.batches.explain import Diagnostics
from app.services.batches.leases import BatchLeases
from app.services.batches.request import Timing
from app.services.batches.retrieval import Retrieval
from app.services.batches.rewind import Retention
from app.services.batches.waiting import LongPollQueue
from app.services.curriculum.curricula import CurriculumSettings
from app.services.curriculum.items import CurriculumItems
from app.services.curriculum.observing import CurriculumObservations
from app.services.curriculum.sampling import CurriculumSamples
from app.services.curriculum.states import CurriculumStates
from app.services.curriculum.what_if import StrategyComparisons
from app.services.datasets import ShardPlanner
from app.services.environments.heartbeats import HeartbeatBuffer
from app.services.environments.registry import EnvironmentRegistry
from app.services.groups.admission import Admission
from app.services.groups.arrivals import Arrivals
from app.services.groups.atropos_ingest import AtroposIngest
from app.services.groups.deletion import GroupDeletion
from app.services.groups.history import GroupHistories
from app.services.groups.native_ingest import NativeIngest
from app.services.groups.staleness import Staleness
from app.services.maintenance import Maintenance
from app.services.metrics import Metrics
from app.services.ranks.lookahead import Lookahead
from app.services.ranks.sharding import BatchSharding
from app.services.replay.buffer import ReplayBuffers
from app.services.replay.change_notifier import ChangeNotifier
from app.services.replay.groups import ReplayedGroups
from app.services.replay.insertion import ReplayInsertion
from app.services.replay.mixing import ReplayMixing
from app.services.replay.relief import ReplayEviction
from app.services.replay.reservations import UseReservations
from app.services.replay.samples import ReplaySamples
from app.services.replay.sampling import ChunkSampling
from app.services.replay.snapshots import ReplaySnapshots
from app.services.replay.upkeep import ReplayCleanup
from app.services.runs.administration import RunAdministration
from app.services.runs.capacity import RunCapacity
from app.services.runs.isolation import RunFailures
from app.services.runs.warnings import RunWarnings
from app.services.status import Status
from app.services.traffic import RequestCounts
from app.settings import Settings
from app.store.batches.store import BatchStore
from app.store.curriculum.items import ItemStore
from app.store.curriculum.state import CurriculumStateStore
from app.store.curriculum.store import CurriculumStore
from app.store.environments.members import MemberStore
from app.store.groups.store import GroupStore
from app.store.redis.client import RedisClient
from app.store.redis.notifications import changes
from app.store.replay.groups import EnteringStore
from app.store.replay.samples import SampleStore
from app.store.replay.snapshots import SnapshotStore
from app.store.replay.store import ReplayStore
from app.store.runs.store import RunStore
from app.store.server.probe import probe_patiently
from app.tuning import tune_process
from app.version import lachesis_version

DESCRIPTION = """Exact, fair, durable batches between rollout workers and trainers in reinforcement learning.

The native API is under `/v1`. Atropos environments and trainers use the endpoints at the root (run `default`), or those
under `/runs/{run}/atropos` for any other run. Errors are RFC 9457 problem details."""


class State(TypedDict):
    """What the lifespan hands to requests."""

    services: Services


def create_app(settings: Settings) -> FastAPI:
    """Build the application. It connects when it starts up, not before.

    Raises:
        StoreMisconfigured: (at start-up) there is no Redis to connect to, or it cannot keep our promises.
    """

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[State]:
        if settings.redis_url is None:
            raise StoreMisconfigured(
                "LACHESIS_REDIS_URL is not set; `python -m app serve` starts a Redis of its own, this does not"
            )
        url, patience_s = settings.redis_url.get_secret_value(), settings.store_patience_s
        facts = await probe_patiently(url, patience_s)
        connection = RedisClient(url, patience_s, settings.store_timeout_s)
        try:
            connection.transacts = not facts.torn_multi_bug
            services, maintenance = wire(settings, connection, facts.summary)
            maintenance.start()
            tune_process()
            try:
                yield {"services": services}
            finally:
                await maintenance.stop()
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
        docs_url=None,  # `api_docs` has the page, with all of its files
        redoc_url=None,
        telemetry={"tracing": False, "metrics": False, "logs": False},  # to look for a collector takes 4 us a time
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


def wire(settings: Settings, connection: RedisClient, durability: str) -> tuple[Services, Maintenance]:
    """Put the use cases together."""
    ttl_ms = round(settings.environment_ttl_s * 1000)
    runs, groups, batches = RunStore(connection), GroupStore(connection), BatchStore(connection)
    presence = HeartbeatBuffer()
    capacity = RunCapacity(runs, groups, ttl_ms)
    replay_store, samples, bell = (
        ReplayStore(connection),
        SampleStore(connection),
        ChangeNotifier(partial(changes, connection)),
    )
    relief = ReplayEviction(runs, groups, replay_store)
    warnings = RunWarnings(runs, ttl_ms)
    admission = Admission(runs, groups, capacity, relief, warnings)
    intake = AtroposIngest(runs, groups, admission)
    entering = ReplayedGroups(EnteringStore(connection))
    reservations = UseReservations(replay_store, samples, batches)
    staleness = Staleness(runs, groups)
    bookmarks = Retention(runs, groups, batches, entering, reservations)
    arrivals = Arrivals()
    registry = EnvironmentRegistry(runs, MemberStore(connection), bookmarks, presence, warnings, ttl_ms)
    timing = Timing(ttl_ms, round(settings.relax_after_s * 1000))
    sending = AtroposDelivery(batches, bookmarks)
    retrieval = Retrieval(groups)
    upkeep = ReplayCleanup(replay_store)
    drawing = ChunkSampling(replay_store, samples, upkeep)
    dispatch = Dispatch(
        runs,
        batches,
        retrieval,
        BatchSharding(retrieval),
        Lookahead(groups),
        ReplayMixing(groups, replay_store, samples, drawing),
        reservations,
        sending,
        arrivals,
        timing,
    )
    lineages = GroupHistories(runs, groups, batches)
    explain = Diagnostics(runs, dispatch, arrivals, replay_store, capacity, warnings, ttl_ms)
    traffic, troubles = RequestCounts(), RunFailures("upkeep of a run")
    waiting = LongPollQueue(dispatch, partial(changes, connection))
    insertion = ReplayInsertion(replay_store, bell)
    replay_samples = ReplaySamples(replay_store, samples, drawing, bell, sending.worker)
    replay = ReplayBuffers(runs, groups, replay_store, insertion, entering, reservations, replay_samples, upkeep)
    curriculum_store, items = CurriculumStore(connection), ItemStore(connection)
    curricula = CurriculumSettings(curriculum_store)
    curriculum_samples = CurriculumSamples(curricula, curriculum_store, items)
    curriculum_states = CurriculumStates(curricula, curriculum_store, CurriculumStateStore(connection))
    maintenance = Maintenance(
        runs,
        groups,
        admission,
        intake,
        dispatch,
        sending,
        staleness,
        arrivals,
        presence,
        registry,
        replay,
        relief,
        curriculum_states,
        troubles,
        environment_ttl_ms=ttl_ms,
        buffer_release_ms=round(settings.buffer_release_s * 1000),
        orphan_ttl_ms=round(settings.orphan_ttl_s * 1000),
    )
    services = Services(
        settings=settings,
        connection=connection,
        groups=groups,
        registry=registry,
        bodies=BodyBudget(settings.body_budget_bytes),
        decoder=Decoder(),
        intake=intake,
        dispatch=dispatch,
        sending=sending,
        status=Status(runs, groups, explain, troubles, ttl_ms, durability),
        administration=RunAdministration(runs, groups, bookmarks, staleness, upkeep, replay_store),
        submissions=NativeIngest(groups, admission),
        waiting=waiting,
        leases=BatchLeases(groups, batches, bookmarks, reservations, staleness),
        bookmarks=bookmarks,
        explain=explain,
        maintenance=maintenance,
        lineages=lineages,
        deletion=GroupDeletion(runs, groups, lineages),
        warnings=warnings,
        shard_planner=ShardPlanner(settings.datasets_dir),
        traffic=traffic,
        metrics=Metrics(
            runs,
            replay_store,
            curriculum_store,
            dispatch,
            waiting,
            insertion,
            replay_samples,
            traffic,
            troubles,
            ttl_ms,
        ),
        replay=replay,
        replay_insertion=insertion,
        replay_samples=replay_samples,
        replay_snapshots=ReplaySnapshots(SnapshotStore(connection), upkeep),
        curricula=curricula,
        curriculum_items=CurriculumItems(curricula, curriculum_store, items),
        curriculum_observations=CurriculumObservations(curricula, items),
        curriculum_samples=curriculum_samples,
        curriculum_states=curriculum_states,
        what_if=StrategyComparisons(curricula, curriculum_samples, items),
    )
    return services, maintenance


def __getattr__(name: str) -> Any:
    """Build `app` when a server asks for it (`uvicorn app.main:app`), not when the module is imported."""
    if name == "app":
        return create_app(Settings())
    raise AttributeError(name)
