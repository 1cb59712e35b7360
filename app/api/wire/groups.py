"""Groups as replies show them."""

from app.core.batches.leases import Lease, seconds_left
from app.core.groups.listing import GroupRow
from app.core.groups.staleness import staleness
from app.services.groups.history import GroupFacts
from app.services.groups.listing import GroupPage
from app.store.groups.entries import StoredGroup
from lachesis.wire import groups


def shown_groups(page: GroupPage) -> groups.ListedGroups:
    """Show a page of a list of groups."""
    return groups.ListedGroups(
        groups=[_shown(group, page) for group in page.groups],
        looked_at=page.looked_at,
        cursor=None if page.position is None else str(page.position),
    )


def _shown(group: GroupRow, page: GroupPage) -> groups.ListedGroup:
    ended_ms, environment = group.ended_ms, group.environment
    return groups.ListedGroup.model_validate(
        {
            "id": group.shown_id,
            "state": group.state,
            "environment": environment,
            "environment_name": None if environment is None else page.names.get(environment),
            "size": group.size,
            "tokens": group.tokens,
            "mean_score": group.mean_score,
            "policy_version": group.policy_version,
            "staleness": group.staleness,
            "item": group.item,
            "payload_bytes": group.payload_bytes,
            "received_age_s": max(0, page.clock_ms - group.accepted_ms) / 1000,
            "batch": group.batch_id,
            "step": group.step,
            "ended_age_s": None if ended_ms is None else max(0, page.clock_ms - ended_ms) / 1000,
            "reason": group.reason,
        }
    )


def shown_history(group: str, facts: GroupFacts, item: str | None, annotations: list[str]) -> groups.GroupHistory:
    """Show the history of a group."""
    entry, sampled = facts.entry, facts.entry.policy_version
    environment, size = entry.lane
    is_held = facts.ended_age_s is None
    stored = entry if is_held and isinstance(entry, StoredGroup) else None
    return groups.GroupHistory(
        id=group,
        state=facts.state,
        environment=environment,
        size=size,
        payload_bytes=entry.payload_bytes,
        policy_version=sampled,
        staleness=staleness(sampled, facts.version_in_force) if is_held else None,
        item=item,
        tokens=None if stored is None else stored.weight.tokens,
        mean_score=None if stored is None else stored.reward,
        received_age_s=facts.received_age_s,
        batch=facts.batch_id,
        step=facts.step,
        lease=None if facts.lease is None else _shown_lease(facts.lease, facts.clock_ms),
        checkpoint=facts.checkpoint,
        ended_age_s=facts.ended_age_s,
        reason=facts.reason,
        filtered_by=None if entry.mark is None else entry.mark.filtered_by,
        annotations=annotations,
    )


def _shown_lease(lease: Lease, clock_ms: int) -> groups.GroupLease:
    return groups.GroupLease(
        state=lease.state,
        delivery_count=lease.delivery_count,
        trainer=lease.trainer or None,
        expires_s=seconds_left(lease, clock_ms),
    )
