"""A trainer against the real service."""

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Callable
from contextlib import aclosing

import httpx
import pytest

from lachesis import AsyncEnvironment, AsyncTrainer, NoBatch, Settings, Unreachable
from lachesis.errors import BatchInUse, BatchNotFound, InvalidField, LeaseLost, RewindImpossible, RunExists, RunNotFound
from tests.clients.conftest import settings_of
from tests.clients.proxy import CuttingProxy, Direction
from tests.clients.run import counts, group, leased, submitted
from tests.scenarios.native_calls import trainers_wait
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


async def test_every_group_is_trained_on_once_and_in_order(run: Settings) -> None:
    async with AsyncTrainer(run) as trainer, AsyncEnvironment("math", run) as environment:
        ids = await submitted(environment, [group(position) for position in range(1, 9)])
        trained = []
        async with aclosing(trainer.batches(prefetch=2, wait_s=5)) as batches:
            async for batch in batches:
                trained += [one.id for one in batch.groups]
                assert {one.environment_name for one in batch.groups} == {"math"}
                assert batch.tokens.tolist() == [ids.index(one.id) + 1 for one in batch.groups]
                await batch.ack()
                if len(trained) == len(ids):
                    break
        assert trained == ids
        assert await counts(trainer) == {"queued": 0, "leased": 0, "delivered": 8}


async def test_a_run_is_made_once_and_changed_while_it_runs(settings: Settings) -> None:
    async with AsyncTrainer(settings) as trainer:
        with pytest.raises(RunNotFound):
            await trainer.run()
        made = await trainer.create_run(batch_size=2, max_staleness=3)
        assert await trainer.create_run(batch_size=2, max_staleness=3) == made
        with pytest.raises(RunExists):
            await trainer.create_run(batch_size=4)
        changed = await trainer.change_run(max_staleness=None)
        assert (changed.batch_size, changed.max_staleness) == (2, None)
        assert await trainer.create_run(batch_size=2) == changed, "what a restarted trainer does not name stays changed"
        with pytest.raises(RunExists, match="max_staleness is null"):
            await trainer.create_run(batch_size=2, max_staleness=3)
        assert (await trainer.status()).run == "math"
        await trainer.delete_run()
        with pytest.raises(RunNotFound):
            await trainer.status()


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda trainer: trainer.create_run(0), "batch_size: .*, not 0"),
        (lambda trainer: trainer.create_run("many"), "batch_size: .*, not 'many'"),
        (lambda trainer: trainer.create_run(2, lease_s=-1), "lease_s: .*, not -1"),
        (lambda trainer: trainer.create_run(2, leases_s=60), "leases_s: there is no such field; did you mean lease_s"),
        (lambda trainer: trainer.create_run(2, atropos={"num_steps": "x"}), r"atropos\.num_steps: .*, not 'x'"),
        (lambda trainer: trainer.change_run(max_staleness=-2), "max_staleness: .*, not -2"),
        (lambda trainer: trainer.change_run(name="other"), "name: there is no such field"),
        (lambda trainer: trainer.set_policy_version(-1), "policy_version: .*, not -1"),
        (lambda trainer: trainer.checkpoint(1.5), r"step: .*, not 1\.5"),
        (lambda trainer: trainer.rewind(None), "step: .*, not None"),
        (lambda trainer: trainer.read_group("a", tokens=100), "sequence: is required with first_token and tokens"),
        (lambda trainer: trainer.read_group("a", first_token=1), "sequence: is required with first_token and tokens"),
        (lambda trainer: trainer.take(lease_s=0), "lease_s: .*, not 0"),
        (lambda trainer: trainer.take(wait_s=601), "wait_s: should be 0 to 600 seconds, not 601"),
        (lambda trainer: anext(trainer.batches(lease_s=-3)), "lease_s: .*, not -3"),
        (lambda trainer: anext(trainer.batches(prefetch=-1)), "prefetch: should be 0 or more, not -1"),
        (lambda trainer: anext(trainer.batches(wait_s=0)), "wait_s: should be above 0, not 0"),
    ],
)
async def test_a_wrong_value_is_an_error_of_the_sdk_that_names_the_field(
    run: Settings, call: Callable[[AsyncTrainer], Awaitable[object]], said: str
) -> None:
    async with AsyncTrainer(run) as trainer:
        with pytest.raises(InvalidField, match=f"^{said}") as raised:
            await call(trainer)
        (where,) = raised.value.errors
        assert ".".join(where["loc"]) == said.partition(":")[0].replace("\\", "")
        assert raised.value.__suppress_context__ or raised.value.__context__ is None


