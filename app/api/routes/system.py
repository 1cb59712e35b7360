"""Health, version and metrics, for load balancers, people and Prometheus."""

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
    """Answer as long as the process can answer at all. It says nothing about Redis: see `/readyz`."""
    return json_reply({"status": "ok"})


@router.get(
    "/readyz",
    summary="Can this process serve?",
    responses={503: {"description": "Redis does not answer or is a replica, or this process must be restarted."}},
)
async def readyz(services: ServicesDep) -> Response:
    """Answer 200 if Redis takes writes and maintenance runs in this process, and 503 otherwise."""
    if not services.maintenance.goes_on:
        raise MaintenanceEnded("maintenance has ended in this process")
    await services.connection.check_ready()
    return json_reply({"status": "ready"})


@router.get("/version", summary="Which version is this?")
async def get_version() -> Response:
    """Answer the version of the service."""
    return json_reply({"name": "lachesis", "version": lachesis_version()})


@router.get("/metrics", summary="How is it doing, for Prometheus?", response_class=PlainTextResponse)
async def get_metrics(request: Request, services: ServicesDep) -> Response:
    """Answer every run's metrics, read now, and this process's own, in Prometheus's text format.

    It waits no more than 5 s for Redis. Without it the answer is 200 all the same, with `lachesis_store_up` 0 and no
    runs.
    """
    content, headers = await compressed(request, await services.metrics.page())
    return Response(content, headers=headers, media_type=CONTENT_TYPE_PLAIN_0_0_4)
