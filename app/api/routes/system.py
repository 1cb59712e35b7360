"""Health, version and metrics of a process."""

from fastapi import APIRouter, Request, Response
from fastapi.responses import PlainTextResponse
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from app.api.deps import ServicesDep
from app.api.http.replies import compressed, json_reply
from app.core.errors import MaintenanceEnded
from app.version import lachesis_version

router = APIRouter(tags=["system"])


@router.get("/healthz", summary="Is this process alive?")
async def healthz() -> Response:
    """Return 200 while the process can answer. `/readyz` also checks Redis."""
    return json_reply({"status": "ok"})


@router.get(
    "/readyz",
    summary="Can this process serve?",
    responses={503: {"description": "Redis does not answer or is a replica, or this process must be restarted."}},
)
async def readyz(services: ServicesDep) -> Response:
    """Return 200 if Redis takes writes and maintenance runs in this process, 503 otherwise."""
    if not services.maintenance.goes_on:
        raise MaintenanceEnded("maintenance has ended in this process")
    await services.connection.check_ready()
    return json_reply({"status": "ready"})


@router.get("/version", summary="Which version is this?")
async def get_version() -> Response:
    """Return the version of the service."""
    return json_reply({"name": "lachesis", "version": lachesis_version()})


@router.get("/metrics", summary="Metrics for Prometheus", response_class=PlainTextResponse)
async def get_metrics(request: Request, services: ServicesDep) -> Response:
    """Return the metrics of every run and of this process, in Prometheus's text format.

    The request waits up to 5 s for Redis. Without Redis it still gets 200, with `lachesis_store_up` 0 and no runs.
    """
    content, headers = await compressed(request, await services.metrics.page())
    return Response(content, headers=headers, media_type=CONTENT_TYPE_PLAIN_0_0_4)
