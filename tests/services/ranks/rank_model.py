"""`RunModel` for trainers of several ranks, and of Atropos: who shares which batch, and whose acknowledgement ends it.

What is in a shard is the service's to choose. What it chose once must stay so, and the shards of a batch must be
disjoint and, together, the batch.
"""

from dataclasses import dataclass, field

from app.core.ranks.requests import ShardRequest
from app.core.ranks.sharding import EndedBy, ShardingSpec
from tests.services.run_model import Batch, Refused, RunModel

Shard = list[tuple[str, int]]
"""Sequences: a group's id, and a position in it."""


@dataclass(slots=True)
class Division:
    """A batch in ranks' hands."""

    spec: ShardingSpec
    taken: set[int] = field(default_factory=set)
    acknowledged: set[int] = field(default_factory=set)
    requests: dict[int, str] = field(default_factory=dict)

    @property
    def awaited(self) -> tuple[int, ...]:
        needed = range(self.spec.world_size if self.spec.ended_by is EndedBy.ALL else 1)
        return tuple(rank for rank in needed if rank not in self.acknowledged)


@dataclass(slots=True)
class RankModel(RunModel):
    """One run, whose batches may be divided."""

    divided: dict[Batch, Division] = field(default_factory=dict)
    shards: dict[tuple[Batch, ShardingSpec], dict[int, Shard]] = field(default_factory=dict)

    def take(self, request: str | None, lease_s: int) -> Batch | str:
        """Take a batch whole."""
        taken = RunModel.take(self, request, lease_s)
        if isinstance(taken, Batch):
            self.divided.pop(taken, None)
        return taken

    def take_shard(self, shard_request: ShardRequest, lease_s: int) -> Batch | str:
        """Take a rank's shard of the next batch for it, or say why there is none."""
        if shard_request.spec.world_size > 1 and shard_request.after is not None and shard_request.after > self.step:
            raise Refused("step_mismatch", "created again")
        while True:
            waiting = next((batch for batch in self.batches if self._waits_for(batch, shard_request)), None)
            theirs = self._leased(shard_request)
            if theirs is not None and (waiting is None or waiting.step > theirs.step):
                _check_step(shard_request, theirs.step)
                theirs.deadline = max(theirs.deadline, self.now + lease_s)
                return self._sit_down(theirs, shard_request)
            self.tick()
            if self.serving_paused:
                return "serving_paused"
            _check_step(shard_request, waiting.step if waiting else self.step + 1)
            if waiting is None:
                _check_equal(shard_request, self.batch_size)
                taken = self._take_new(None, lease_s)
                return taken if isinstance(taken, str) else self._sit_down(taken, shard_request)
            if self._is_whole(waiting):
                _check_equal(shard_request, self.batch_size)
                if waiting in self.divided:
                    self.divided[waiting] = Division(self.divided[waiting].spec)
                return self._sit_down(self._hold(waiting, None, lease_s), shard_request)

    def acknowledge(self, batch_id: str, lease: str) -> None:
        self.acknowledge_shard(batch_id, lease, None)

    def acknowledge_shard(self, batch_id: str, lease: str, rank: int | None) -> tuple[int, ...]:
        """Returns the ranks whose acknowledgement is still missing."""
        batch = self._held(batch_id, lease, "acknowledged")
        if batch is None:
            return ()
        division = self.divided.get(batch)
        if (division is None) != (rank is None) or (division and rank and rank >= division.spec.world_size):
            raise Refused("invalid_field", "divided")
        if division is not None and rank is not None and set(division.awaited) - {rank}:
            division.acknowledged.add(rank)
            return division.awaited
        self._deliver(batch)
        self._trim()
        return ()

    def take_for_atropos(self) -> Batch | str:
        """Begin to send a batch to a trainer that says nothing of it."""
        taken = self.take(None, 0)
        if isinstance(taken, Batch):
            taken.state = "sending"
        return taken

    def end_sending(self, before: list[Batch], sent: Batch | str, *, whole: bool) -> None:
        """The answer has reached the trainer whole, and so acknowledges what had come before; or it broke off."""
        if isinstance(sent, Batch):
            sent.state = "sent" if whole else "returned"
        if whole:
            for batch in before:
                self._deliver(batch)
            self._trim()

    def remember(self, batch: Batch, rank: int, shard: Shard) -> None:
        """Check a shard against what was handed out of the same division before."""
        spec = self.divided[batch].spec
        known = self.shards.setdefault((batch, spec), {})
        assert known.setdefault(rank, shard) == shard, "a rank's shard changed"
        had = [sequence for one in known.values() for sequence in one]
        assert len(had) == len(set(had)), "two ranks have the same sequence"
        everything = {(group.id, position) for group in batch.groups for position in range(group.size)}
        assert set(had) <= everything
        if len(known) == spec.world_size:
            assert set(had) == everything, "nobody has a sequence of the batch"
        if spec.equal_sequences:
            assert len(shard) * spec.world_size == len(everything)

    def _waits_for(self, batch: Batch, shard_request: ShardRequest) -> bool:
        gone = batch.state == "held" and batch.delivery_count >= self.max_deliveries
        return self._waits(batch) and not gone and self._wants(batch, shard_request)

    def _wants(self, batch: Batch, shard_request: ShardRequest) -> bool:
        """A rank that has a later batch wants an earlier one if no rank had it, or if it came again without this rank.

        And if it came again to this very request.
        """
        if shard_request.after is None or batch.step > shard_request.after:
            return True
        if batch not in self.divided:
            return True  # it was taken without ranks
        is_held = batch.state == "held" and batch.deadline > self.now
        if is_held and shard_request.rank in self.divided[batch].taken:
            first = self.divided[batch].requests.get(shard_request.rank)
            return first is not None and first == shard_request.request_id
        return batch.delivery_count > 1

    def _leased(self, shard_request: ShardRequest) -> Batch | None:
        for batch, division in sorted(self.divided.items(), key=lambda item: item[0].step):
            if batch.state != "held" or batch.deadline <= self.now:
                continue
            if self._wants(batch, shard_request) and shard_request.rank not in division.acknowledged:
                if division.spec != shard_request.spec:
                    raise Refused("ranks_disagree")
                return batch
        return None

    def _sit_down(self, batch: Batch, shard_request: ShardRequest) -> Batch:
        if batch not in self.divided or self.divided[batch].spec != shard_request.spec:
            self.divided[batch] = Division(shard_request.spec)
        division, rank = self.divided[batch], shard_request.rank
        division.taken.add(rank)
        division.requests.pop(rank, None)
        if shard_request.after is not None and batch.step <= shard_request.after and shard_request.request_id:
            division.requests[rank] = shard_request.request_id
        return batch

    def _end(self, batch: Batch, outcome: str) -> None:
        RunModel._end(self, batch, outcome)
        self.divided.pop(batch, None)


def _check_step(shard_request: ShardRequest, step: int) -> None:
    if shard_request.step not in (None, step):
        raise Refused("step_mismatch", f"that of step {step}")


def _check_equal(shard_request: ShardRequest, batch_size: int) -> None:
    if shard_request.spec.equal_sequences and batch_size % shard_request.spec.world_size:
        raise Refused("invalid_field", "the same number")
