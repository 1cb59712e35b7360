"""Groups as replies show them."""

from dataclasses import replace
from typing import Any

from app.core.batches.leases import Lease, seconds_left
from app.core.groups.listing import GroupRow
from app.services.groups.history import GroupFacts
from app.services.groups.listing import GroupPage
from lachesis.wire import groups


def shown_groups(page: GroupPage) -> groups.ListedGroups:
    """Show a page of a list of groups."""
    return groups.ListedGroups(
        groups=[_shown(group, page) for group in page.groups],
        looked_at=page.looked_at,
        cursor=None if page.position is None else str(page.position),
    )


def _shown(group: GroupRow, page: GroupPage) -> groups.ListedGroup:
    environment = group.environment
    name = None if environment is None else page.names.get(environment)
    return groups.ListedGroup(**_columns(group, page.clock_ms, name))


def _columns(group: GroupRow, clock_ms: int, environment_name: str | None) -> dict[str, Any]:
    """Return the fields of `lachesis.wire.groups.GroupColumns`."""
    return {
        "id": group.shown_id,
        "state": group.state,
        "environment": group.environment,
        "environment_name": environment_name,
        "size": group.size,
        "tokens": group.tokens,
        "mean_score": group.mean_score,
        "policy_version": group.policy_version,
        "staleness": group.staleness,
        "item": group.item,
        "payload_bytes": group.payload_bytes,
        "received_age_s": group.received_age_s(clock_ms),
        "batch": group.batch_id,
        "step": group.step,
        "ended_age_s": group.ended_age_s(clock_ms),
        "reason": group.reason,
    }


def shown_history(given_id: str, facts: GroupFacts, item: str | None, annotations: list[str]) -> groups.GroupHistory:
    """Show the history of a group under the id that the request gave."""
    group = replace(facts.group, shown_id=given_id, item=item)
    return groups.GroupHistory(
        **_columns(group, facts.clock_ms, facts.environment_name),
        lease=None if facts.lease is None else _shown_lease(facts.lease, facts.clock_ms),
        checkpoint=facts.checkpoint,
        filtered_by=group.filtered_by,
        annotations=annotations,
    )


def _shown_lease(lease: Lease, clock_ms: int) -> groups.GroupLease:
    return groups.GroupLease(
        state=lease.state,
        delivery_count=lease.delivery_count,
        trainer=lease.trainer or None,
        expires_s=seconds_left(lease, clock_ms),
    )
