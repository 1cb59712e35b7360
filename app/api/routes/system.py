"""Health, version and metrics of a process."""

import logging

from fastapi import APIRouter, Request, Response
from fastapi.responses import PlainTextResponse

from app.api.deps import ServicesDep
from app.api.http.access.control import IdentityDep
from app.api.http.openapi import ACCESS_ERRORS, problem_responses
from app.api.http.replies import compressed, json_reply
from app.api.http.routing import GuardedRoute, requires
from app.core.access.permissions import Permission
from app.logs import LogBackoff
from app.version import lachesis_version
from lachesis.wire.errors import MaintenanceEnded, ServiceError

_METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 10.0, 60.0

log = logging.getLogger("lachesis.api")
_not_ready = LogBackoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)

router = APIRouter(tags=["system"], route_class=GuardedRoute)


@router.get("/healthz", summary="Is this process alive?")
@requires(Permission.OPEN)
async def healthz() -> Response:
    """Return 200 while the process can answer. `/readyz` also checks Redis."""
    return json_reply({"status": "ok"})


@router.get(
    "/readyz",
    summary="Can this process serve?",
    responses={
        MaintenanceEnded.status: {
            "description": (
                "Redis does not answer, loads its data, takes no writes of this service or evicts keys, or this "
                "process must be restarted."
            )
        }
    },
)
@requires(Permission.OPEN)
async def readyz(services: ServicesDep) -> Response:
    """Return 200 if Redis can be used and maintenance runs in this process, and an error otherwise.

    Redis cannot be used while it does not answer, loads its data, evicts keys, or takes no writes of this service. It
    takes none if it is a replica, or without its disk, its replicas or the rights of the user.
    """
    try:
        if not services.maintenance.goes_on:
            raise MaintenanceEnded("maintenance has ended in this process")
        await services.connection.check_ready()
    except ServiceError as error:
        if not services.access.authenticator.required:
            raise
        if _not_ready.is_due(error.code):
            log.warning("not ready: %s", error.detail)
        raise type(error)("this process is not ready; its log says why") from error
    return json_reply({"status": "ready"})


@router.get("/version", summary="Which version is this?", responses=problem_responses(*ACCESS_ERRORS))
@requires(Permission.DESCRIBE)
async def get_version(services: ServicesDep) -> Response:
    """Return the version of the service, and the name of its tokenizer file, or null."""
    tokenizer = None if services.token_text is None else services.token_text.name
    return json_reply({"name": "lachesis", "version": lachesis_version(), "tokenizer": tokenizer})


@router.get(
    "/metrics",
    summary="Metrics for Prometheus",
    response_class=PlainTextResponse,
    responses=problem_responses(*ACCESS_ERRORS),
)
@requires(Permission.METRICS)
async def get_metrics(request: Request, services: ServicesDep, identity: IdentityDep) -> Response:
    """Return the metrics of this process and of every run that the credentials are for, in Prometheus's text format.

    The request waits up to 5 s for Redis. Without Redis it still gets 200, with `lachesis_store_up` 0 and no runs.
    A token that this process has not seen before gets 503 `store_unavailable` then.
    """
    # While Redis does not answer, the credentials may have been revoked. Then the page is about this process only.
    page = services.metrics.page(identity.own, reads_runs=services.access.authenticator.is_current)
    content, headers = await compressed(request, await page)
    return Response(content, headers=headers, media_type=_METRICS_TYPE)
