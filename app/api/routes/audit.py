"""The audit trail, for operators."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from app.api.deps import ServicesDep
from app.api.http.access.control import IdentityDep
from app.api.http.openapi import read_responses
from app.api.http.replies import model_reply
from app.api.http.routing import NativeRoute, requires
from app.core.access.permissions import Permission
from lachesis.wire.audit import AuditEntries, AuditEntry
from lachesis.wire.runs import RUN_NAME

router = APIRouter(prefix="/v1/audit", tags=["audit"], route_class=NativeRoute)


@router.get("", summary="Read the audit trail", response_model=AuditEntries, responses=read_responses())
@requires(Permission.AUDIT)
async def get_audit(
    services: ServicesDep,
    identity: IdentityDep,
    run: Annotated[str | None, Query(pattern=f"^{RUN_NAME}$", description="Only entries of this run.")] = None,
    limit: Annotated[int, Query(ge=1, le=1000, description="Maximum number of entries.")] = 100,
    before: Annotated[
        str | None, Query(pattern=r"^[0-9]{1,15}-[0-9]{1,10}$", description="Only entries older than this id.")
    ] = None,
) -> Response:
    """List who changed or removed what, newest first: entries of the runs that the credentials are for.

    Submissions, batches and heartbeats are not in the trail. A page may have fewer entries than `limit` even if there
    are more: go on until `next_before` is null.

    Each sender has 20 entries, or a hundredth of the trail, in an hour. Beyond them, equal requests of it for a run are
    one entry with a `count`. So are a trainer's policy versions, and its checkpoints.
    """

    def wanted(facts: Any) -> bool:
        of = facts.get("run")
        own = identity.has_all_runs if of is None else identity.has_run(of)
        return own and run in (None, of)

    # Ids of foreign entries would tell when others work.
    page = await services.access.audit.page(limit, before, wanted, to_the_end=not identity.has_all_runs)
    entries = [
        AuditEntry(id=entry.entry_id, at_s=entry.at_s, count=entry.count, **entry.facts) for entry in page.entries
    ]
    return model_reply(AuditEntries(entries=entries, next_before=page.next_before))
