"""Health and version, for load balancers and people."""

from fastapi import APIRouter, Response

from app.api.deps import Found
from app.api.replies import json_reply
from app.version import lachesis_version

router = APIRouter(tags=["system"])


@router.get("/healthz", summary="Is this process alive?")
async def healthz() -> Response:
    """Answer as long as the process can answer at all. It says nothing about Redis: see `/readyz`."""
    return json_reply({"status": "ok"})


@router.get("/readyz", summary="Can this process serve?", responses={503: {"description": "Redis does not answer."}})
async def readyz(found: Found) -> Response:
    """Answer 200 if Redis answers now, and 503 if it does not."""
    await found.connection.ping()
    return json_reply({"status": "ready"})


@router.get("/version", summary="Which version is this?")
async def get_version() -> Response:
    """Answer the version of the service."""
    return json_reply({"name": "lachesis", "version": lachesis_version()})
