"""What a run of the native API is, said in the plainest way: a queue, batches in hands, batches kept, and the rules.

It answers each call as the service must, from lists and dicts alone. The service chooses the ids of batches and leases:
a batch just taken has none until `Batch.handed_out` is called.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from app.core.model import Bounds
from tests.core.batches import oracle


class Refused(Exception):
    """The call is refused: the error's code, and words that its message must have."""

    def __init__(self, code: str, why: str = "") -> None:
        super().__init__(code, why)
        self.code, self.why = code, why


@dataclass(eq=False, slots=True)
class Group:
    """A group; `contents` stands for all that its sender did not name, and is the reward of each sequence."""

    id: str
    size: int
    environment: int | None
    version: int | None
    contents: int = 0
    arrival: int = 0

    @property
    def lengths(self) -> list[int]:
        """Return the tokens of each sequence."""
        return [1 + (self.contents + n) % 3 for n in range(self.size)]

    @property
    def tokens(self) -> int:
        return sum(self.lengths)

    @property
    def item(self) -> str:
        return f"item{self.contents % 3}"


@dataclass(eq=False, slots=True)
class Batch:
    """A batch that was taken and has not ended: ``held``, ``returned`` or ``quarantined``; or one that is kept."""

    groups: list[Group]
    step: int
    id: str = ""
    state: str = "returned"
    delivery_count: int = 0
    lease: str | None = None
    deadline: int = 0
    request: str | None = None
    trained_version: int = 0
    rewound: bool = False
    given_back: str | None = None

    def handed_out(self, batch_id: str, lease: str) -> None:
        self.id, self.lease = batch_id, lease