async def test_a_loop_that_waits_forever_says_what_for(run: Settings, caplog: pytest.LogCaptureFixture) -> None:
    """The run and the reason, after 5 s; also where it waits in `take`, and where a request began before the wait."""

    async def waits(trainer: AsyncTrainer) -> None:
        async with aclosing(trainer.batches()) as batches:
            await anext(batches)

    async with AsyncTrainer(run) as trainer:
        waiting = [asyncio.create_task(waits(trainer)), asyncio.create_task(trainer.take(wait_s=60))]
        await wait_until(lambda: _were_logged(caplog, 2))
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
    for said in _logged(caplog):
        assert re.match("run math: no batch for [5-9] s: too_few_sequences: a batch needs 2 sequences", said)


def _logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "lachesis._transport.logs"]


async def _were_logged(caplog: pytest.LogCaptureFixture, count: int) -> bool:
    return len(_logged(caplog)) == count


async def test_no_batch_in_time_says_what_is_missing(run: Settings) -> None:
    async with AsyncTrainer(run) as trainer:
        assert await trainer.take() is None

        async def says_what_is_missing() -> bool:
            with pytest.raises(NoBatch, match=r"no batch in 0\.5 s: ") as none:
                await anext(trainer.batches(wait_s=0.5))
            return "too_few_sequences" in str(none.value)

        await wait_until(says_what_is_missing)  # a busy service may take longer for its first answer
        assert (await trainer.explain()).reason == "too_few_sequences"


@pytest.mark.parametrize("leave", ["break", "raise", "close"])
async def test_leaving_the_loop_gives_back_what_was_not_acknowledged(run: Settings, leave: str) -> None:
    async with AsyncTrainer(run) as trainer, AsyncEnvironment("math", run) as environment:
        ids = await submitted(environment, [group(position) for position in range(1, 7)])
        batches = trainer.batches(prefetch=2, wait_s=5)
        first = await anext(batches)
        await wait_until(lambda: leased(trainer, 6))
        if leave == "raise":
            with pytest.raises(ZeroDivisionError):
                await batches.athrow(ZeroDivisionError())
        elif leave == "close":
            await trainer.aclose()
        else:
            await batches.aclose()
        assert not first.held
        async with AsyncTrainer(run) as another:
            assert await counts(another) == {"queued": 6, "leased": 0, "delivered": 0}
            again = await another.take()
            assert again is not None
            assert [one.id for one in again.groups] == ids[:2]


async def test_a_batch_is_acknowledged_by_its_block_or_given_back_when_that_raises(run: Settings) -> None:
    async with AsyncTrainer(run) as trainer, AsyncEnvironment("math", run) as environment:
        await submitted(environment, [group(position) for position in range(1, 5)])
        batch = await trainer.take()
        assert batch is not None
        with pytest.raises(ZeroDivisionError):
            async with batch:
                raise ZeroDivisionError
        assert await counts(trainer) == {"queued": 4, "leased": 0, "delivered": 0}
        batch = await trainer.take()
        assert batch is not None
        async with batch:
            pass
        assert await counts(trainer) == {"queued": 2, "leased": 0, "delivered": 2}


async def test_a_batch_is_given_back_whatever_the_text_of_the_error_has(run: Settings) -> None:
    async with AsyncTrainer(run) as trainer, AsyncEnvironment("math", run) as environment:
        await submitted(environment, [group(1), group(2)])
        for text in ("no file \udcff", "", "\0\n", "x" * 100_000):
            batch = await trainer.take(wait_s=5)
            assert batch is not None
            with pytest.raises(RuntimeError):
                async with batch:
                    raise RuntimeError(text)
            assert await counts(trainer) == {"queued": 2, "leased": 0, "delivered": 0}


async def test_a_batch_that_its_block_gave_back_is_not_acknowledged(run: Settings) -> None:
    async with AsyncTrainer(run) as trainer, AsyncEnvironment("math", run) as environment:
        await submitted(environment, [group(1), group(2)])
        batch = await trainer.take()
        assert batch is not None
        async with batch:
            await batch.nack("its tokens are odd")
        assert await counts(trainer) == {"queued": 2, "leased": 0, "delivered": 0}


