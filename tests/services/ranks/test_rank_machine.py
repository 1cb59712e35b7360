"""Whatever ranks, whole trainers and those of Atropos do in whatever order, they share batches as a plain model says.

All that `test_state_machine` does to a run is done here, too, and its checks are made.
"""

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from app.core.ranks.requests import ShardRequest
from app.core.ranks.sharding import EndedBy, ShardingSpec
from app.services.batches.request import BatchRequest, BatchResult
from lachesis.wire.columns import unpack
from tests.properties import briefly_and_at_length, run_machine
from tests.services.batches.test_state_machine import (
    BATCH_SIZE,
    LONG_S,
    SHORT_S,
    RunMachine,
    leases_s,
    pick,
    requests,
    some,
)
from tests.services.conftest import RUN
from tests.services.processes import Processes
from tests.services.ranks.rank_model import RankModel, Shard
from tests.services.run_model import Batch

ranks = st.integers(0, 3)
splits = st.builds(
    ShardingSpec,
    world_size=st.integers(1, 4),
    split_groups=st.booleans(),
    equal_sequences=st.sampled_from((None, None, True, False)),
    cost=st.sampled_from(("tokens", "L + L^2")),
    ended_by=st.sampled_from((EndedBy.ALL, EndedBy.ALL, EndedBy.RANK_0)),
)
mostly = st.sampled_from((True, True, True, True, False))


def shard_of(answer: BatchResult) -> Shard:
    """The sequences that an answer brings; each begins with its position plus one (`test_state_machine.as_json`)."""
    assert answer.batch is not None
    assert answer.batch.shard is not None
    found: Shard = []
    for payload, told in zip(answer.batch.payloads, answer.batch.shard.sequences, strict=True):
        group = unpack(payload)
        tokens = group.columns["tokens"]
        firsts = np.cumsum([0, *tokens.lengths[0][:-1]])
        assert tuple(int(tokens.values[first]) - 1 for first in firsts) == told
        found += [(group.metadata["id"], position) for position in told]
    return found


