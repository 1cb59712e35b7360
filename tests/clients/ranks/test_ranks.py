"""What a rank says in the SDK, and what it gets."""

import asyncio
import re
from contextlib import aclosing
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.api.wire.rank_query import shard_request_of
from app.core.ranks.sharding import EndedBy, ShardingSpec
from lachesis import AsyncEnvironment, AsyncTrainer, Group, Rank, Settings, Trainer
from lachesis._transport.run_calls import RunCalls
from lachesis.errors import RanksDisagree
from lachesis.wire.batches import TakeBatch
from lachesis.wire.ranks import TakeQuery
from tests.clients.proxy import CuttingProxy
from tests.clients.run import counts, group, leased, submitted
from tests.properties import examples
from tests.waiting import wait_until

OF_THE_REQUEST = {"wait_s", "after", "step"}


def defaults_of(cls: type) -> dict[str, Any]:
    return {field.name: field.default for field in fields(cls) if field.name not in {"rank", "world_size"}}


def test_an_option_is_in_each_list_with_the_same_default() -> None:
    """The SDK leaves out what is as usual, so what is usual must be the same on both sides."""
    query = {name: field.default for name, field in TakeQuery.model_fields.items() if name not in OF_THE_REQUEST}
    assert (query.pop("rank"), query.pop("world_size")) == (None, None)
    assert defaults_of(Rank) == query == defaults_of(ShardingSpec)


@st.composite
def ranks(draw: st.DrawFn) -> Rank:
    world_size = draw(st.integers(1, 64))
    packing: dict[str, Any] = {}
    if draw(st.booleans()):
        packing = {
            "micro_batch_tokens": draw(st.integers(1, 2**40)),
            "padded": draw(st.booleans()),
            "equal_micro_batches": draw(st.booleans()),
        }
    return Rank(
        draw(st.integers(0, world_size - 1)),
        world_size,
        split_groups=draw(st.booleans()),
        equal_sequences=draw(st.none() | st.booleans()),
        cost=draw(st.sampled_from(["tokens", "declared", "24576*L + L^2"])),
        ended_by=draw(st.sampled_from(["all", "rank_0"])),
        **packing,
    )


@examples(200)
@given(ranks(), st.none() | st.integers(-5, 10**9))
def test_the_service_understands_what_a_rank_means(rank: Rank, after: int | None) -> None:
    call = RunCalls("math").take_shard(TakeBatch(), 3.0, rank, after)
    query = TakeQuery.model_validate(dict(call.params))
    shard_request = shard_request_of(query)
    assert shard_request is not None
    assert (query.wait_s, shard_request.rank, shard_request.after) == (3.0, rank.rank, after)
    meant = {field.name: getattr(rank, field.name) for field in fields(Rank) if field.name != "rank"}
    assert shard_request.spec == ShardingSpec(**{**meant, "ended_by": EndedBy(rank.ended_by)})


def test_a_rank_is_read_from_what_torchrun_sets() -> None:
    assert Rank.from_env({"RANK": "3", "WORLD_SIZE": "8"}, cost="declared") == Rank(3, 8, cost="declared")


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"WORLD_SIZE": "8"}, "RANK: is not set"),
        ({"RANK": "0"}, "WORLD_SIZE: is not set"),
        ({"RANK": "two", "WORLD_SIZE": "8"}, "RANK: should be a whole number, not 'two'"),
        ({"RANK": "8", "WORLD_SIZE": "8"}, "rank 8 of a world of 8"),
        ({"RANK": "-1", "WORLD_SIZE": "8"}, "rank -1 of a world of 8"),
    ],
)
def test_a_rank_that_cannot_be_is_refused_by_name(variables: dict[str, str], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Rank.from_env(variables)


@pytest.mark.parametrize(
    ("numbers", "options", "said"),
    [
        (("0", "4"), {}, "rank: should be a whole number, not '0'"),
        ((0, 4.0), {}, "world_size: should be a whole number, not 4.0"),
        ((0, 4), {"ended_by": "rank0"}, "ended_by: Input should be 'all' or 'rank_0'"),
        ((0, 4), {"micro_batch_tokens": 0}, "micro_batch_tokens: Input should be greater than or equal to 1"),
        ((0, 4), {"padded": True}, "padded: only with micro_batch_tokens"),
    ],
)
def test_what_the_service_would_refuse_is_refused_before_it_is_sent(
    numbers: tuple[Any, Any], options: dict[str, Any], said: str
) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(said)}"):
        Rank(*numbers, **options)