@dataclass(slots=True)
class RunModel:
    """One run. Times are seconds of its clock. Its `relax_after_s` never passes."""

    batch_size: int
    max_staleness: int | None = None
    max_deliveries: int = 2
    max_queued_groups: int | None = None
    keep_batches: int = 16
    future_versions: str = "restamp"
    filter_reward_range: dict[str, float] | None = None
    intake_paused: bool = False
    serving_paused: bool = False
    version: int = 0
    step: int = 0
    now: int = 0
    queue: list[Group] = field(default_factory=list)
    known: dict[str, tuple[Group, str]] = field(default_factory=dict)
    batches: list[Batch] = field(default_factory=list)
    kept: list[Batch] = field(default_factory=list)
    ends: dict[str, tuple[str, str | None]] = field(default_factory=dict)
    shares: dict[int, float] = field(default_factory=dict)
    deleted: set[str] = field(default_factory=set)
    left: set[int] = field(default_factory=set)
    delivered: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    tokens: Counter[str] = field(default_factory=Counter)  # generated, trained, and dropped by reason
    starvation: Counter[str] = field(default_factory=Counter)
    unkept_step: int | None = None
    checkpointed: tuple[int, int] | None = None

    def submit(self, groups: Sequence[Group], *, limited: bool = True) -> list[tuple[str, bool]]:
        """Submit groups, if wanted beyond the limit. Return the outcome of each, and whether it was sent before."""
        if self.intake_paused:
            raise Refused("intake_paused")
        repeated = [group.id in self.known for group in groups]
        full = limited and self._is_full_for(groups)
        for group in groups:
            if group.id in self.known:
                if self.known[group.id][0].contents != group.contents:
                    raise Refused("group_exists", group.id)
            elif full:
                raise Refused("queue_full")
        new = {group.id: group for group in groups if group.id not in self.known}.values()
        reasons = {group.id: self._drop_reason(group) or self._filtered(group) for group in new}
        if not all(reasons.values()):
            self.starvation.clear()
        for group in groups:
            if group.id not in self.known:
                reason = reasons[group.id]
                self.left.discard(-1 if group.environment is None else group.environment)  # its groups arrive again
                self.known[group.id] = group, "refused" if reason == "future_version" else reason or "accepted"
                self.tokens["generated"] += group.tokens
                if reason:
                    self._count_dropped(reason, group)
                    if all(reasons.values()):
                        self.starvation.update({reason: 1, "sequences": group.size})
                else:
                    group.version = None if group.version is None else min(group.version, self.version)
                    group.arrival = len(self.known)
                    self.queue.append(group)
        return [(self.known[group.id][1], before) for group, before in zip(groups, repeated, strict=True)]

    def may_exceed_limit(self, groups: Sequence[Group]) -> bool:
        """Return whether the run may take groups that the limit refuses, because what waits makes no batch."""
        return self._is_full_for(groups) and not self.intake_paused and self._oldest() is None

    def _is_full_for(self, groups: Sequence[Group]) -> bool:
        """Return whether the limit refuses new groups.

        Groups that fit no batch count separately, up to the same limit.
        """
        if self.max_queued_groups is None:
            return False
        oversized = sum(group.size > self.batch_size for group in self.queue)
        brings = any(
            group.size > self.batch_size and not (self._drop_reason(group) or self._filtered(group)) for group in groups
        )
        fitting_are_full = len(self.queue) - oversized >= self.max_queued_groups
        return fitting_are_full or (brings and oversized >= self.max_queued_groups)

    def take(self, request: str | None, lease_s: int) -> Batch | str:
        """Take the next batch, or say why there is none."""
        for batch in list(self.batches):
            if not request or batch.state != "held" or batch.request != request:
                continue
            if batch.deadline > self.now or self._is_whole(batch):
                batch.deadline = max(batch.deadline, self.now + lease_s)
                return batch
        self.tick()
        if self.serving_paused:
            return "serving_paused"
        for batch in list(self.batches):
            if self._waits(batch) and self._is_whole(batch):
                return self._hold(batch, request, lease_s)
        return self._take_new(request, lease_s)

    def _take_new(self, request: str | None, lease_s: int) -> Batch | str:
        while (planned := self._oldest()) is not None:
            dropped = [group for group in planned if self._drop_reason(group)]
            for group in dropped:
                self._drop(group)
            if not dropped:
                self.queue = [group for group in self.queue if group not in planned]
                self.step += 1
                self.batches.append(Batch(planned, self.step))
                return self._hold(self.batches[-1], request, lease_s)
        return self._blocker()

    def tick(self) -> None:
        """Quarantine what ran out for the last time."""
        for batch in self.batches:
            if batch.state == "held" and batch.deadline <= self.now and batch.delivery_count >= self.max_deliveries:
                batch.state = "quarantined"

    def acknowledge(self, batch_id: str, lease: str) -> None:
        batch = self._held(batch_id, lease, "acknowledged")
        if batch:
            self._deliver(batch)
            self._trim()

    def give_back(self, batch_id: str, lease: str | None) -> None:
        batch = self._held(batch_id, lease, "put back")
        if batch and batch.rewound and lease is not None:
            batch.given_back = lease
            batch.state, batch.request, batch.lease = "returned", None, None
        elif batch:
            self._dissolve(batch)
            self.set_version(self.version)

    def extend(self, batch_id: str, lease: str, lease_s: int) -> None:
        batch = self._held(batch_id, lease, "held")
        assert batch, "no batch ends by being held"
        batch.deadline = max(batch.deadline, self.now + lease_s)

    def discard(self, batch_id: str) -> None:
        batch = next((batch for batch in self.batches if batch.id == batch_id), None)
        if batch is None:
            raise Refused("batch_not_found")
        if batch.state != "quarantined":
            raise Refused("batch_in_use", batch.state)
        self._end(batch, "discarded")
        self._count_dropped("quarantined", *batch.groups)

    def delete(self, group: Group) -> None:
        """Delete a group that waits; again changes nothing."""
        if group in self.queue:
            self._delete(group)
        elif group.id not in self.deleted:
            raise Refused("group_not_waiting", "only a waiting group")

    def delete_matching(self, environment: int | str | None, size: int | None, older_than: int | None) -> int:
        """Returns how many groups that deletes."""
        meant = [
            group
            for group in self.queue
            if environment in (None, "none" if group.environment is None else group.environment)
            and size in (None, group.size)
            and (older_than is None or (group.version is not None and group.version < older_than))
        ]
        for group in meant:
            self._delete(group)
        return len(meant)

    def _delete(self, group: Group) -> None:
        self.queue.remove(group)
        self.deleted.add(group.id)
        self._count_dropped("deleted", group)

    def change(self, **settings: Any) -> None:
        for name, value in settings.items():
            setattr(self, name, value)
        self._trim()
        self.set_version(self.version)

    def set_version(self, version: int) -> int:
        """Returns how many groups that drops."""
        self.version = version
        dropped = [group for group in self.queue if self._drop_reason(group)]
        for group in dropped:
            self._drop(group)
        for group in self.queue:
            group.version = None if group.version is None else min(group.version, version)
        return len(dropped)

    def _check_taken(self, step: int) -> None:
        if step > self.step:
            raise Refused("invalid_field", f"at step {self.step}")

    def checkpoint(self, step: int) -> tuple[int, int]:
        """Returns the step that the run can still go back to, and how many batches it keeps."""
        self._check_taken(step)
        self.kept = [batch for batch in self.kept if batch.step > step]
        if self.checkpointed is None or self.checkpointed[0] <= step:
            self.checkpointed = step, self.version
        self._note_unkept(step)
        assert self.unkept_step is not None
        return self.unkept_step, len(self.kept)

    def rewind(self, step: int) -> tuple[list[str], list[str], int]:
        """Returns the batches that come again, in order; those that are quarantined; and the version from now on."""
        self._check_taken(step)
        if self.unkept_step is not None and step < self.unkept_step:
            raise Refused("rewind_impossible", f"to step {self.unkept_step} at the earliest")
        before = [batch for batch in self.batches if batch.step <= step]
        brought_back = [batch for batch in before if batch.state == "returned" and batch.rewound]
        trained = [batch for batch in before if batch.state in ("held", "sent")]
        for batch in trained + [batch for batch in brought_back if batch.given_back is None]:
            self._deliver(batch)
        later = [batch for batch in self.kept if batch.step > step]
        version = later[0].trained_version if later else self.version
        if self.checkpointed is not None and self.checkpointed[0] == step:
            version = self.checkpointed[1]
        for batch in later:
            self.kept.remove(batch)
            self.delivered -= len(batch.groups)
            self.tokens["trained"] -= sum(group.tokens for group in batch.groups)
            batch.state, batch.delivery_count = "returned", 1
            self.batches.append(batch)
        self.batches.sort(key=lambda batch: batch.step)
        again = [batch for batch in self.batches if batch.step > step and batch.state != "quarantined"]
        waiting = [batch for batch in self.batches if batch.step <= step and batch.state == "returned"]
        for batch in again:
            batch.state, batch.request, batch.lease, batch.rewound = "returned", None, None, True
            batch.given_back = None
        self._trim()
        self.set_version(version)
        left_out = [batch for batch in self.batches if batch.step > step and batch not in again]
        for batch in left_out:
            batch.lease = None
        return [batch.id for batch in waiting + again], [batch.id for batch in left_out], version

    def where(self, group: Group) -> str:
        """Say where a group is: ``queued``, or in which batch, or that it is gone."""
        if group in self.queue:
            return "queued"
        return next((f"leased {batch.id}" for batch in self.batches if group in batch.groups), "gone")

    def _drop_reason(self, group: Group) -> str:
        if group.version is None:
            return ""
        if self.max_staleness is not None and self.version - group.version > self.max_staleness:
            return "stale"
        return "future_version" if group.version > self.version and self.future_versions == "refuse" else ""

    def _filtered(self, group: Group) -> str:
        band = self.filter_reward_range
        return "reward_range" if band is not None and group.contents >= band["below"] else ""

    def _oldest(self) -> list[Group] | None:
        queue = [oracle.Group(group.environment, group.size) for group in self.queue]
        bounds = {environment: Bounds(int(self.batch_size * share)) for environment, share in self._binding().items()}
        chosen = oracle.oldest_batch_by_walking(queue, self.batch_size, bounds)
        return None if chosen is None else [self.queue[position] for position in chosen]

    def _binding(self) -> dict[int, float]:
        return {environment: share for environment, share in self.shares.items() if environment not in self.left}

    def _blocker(self) -> str:
        usable = sum(group.size for group in self.queue if group.size <= self.batch_size)
        return (
            "too_few_sequences"
            if usable < self.batch_size
            else "minimum"
            if any(self._binding().values())
            else "no_exact_fit"
        )

    def _hold(self, batch: Batch, request: str | None, lease_s: int) -> Batch:
        batch.state, batch.delivery_count, batch.lease = "held", batch.delivery_count + 1, None
        batch.request, batch.deadline = request, self.now + lease_s
        return batch

    def _waits(self, batch: Batch) -> bool:
        return batch.state == "returned" or (batch.state == "held" and batch.deadline <= self.now)

    def _is_whole(self, batch: Batch) -> bool:
        """Return whether a batch can be served as it was; else it is dissolved."""
        whole = sum(group.size for group in batch.groups) == self.batch_size
        if not whole:
            self._dissolve(batch)
        return whole

    def _held(self, batch_id: str, lease: str | None, outcome: str) -> Batch | None:
        """Find the batch a caller means; None if what it asks for was done before."""
        batch = next((batch for batch in self.batches if batch.id == batch_id), None)
        if batch is None:
            if batch_id not in self.ends:
                raise Refused("batch_not_found")
            ended_as, last_lease = self.ends[batch_id]
            if ended_as != outcome or lease not in (None, last_lease):
                raise Refused("lease_lost", f"was {ended_as}")
        elif lease is None and (batch.state == "quarantined" or self._waits(batch)):
            return batch
        elif batch.lease != lease or (batch.state == "quarantined" and outcome != "acknowledged"):
            if outcome == "put back" and lease is not None and batch.given_back == lease:
                return None
            words = {
                "held": "under another lease",
                "returned": "waits to be handed out again",
                "sent": "is with a trainer of Atropos",
            }
            raise Refused("lease_lost", words.get(batch.state, "is quarantined"))
        return batch

    def _end(self, batch: Batch, outcome: str) -> None:
        self.batches.remove(batch)
        self.ends[batch.id] = outcome, batch.lease

    def _deliver(self, batch: Batch) -> None:
        self._end(batch, "acknowledged")
        batch.trained_version = self.version
        self.delivered += len(batch.groups)
        self.tokens["trained"] += sum(group.tokens for group in batch.groups)
        if self.keep_batches:
            self.kept = sorted([*self.kept, batch], key=lambda batch: batch.step)
        else:
            self._note_unkept(batch.step)

    def _trim(self) -> None:
        while len(self.kept) > self.keep_batches:
            self._note_unkept(self.kept.pop(0).step)

    def _note_unkept(self, step: int) -> None:
        self.unkept_step = step if self.unkept_step is None else max(self.unkept_step, step)

    def _dissolve(self, batch: Batch) -> None:
        self._end(batch, "put back")
        self.queue = sorted(self.queue + batch.groups, key=lambda group: group.arrival)

    def _drop(self, group: Group) -> None:
        self.queue.remove(group)
        self._count_dropped(self._drop_reason(group), group)

    def _count_dropped(self, reason: str, *groups: Group) -> None:
        self.dropped[reason] += len(groups)
        self.tokens[reason] += sum(group.tokens for group in groups)

    def ledger(self) -> dict[str, int]:
        """Return the tokens by state, without states that have none."""
        leased = [group for batch in self.batches for group in batch.groups]
        where = {"queued": self.queue, "leased": leased}
        held = {state: sum(group.tokens for group in groups) for state, groups in where.items()}
        return {state: tokens for state, tokens in {**self.tokens, **held}.items() if tokens}


def is_within(seen: dict[str, Any], name: str, bound: float | None) -> bool:
    """Return whether a value of a group keeps a bound, such as ``score_min``. A group without the value keeps none."""
    of, _, side = name.rpartition("_")
    value = seen[of]
    return bound is None or (value is not None and (value >= bound if side == "min" else value <= bound))