async def test_a_lease_is_extended_as_long_as_the_batch_is_held(run: Settings) -> None:
    """Prefetched ones as well: their leases last half a second, and the step takes two."""
    async with (
        AsyncTrainer(run) as trainer,
        AsyncTrainer(run) as another,
        AsyncEnvironment("math", run) as environment,
    ):
        await submitted(environment, [group(position) for position in range(1, 5)])
        batches = trainer.batches(prefetch=1, wait_s=5, lease_s=0.5)
        first = await anext(batches)
        await wait_until(lambda: leased(trainer, 4))
        assert await another.take(wait_s=2) is None
        await first.ack()
        second = await anext(batches)
        assert second.info.delivery_count == 1
        await second.ack()
        await batches.aclose()
        assert await counts(trainer) == {"queued": 0, "leased": 0, "delivered": 4}


async def test_a_lease_that_was_lost_is_said_when_the_batch_is_acknowledged(run: Settings, proxy: CuttingProxy) -> None:
    """The trainer is cut off for longer than its lease; another one gets the same batch."""
    direct = settings_of(proxy, url=f"http://127.0.0.1:{proxy.upstream}")
    port = proxy.upstream
    async with (
        AsyncTrainer(settings_of(proxy)) as trainer,
        AsyncTrainer(direct) as another,
        AsyncEnvironment("math", direct) as environment,
    ):
        await submitted(environment, [group(1), group(2)])
        mine = await trainer.take(lease_s=0.5)
        assert mine is not None
        proxy.upstream = None
        await proxy.drop_all()
        theirs = await another.take(wait_s=20)
        assert theirs is not None
        assert (theirs.info.batch, theirs.info.delivery_count) == (mine.info.batch, 2)
        proxy.upstream = port
        with pytest.raises(LeaseLost):
            await mine.ack()
        with pytest.raises(LeaseLost):
            await mine.nack()
        assert not mine.held
        await theirs.ack()
        assert (await counts(another))["delivered"] == 2


async def test_after_a_rewind_the_batches_since_come_again_before_any_new_one(run: Settings) -> None:
    async with AsyncTrainer(run) as trainer, AsyncEnvironment("math", run) as environment:
        await submitted(environment, [group(position) for position in range(1, 11)])
        batches = trainer.batches(prefetch=1, wait_s=5)
        trained = []
        for _ in range(3):
            batch = await anext(batches)
            trained.append(batch)
            await batch.ack()
        await wait_until(lambda: leased(trainer, 2))
        await trainer.checkpoint(trained[0].step)
        rewound = await trainer.rewind(trained[0].step)
        assert rewound.steps[:2] == [batch.step for batch in trained[1:]]
        again = [await anext(batches) for _ in range(4)]
        for before, after in zip(trained[1:], again, strict=False):
            assert after.info.batch == before.info.batch
            assert after.tokens.tolist() == before.tokens.tolist()
        assert [batch.step for batch in again] == sorted(batch.step for batch in again)
        assert [token for batch in again for token in batch.tokens.tolist()] == [3, 4, 5, 6, 7, 8, 9, 10]
        for batch in again:
            await batch.ack()
        with pytest.raises(RewindImpossible):
            await trainer.rewind(trained[0].step - 1)
        await batches.aclose()