class RankMachine(RunMachine):
    """One run with trainers of all kinds."""

    def __init__(self, processes: Processes) -> None:
        super().__init__(processes)
        self._model: RankModel = RankModel(BATCH_SIZE)
        self._split = ShardingSpec(2)

    @rule(spec=splits)
    def agree(self, spec: ShardingSpec) -> None:
        """From now on, ranks say this."""
        self._split = spec

    @rule(
        rank=ranks,
        agrees=mostly,
        other=splits,
        after=st.none() | st.integers(-1, 2),
        step=st.none() | st.integers(-1, 1),
        request=requests,
        lease_s=leases_s,
    )
    def take_shard(
        self,
        rank: int,
        agrees: bool,
        other: ShardingSpec,
        after: int | None,
        step: int | None,
        request: str | None,
        lease_s: int,
    ) -> None:
        spec = self._split if agrees else other
        ahead = None if after is None else self._model.step - after
        at = None if step is None else self._model.step + 1 - abs(step)
        self._take_shard(ShardRequest(rank % spec.world_size, spec, ahead, at, request or ""), lease_s)

    def _take_shard(self, shard_request: ShardRequest, lease_s: int) -> Batch | None:
        batch_request = BatchRequest(shard_request.request_id, lease_s, "rank", shard_request)
        expected, answer = self._both(
            lambda s: s.batches.dispatch.take(RUN, batch_request),
            lambda: self._model.take_shard(shard_request, lease_s),
        )
        if answer is None:
            return None
        if isinstance(expected, str):
            assert answer.not_ready is not None
            assert expected in ("minimum", answer.not_ready.blocker)
            return None
        assert answer.batch is not None, expected
        lease = answer.batch.lease
        assert (lease.step, lease.delivery_count) == (expected.step, expected.delivery_count)
        if expected.lease is None:
            assert lease.lease_id not in {lease_id for _, lease_id in self._handles}
            self._handles.append((lease.batch_id, lease.lease_id))
        assert (lease.batch_id, lease.lease_id) == (expected.id or lease.batch_id, expected.lease or lease.lease_id)
        expected.id, expected.lease = lease.batch_id, lease.lease_id
        self._model.remember(expected, shard_request.rank, shard_of(answer))
        return expected

    @rule(order=st.permutations(range(4)), lease_s=leases_s)
    def all_take(self, order: list[int], lease_s: int) -> None:
        for rank in order:
            if rank < self._split.world_size:
                self._take_shard(ShardRequest(rank, self._split), lease_s)

    @rule(order=st.permutations(range(4)), dies=st.none() | ranks, batches=st.integers(1, 2))
    def step(self, order: list[int], dies: int | None, batches: int) -> None:
        """The usual course; and the usual mishap."""
        for _ in range(batches):
            self.submit([(3, None, None, 0), (2, None, None, 0), (1, None, None, 0)], [], binary=True)
            self.all_take(order, SHORT_S)
            for rank in order:
                if self._handles and rank != dies and rank < self._split.world_size:
                    self.acknowledge_shard(0, rank)
            if dies is not None:
                self.pass_time(2)
                self.all_take(order, LONG_S)

    @precondition(lambda self: self._handles)
    @rule(which=some, rank=ranks)
    def acknowledge_shard(self, which: int, rank: int) -> None:
        handle = pick(self._handles, which)
        predicted, awaited = self._both(
            lambda s: s.batches.leases.acknowledge(RUN, *handle, rank),
            lambda: self._model.acknowledge_shard(*handle, rank),
        )
        assert awaited == predicted

    @rule(whole=st.booleans())
    def take_for_atropos(self, whole: bool) -> None:
        before = [batch for batch in self._model.batches if batch.state == "sent"]
        expected = self._model.take_for_atropos()

        async def answered(services: Any) -> BatchResult:
            answer: BatchResult = await services.batches.dispatch.take(RUN)
            if whole:
                await services.batches.atropos_delivery.finish(RUN, answer)
            elif answer.batch is not None:
                await services.batches.atropos_delivery.break_off(RUN, answer.batch)
            return answer

        answer = self._call(answered)
        if isinstance(expected, str):
            assert answer.not_ready is not None
        else:
            assert answer.batch is not None
            assert answer.batch.shard is None
            expected.id = answer.batch.lease.batch_id
            assert [unpack(payload).metadata["id"] for payload in answer.batch.payloads] == [
                group.id for group in expected.groups
            ]
        self._model.end_sending(before, expected, whole=whole)

    @rule(spec=splits)
    def nobody_is_stranded(self, spec: ShardingSpec) -> None:
        """Whatever others left, ranks that start again get through it after leases have expired, if serving runs."""
        self.change({"serving_paused": False})
        self._split = replace(spec, equal_sequences=None)
        self.pass_time(4)
        for _ in range(3 * len(self._model.batches) + 3):
            taken = [self._take_shard(ShardRequest(rank, self._split), SHORT_S) for rank in range(spec.world_size)]
            if None in taken:
                break
            assert len(set(taken)) == 1
            for rank in range(spec.world_size):
                self.acknowledge_shard(0, rank)
        assert {batch.state for batch in self._model.batches} <= {"quarantined", "sent"}

    @invariant()
    def the_ranks_agree(self) -> None:
        leases = self._call(lambda services: services.runs.administration.get(RUN)).leases
        by_id = {batch.id: division for batch, division in self._model.divided.items()}
        for lease in leases:
            if lease.state == "held":
                theirs = by_id.get(lease.batch_id)
                assert (lease.sharding is None) == (theirs is None)
                if theirs is not None and lease.sharding is not None:
                    assert lease.sharding.spec == theirs.spec
                    assert set(lease.sharding.taken) == theirs.taken
                    assert set(lease.sharding.acknowledged) == theirs.acknowledged


@briefly_and_at_length(("examples", "steps"), (8, 25), (60, 50))
def test_ranks_share_batches_as_a_plain_model_says(processes: Processes, examples: int, steps: int) -> None:
    run_machine(lambda: RankMachine(processes), examples, steps)