def test_a_trainer_takes_its_rank_as_a_rank() -> None:
    said = r"should be a Rank, such as Rank.from_env\(\), not 3"
    with Trainer(Settings("http://127.0.0.1:9", run="math")) as trainer, pytest.raises(TypeError, match=said):
        next(iter(trainer.batches(rank=3)))  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_ranks_train_on_everything_once_in_micro_batches_they_go_through_together(run: Settings) -> None:
    lengths = [*range(1, 9), *range(8, 0, -1)]
    trained: list[list[int]] = [[], []]
    numbers: list[list[int]] = [[], []]

    async def train(trainer: AsyncTrainer, rank: Rank) -> None:
        async with aclosing(trainer.batches(prefetch=1, wait_s=10, rank=rank)) as batches:
            async for batch in batches:
                rows = [row for micro_batch in batch.micro_batches for row in micro_batch.tolist()]
                assert sorted(rows) == list(range(len(batch.lengths)))
                assert all(batch.lengths[micro_batch].sum() <= 8 for micro_batch in batch.micro_batches)
                trained[rank.rank] += batch.lengths.tolist()
                numbers[rank.rank].append(len(batch.micro_batches))
                await batch.ack()
                if batch.step == 2:
                    return

    async with AsyncTrainer(run) as trainer, AsyncTrainer(run) as other, AsyncEnvironment("math", run) as environment:
        await trainer.change_run(batch_size=8)
        await submitted(environment, [group(*range(length)) for length in lengths])
        ranks = [Rank(number, 2, micro_batch_tokens=8) for number in range(2)]
        await asyncio.gather(train(trainer, ranks[0]), train(other, ranks[1]))
        assert await counts(trainer) == {"queued": 0, "leased": 0, "delivered": 16}
    assert sorted(trained[0] + trained[1]) == sorted(lengths)
    assert numbers[0] == numbers[1]


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_a_batch_that_is_not_packed_is_one_micro_batch(run: Settings) -> None:
    async with AsyncTrainer(run) as trainer, AsyncEnvironment("math", run) as environment:
        await submitted(environment, [group(1), group(2)])
        batch = await trainer.take(wait_s=5, rank=Rank(0, 1))
        assert batch is not None
        assert [rows.tolist() for rows in batch.micro_batches] == [[0, 1]]


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_ranks_that_do_not_agree_learn_what_on(run: Settings) -> None:
    async with AsyncTrainer(run) as trainer, AsyncEnvironment("math", run) as environment:
        await submitted(environment, [group(1), group(2)])
        assert await trainer.take(wait_s=5, rank=Rank(0, 2)) is not None
        with pytest.raises(RanksDisagree, match="cost is tokens for the ranks that have this batch, not declared"):
            await trainer.take(rank=Rank(1, 2, cost="declared"))


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_a_shard_that_is_taken_twice_and_acknowledged_is_not_given_back(run: Settings) -> None:
    """A rank gets its shard again until it acknowledges it. Giving it back would take it from all ranks."""
    async with AsyncTrainer(run) as other, AsyncEnvironment("math", run) as environment:
        await submitted(environment, [group(1), group(2)])
        async with AsyncTrainer(run) as trainer:
            first, second = [await trainer.take(wait_s=20, rank=Rank(0, 2)) for _ in range(2)]
            assert first is not None
            assert second is not None
            await second.ack()
            assert not first.held
            await first.ack()
        theirs = await other.take(wait_s=20, rank=Rank(1, 2))
        assert theirs is not None
        assert (theirs.info.batch, theirs.info.lease) == (first.info.batch, first.info.lease)
        await theirs.ack()
        assert await counts(other) == {"queued": 0, "leased": 0, "delivered": 2}


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_a_new_loop_of_a_rank_keeps_its_batch_when_the_former_one_closes(run: Settings) -> None:
    """After a `break`, asyncio closes the iterator later. The loop of another rank goes on."""
    async with AsyncTrainer(run) as trainer, AsyncEnvironment("math", run) as environment:
        await submitted(environment, [group(1), group(2)])
        left = trainer.batches(prefetch=1, wait_s=20, rank=Rank(0, 2))
        other = trainer.batches(prefetch=0, wait_s=20, rank=Rank(1, 2))
        for loop in (left, other):
            await (await anext(loop)).ack()
        await submitted(environment, [group(3), group(4)])
        await wait_until(lambda: leased(trainer, 2))
        async with aclosing(trainer.batches(prefetch=0, wait_s=20, rank=Rank(0, 2))) as batches:
            batch = await anext(batches)
            await left.aclose()
            await batch.ack()
        with pytest.raises(StopAsyncIteration):
            await anext(left)
        theirs = await anext(other)
        assert theirs.info.batch == batch.info.batch
        await theirs.ack()
        await other.aclose()
        assert await counts(trainer) == {"queued": 0, "leased": 0, "delivered": 4}


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_a_rank_without_a_group_goes_through_the_same_step(run: Settings) -> None:
    """One group cannot be divided between two ranks."""
    shapes = set()
    async with AsyncTrainer(run) as trainer, AsyncEnvironment("math", run) as environment:
        await submitted(environment, [Group([[1, 2], [3]], [[1, 2], [3]], [1.0, 0.0])])
        for number in range(2):
            batch = await trainer.take(wait_s=20, rank=Rank(number, 2, micro_batch_tokens=8, padded=True))
            assert batch is not None
            (rows,) = batch.micro_batches
            micro_batch = batch.tokens_padded(0)[rows, : batch.lengths[rows].max(initial=0)]
            shapes.add((len(batch.groups), micro_batch.shape, batch.tokens.shape, batch.scores.shape))
            await batch.ack()
        assert await counts(trainer) == {"queued": 0, "leased": 0, "delivered": 1}
    assert shapes == {(1, (2, 2), (3,), (2,)), (0, (0, 0), (0,), (0,))}


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("breaks_off", [False, True])
async def test_a_loop_gets_a_batch_that_comes_again_and_then_goes_on(
    run: Settings, proxy: CuttingProxy, breaks_off: bool
) -> None:
    """Rank 1 gives back a batch that a rewind brought back, while rank 0 has the next one."""
    async with AsyncTrainer(run) as trainer, AsyncTrainer(run) as other, AsyncEnvironment("math", run) as environment:
        await submitted(environment, [group(number) for number in range(4)])
        assert await trainer.take(wait_s=20, rank=Rank(0, 2)) is not None
        await trainer.rewind(0)
        given_back = await other.take(wait_s=20, rank=Rank(1, 2))
        assert given_back is not None
        steps = []
        async with aclosing(trainer.batches(prefetch=0, wait_s=20, rank=Rank(0, 2))) as batches:
            async for batch in batches:
                steps.append(batch.step)
                if steps == [1]:
                    await batch.ack()
                elif steps == [1, 2]:
                    await submitted(environment, [group(4), group(5)])
                    await given_back.nack()
                    if breaks_off:
                        proxy.cut("reply", 100)
                elif steps != [1, 2, 1]:
                    break
    assert steps == [1, 2, 1, 3]