@pytest.mark.parametrize("direction", ["request", "reply"])
async def test_a_batch_whose_request_is_cut_anywhere_is_taken_once(
    run: Settings, proxy: CuttingProxy, direction: Direction
) -> None:
    async with AsyncTrainer(run) as trainer, AsyncEnvironment("math", run) as environment:
        ids = await submitted(environment, [group(position) for position in range(1, 41)])
        before = proxy.passed[direction]
        batch = await trainer.take()
        assert batch is not None
        await batch.nack()
        whole = (proxy.passed[direction] - before) * 3 // 4  # the nack is smaller than the take
        taken = []
        cuts = sorted({0, 1, 100, whole // 4, whole // 2, whole})
        for done, after_bytes in enumerate(cuts, start=1):
            proxy.cut(direction, after_bytes)
            batch = await trainer.take(wait_s=5)
            assert batch is not None
            taken += [one.id for one in batch.groups]
            await batch.ack()
            await trainer.status()  # a cut that was beyond the others is spent here
            assert proxy.cuts == done
        assert taken == ids[: len(taken)]
        assert await counts(trainer) == {"queued": 40 - len(taken), "leased": 0, "delivered": len(taken)}


@pytest.mark.parametrize("deed", ["ack", "nack", "extend"])
@pytest.mark.parametrize("direction", ["request", "reply"])
async def test_the_end_of_a_batch_is_safe_to_repeat(
    run: Settings, proxy: CuttingProxy, direction: Direction, deed: str
) -> None:
    async with AsyncTrainer(run) as trainer, AsyncEnvironment("math", run) as environment:
        await submitted(environment, [group(position) for position in range(1, 13)])
        for done, after_bytes in enumerate((0, 1, 60, 120), start=1):
            batch = await trainer.take()
            assert batch is not None
            proxy.cut(direction, after_bytes)
            await {"ack": batch.ack, "nack": batch.nack, "extend": batch.extend}[deed]()
            assert proxy.cuts == done
            if deed == "extend":
                await batch.ack()
        delivered = 0 if deed == "nack" else 8
        assert await counts(trainer) == {"queued": 12 - delivered, "leased": 0, "delivered": delivered}


@pytest.mark.parametrize("repeated", [True, False])
@pytest.mark.parametrize("direction", ["request", "reply"])
async def test_a_batch_whose_ack_failed_is_held_until_it_is_repeated_or_the_loop_ends(
    run: Settings, proxy: CuttingProxy, direction: Direction, repeated: bool
) -> None:
    async with AsyncEnvironment("math", run) as environment:
        await submitted(environment, [group(1), group(2)])
    async with AsyncTrainer(settings_of(proxy, retry_budget_s=0)) as trainer:
        batches = trainer.batches(prefetch=0)
        batch = await anext(batches)
        proxy.cut(direction, 0)
        with pytest.raises(Unreachable):
            await batch.ack()
        assert batch.held
        if repeated:
            await batch.ack()
        await batches.aclose()
        assert not batch.held
        delivered = 2 if repeated or direction == "reply" else 0
        assert await counts(trainer) == {"queued": 2 - delivered, "leased": 0, "delivered": delivered}


async def test_a_batch_whose_answer_never_came_is_not_forgotten(run: Settings, proxy: CuttingProxy) -> None:
    """Without a budget the error is raised; the next request asks for the same batch."""
    async with (
        AsyncTrainer(settings_of(proxy, retry_budget_s=0)) as trainer,
        AsyncEnvironment("math", run) as environment,
    ):
        ids = await submitted(environment, [group(1), group(2), group(3), group(4)])
        proxy.cut("reply", 0)
        with pytest.raises(Unreachable):
            await trainer.take()
        assert await leased(trainer, 2)
        batch = await trainer.take()
        assert batch is not None
        assert [one.id for one in batch.groups] == ids[:2]
        assert await leased(trainer, 2)


async def test_a_trainer_that_closes_gives_back_a_batch_whose_answer_never_came(
    run: Settings, proxy: CuttingProxy
) -> None:
    async with AsyncEnvironment("math", settings_of(proxy)) as environment:
        await submitted(environment, [group(1), group(2)])
        async with AsyncTrainer(settings_of(proxy, retry_budget_s=0)) as trainer:
            proxy.cut("reply", 0)
            with pytest.raises(Unreachable):
                await trainer.take()
        async with AsyncTrainer(settings_of(proxy)) as another:
            assert await counts(another) == {"queued": 2, "leased": 0, "delivered": 0}


async def test_a_prefetch_that_failed_during_a_step_is_repeated_after_it(run: Settings, proxy: CuttingProxy) -> None:
    """The service is away for longer than the budget while the trainer works on a batch."""
    async with (
        AsyncTrainer(settings_of(proxy, retry_budget_s=0.5)) as trainer,
        AsyncEnvironment("math", run) as environment,
    ):
        await submitted(environment, [group(1), group(2)])
        batches = trainer.batches(prefetch=1)
        first = await anext(batches)
        (feed,) = trainer._feeds
        port, proxy.upstream = proxy.upstream, None
        await proxy.drop_all()
        await wait_until(lambda: feed._filling is not None and feed._filling.done())
        proxy.upstream = port
        await first.ack()
        ids = await submitted(environment, [group(3), group(4)])
        second = await anext(batches)
        assert [one.id for one in second.groups] == ids
        await second.ack()
        await batches.aclose()


async def test_two_loops_at_once_never_get_the_same_batch(run: Settings) -> None:
    async with AsyncTrainer(run) as trainer, AsyncEnvironment("math", run) as environment:
        ids = await submitted(environment, [group(position) for position in range(1, 41)])

        async def loop() -> list[str]:
            trained: list[str] = []
            batches = trainer.batches(prefetch=2, wait_s=1)
            with contextlib.suppress(NoBatch):
                async for batch in batches:
                    trained += [one.id for one in batch.groups]
                    await batch.ack()
            return trained

        trained = await asyncio.gather(loop(), loop())
        assert sorted(name for names in trained for name in names) == sorted(ids)


async def test_an_error_of_the_service_ends_the_loop_and_another_can_begin(settings: Settings) -> None:
    async with AsyncTrainer(settings) as trainer:
        with pytest.raises(RunNotFound):
            await anext(trainer.batches())
        await trainer.create_run(batch_size=1)
        async with AsyncEnvironment("math", settings) as environment:
            await submitted(environment, [group(1)])
            batches = trainer.batches(wait_s=5)
            batch = await anext(batches)
            await batch.ack()
            await batch.ack()
            await batches.aclose()


async def test_an_extension_of_a_batch_that_is_gone_says_so(run: Settings) -> None:
    async with AsyncTrainer(run) as trainer, AsyncEnvironment("math", run) as environment:
        await submitted(environment, [group(1), group(2)])
        batch = await trainer.take()
        assert batch is not None
        await trainer.delete_run()
        await trainer.create_run(batch_size=2)
        with pytest.raises((LeaseLost, BatchNotFound)):
            await batch.extend()
        assert not batch.held


async def test_a_repeated_request_gets_its_batch_while_another_trainer_waits(
    run: Settings, proxy: CuttingProxy
) -> None:
    """The other one was first in line for the next batch; this one is there already."""
    direct = settings_of(proxy, url=f"http://127.0.0.1:{proxy.upstream}")
    async with (
        AsyncTrainer(settings_of(proxy, retry_budget_s=0)) as trainer,
        AsyncTrainer(direct) as another,
        AsyncEnvironment("math", direct) as environment,
    ):
        ids = await submitted(environment, [group(1), group(2)])
        proxy.cut("reply", 0)
        with pytest.raises(Unreachable):
            await trainer.take()
        waiting = asyncio.create_task(another.take(wait_s=20))
        async with httpx.AsyncClient(base_url=direct.url, trust_env=False) as client:
            await trainers_wait(client, 1)
        batch = await trainer.take(wait_s=5)
        assert batch is not None
        assert [one.id for one in batch.groups] == ids
        await batch.nack()
        theirs = await waiting
        assert theirs is not None
        assert [one.id for one in theirs.groups] == ids


async def test_a_batch_that_kills_its_trainers_is_quarantined_then_released_or_dropped(run: Settings) -> None:
    async with AsyncTrainer(run) as trainer, AsyncEnvironment("math", run) as environment:
        await trainer.change_run(max_deliveries=1)
        await submitted(environment, [group(1), group(2)])
        for end in (trainer.release_quarantined, trainer.drop_quarantined):
            async with AsyncTrainer(run) as dying:
                batch = await dying.take(lease_s=0.2)
                assert batch is not None
                batch._lease.forget()  # as if its process had died
                with pytest.raises(BatchInUse):
                    await trainer.drop_quarantined(batch.info.batch)
                await wait_until(lambda: _is_quarantined(trainer))
            await end(batch.info.batch)
            assert (await trainer.leased_batches()).batches == []
        assert await counts(trainer) == {"queued": 0, "leased": 0, "delivered": 0}
        assert (await trainer.status()).dropped["quarantined"] == 2


async def _is_quarantined(trainer: AsyncTrainer) -> bool:
    assert await trainer.take() is None
    return [held.state for held in (await trainer.leased_batches()).batches] == ["quarantined"]
