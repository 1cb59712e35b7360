"""Take in groups on the native API. Groups of any size are queued; stale and filtered ones are counted and dropped."""

from collections import Counter
from collections.abc import Sequence

from app.core.access.queue_limits import LimitedAccount
from app.core.environments.record import EnvironmentRecord
from app.core.groups.staleness import drop_reason
from app.services.groups.admission import Admission, GroupSubmission, MissingRun, checked
from app.store.groups.admission_context import AdmissionContext
from app.store.groups.encoded_group import EncodedGroup
from app.store.groups.entries import Outcome, Placement
from app.store.groups.known import KnownGroupStore
from app.store.redis.compare_and_swap import Attempts
from lachesis.wire.errors import EnvironmentNotFound, InvalidField, RunNotFound


class NativeIngest:
    """Takes in groups on the native API."""

    def __init__(self, known: KnownGroupStore, admission: Admission) -> None:
        self._known = known
        self._admission = admission

    async def submit(
        self,
        run: str,
        groups: Sequence[EncodedGroup],
        only: str | None = None,
        account: LimitedAccount | None = None,
        meant: str | None = None,
    ) -> list[Outcome]:
        """Store groups, all or none. Once this returns they survive any crash. Safe to repeat.

        Args:
            run: The run's name.
            groups: The groups.
            only: The only environment that the sender may act for, by name; None for any.
            account: The account of the sender, if its groups in the queue are limited.
            meant: The environment that ids in groups stand for, by name; None for any. Ids begin with 0 in each run,
                so an id from before the run was created again may be that of another environment.

        Returns:
            The outcome of each group.

        Raises:
            RunNotFound: There is no such run.
            EnvironmentNotFound: The run has no environment with the id that a group names, or it is not ``meant``.
            InvalidField: A group has no id, or two have the same one.
            PermissionDenied: A group is not of environment ``only``.
            RunArchived, IntakePaused, QueueFull, GroupExists, StoreFull: Nothing was stored.
            StoreUnavailable: Redis did not answer. The groups may be stored or not.
        """
        ids = _checked_ids(groups)
        known: frozenset[str | None] = frozenset()

        def place(group: EncodedGroup, context: AdmissionContext) -> Placement:
            if context.batch_size is None:
                raise RunNotFound.named(run)
            repeated = group.given_id in known
            if not repeated and group.environment is not None:
                _check_environment(group, context.environments.get(group.environment), meant)
            return _place(group, context, known=repeated)

        submission = GroupSubmission(groups, place, MissingRun.PLACE, limited=True, only=only, account=account)
        attempts = Attempts("store groups", run)
        while attempts.again():
            try:
                return (await self._admission.admit(run, submission)).outcomes
            except (EnvironmentNotFound, InvalidField):
                # A known group gets its first outcome again, even if it would be refused now.
                found = await self._known.recognised(run, ids)
                if found <= known:
                    raise
                known = found


def _checked_ids(groups: Sequence[EncodedGroup]) -> list[str]:
    """Return the ids of groups.

    Raises:
        InvalidField: A group has none, or two have the same one.
    """
    ids: list[str] = []
    for group in groups:
        if group.given_id is None:
            raise InvalidField("is required", (*group.path, "id"))
        ids.append(group.given_id)
    if len(set(ids)) < len(ids):
        twice, times = next(pair for pair in Counter(ids).items() if pair[1] > 1)
        raise InvalidField(f"{times} groups have the id {twice}", (*groups[ids.index(twice)].path, "id"))
    return ids


def _check_environment(group: EncodedGroup, record: EnvironmentRecord | None, meant: str | None) -> None:
    number, named_by = group.environment, f"which group {group.given_id} names"
    if record is None:
        raise EnvironmentNotFound(f"the run has no environment {number}, {named_by}")
    if meant is not None and record.desired_name != meant:
        raise EnvironmentNotFound(f"environment {number}, {named_by}, is not {meant!r}")


def _place(group: EncodedGroup, context: AdmissionContext, *, known: bool) -> Placement:
    """Decide what happens to a group. A ``known`` group gets its first outcome again, whatever is decided here."""
    sampled, current = group.policy_version, context.policy_version
    dropped = drop_reason(sampled, current, context.policy)
    if dropped is not None:
        return Placement(group.environment, policy_version=sampled, dropped=dropped)
    # A future version that is accepted counts as the current one.
    counts_as = None if sampled is None else min(sampled, current)
    place = Placement(group.environment, policy_version=counts_as)
    return checked(group, place, context, "drop" if known else context.policy.long_sequences)
