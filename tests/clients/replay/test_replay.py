"""Workers and trainers of a replay buffer against the real service."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import httpx
import numpy as np
import pytest

from lachesis import AsyncEnvironment, AsyncReplay, AsyncTrainer, NoBatch, Replay, Settings
from lachesis.errors import (
    InvalidField,
    LeaseLost,
    ReplayBlocked,
    ReplayNotFound,
    SampleNotFound,
    SnapshotNotFound,
    Unreachable,
)
from lachesis.loader import Loader
from lachesis.loader.nested import Nested
from lachesis.wire.blob import LABELLED, MAX_HEADER_BYTES
from lachesis.wire.replay import RateLimiter, Sampling
from tests.api.replay.calls import in_json
from tests.clients.conftest import settings_of
from tests.clients.proxy import CuttingProxy
from tests.clients.run import counts, group, interrupted_end, submitted
from tests.clients.silence import silent_service
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

FIFO = Sampling(strategy="fifo")


@pytest.fixture
async def replay(run: Settings) -> AsyncIterator[AsyncReplay]:
    """A buffer that hands out what came first first."""
    async with AsyncReplay(run, name="trainer") as replay:
        await replay.set_up(sampling=FIFO, max_reuse=1)
        yield replay


def steps(first: int, count: int) -> Nested:
    """Steps that tell their numbers."""
    numbers = np.arange(first, first + count)
    return {"obs": {"image": numbers.astype(np.uint8)[:, None], "state": [numbers / 2]}, "action": numbers}


async def test_what_workers_stream_is_trained_on_step_by_step(replay: AsyncReplay) -> None:
    await replay.change(fragments_per_chunk=2)
    async with replay.worker("w", steps=4) as worker:
        for first, count in ((0, 3), (3, 1), (4, 9), (13, 3)):
            await worker.insert(steps(first, count), policy_version=0, episode=f"e{first}", reward=1.0, cost=0.5)
        assert worker.outcomes == {"stored": 4}
    seen: list[int] = []
    async with aclosing(replay.samples(num_fragments=2, prefetch=2, wait_s=10)) as samples:
        async for sample in samples:
            data = sample.stacked()
            assert data["obs"]["state"][0].shape == (2, 4)
            assert (data["obs"]["image"][..., 0] == data["action"]).all()
            seen += data["action"].reshape(-1).tolist()
            assert len(sample.chunks) == 1
            await sample.ack()
            if len(seen) == 16:
                assert [record.episodes for record in sample.records] == [["e4"], ["e4", "e13"]]
                assert [(record.reward, record.cost) for record in sample.records] == [(4, 2), (4, 2)]
                break
    assert seen == list(range(16))
    assert (await replay.state()).avg_reuse == 1


async def test_a_sample_may_say_more_of_its_fragments_than_one_fragment_may_of_itself(replay: AsyncReplay) -> None:
    note = "x" * (MAX_HEADER_BYTES // 2)
    async with httpx.AsyncClient(base_url=str(replay.settings.url)) as client:
        for number in range(3):
            body = in_json(number, metadata={"note": note})
            reply = await client.post("/v1/runs/math/replay/fragments", json=body)
            assert reply.status_code == 201, reply.text
    async with aclosing(replay.samples(num_chunks=3, wait_s=10)) as samples:
        sample = await anext(samples)
    assert [record.metadata for record in sample.records] == [{"note": note}] * 3
    assert [fragment["action"]["camera"].tolist() for fragment in sample.fragments()] == [[n, 0.5] for n in range(3)]


async def test_the_rest_of_an_episode_is_a_shorter_fragment_with_versions_by_step(replay: AsyncReplay) -> None:
    async with AsyncTrainer(replay.settings) as trainer:
        await trainer.set_policy_version(5)
    async with replay.worker("w", steps=4) as worker:
        await worker.insert(steps(0, 2), policy_version=5, priority=3)
        await worker.insert(steps(2, 1), policy_version=[4])
        await worker.flush()
        await worker.flush()
    async with aclosing(replay.samples(num_chunks=1, wait_s=10)) as samples:
        sample = await anext(samples)
        (fragment,) = sample.fragments()
        assert fragment["action"].tolist() == [0, 1, 2]
        assert fragment["policy_versions"].tolist() == [5, 5, 4]
        assert (sample.records[0].version, sample.staleness.tolist()) == (4, [1])
        assert sample.importance_weights.tolist() == [1]
        await sample.ack()


async def test_steps_of_several_versions_are_stacked_with_those_of_one(replay: AsyncReplay) -> None:
    async with AsyncTrainer(replay.settings) as trainer:
        await trainer.set_policy_version(5)
    async with replay.worker("w", steps=2) as worker:
        await worker.insert(steps(0, 4), policy_version=[4, 4, 4, 5])
    async with aclosing(replay.samples(num_chunks=2, wait_s=10)) as samples:
        data = (await anext(samples)).stacked()
    assert data["action"].tolist() == [[0, 1], [2, 3]]
    assert data["policy_versions"].tolist() == [[4, 4], [4, 5]]


async def test_bits_of_bf16_that_say_so_are_bf16_for_the_trainer_too(replay: AsyncReplay) -> None:
    bits = np.array([0x3F80, 0x4000, 0xC000], np.uint16)
    async with replay.worker("w", steps=3) as worker:
        for part in (bits[:1], bits[1:]):
            await worker.insert({"obs": {"x": part.view(LABELLED["BF16"]), "y": part}}, policy_version=0)
        await worker.insert({"obs": {"x": bits[:1].view(LABELLED["BF16"]), "y": bits[:1]}}, policy_version=0)
        with pytest.raises(InvalidField, match=r"obs/x: is uint16 \(\) a step, and was .*BF16"):
            await worker.insert({"obs": {"x": bits[:1], "y": bits[:1]}}, policy_version=0)
    async with aclosing(replay.samples(num_chunks=1, wait_s=10)) as samples:
        sample = await anext(samples)
    assert sample.dtypes() == [{"obs/x": "BF16", "obs/y": "U16", "policy_versions": "I64"}]
    assert sample.fragments()[0]["obs"]["x"].tolist() == bits.tolist()


async def test_a_loop_that_waits_for_chunks_logs_how_many_are_missing(
    replay: AsyncReplay, caplog: pytest.LogCaptureFixture
) -> None:
    """After 5 s, or after 15 on a busy machine. A request that waits as long as it may has no answer before 30 s."""
    async with replay.worker("w", steps=1) as worker:
        await worker.insert(steps(0, 1), policy_version=0)
    waiting = asyncio.create_task(anext(replay.samples(num_chunks=2)))
    await wait_until(lambda: "s: sampling 2 needs 2 chunks; 1 can be sampled" in caplog.text, timeout_s=25)
    await replay.aclose()
    with pytest.raises(StopAsyncIteration):
        await waiting


async def test_a_worker_that_comes_back_continues_with_its_numbers(replay: AsyncReplay) -> None:
    for _ in range(2):
        async with replay.worker("w", steps=1) as worker:
            await worker.insert(steps(0, 3), policy_version=0)
    (known,) = (await replay.state()).workers
    assert (known.next_number, known.accepted_fragments, known.gaps) == (6, 6, 0)
    await replay.begin_session(1)
    async with replay.worker("w", steps=1) as worker:
        assert worker.session == 1
        await worker.insert(steps(0, 1), policy_version=0)
        assert worker.outcomes == {"stored": 1}


@pytest.mark.parametrize("direction", ["request", "reply"])
async def test_fragments_whose_answer_was_lost_are_stored_once(
    replay: AsyncReplay, proxy: CuttingProxy, direction: str
) -> None:
    async with replay.worker("w", steps=1) as worker:
        await worker.insert(steps(0, 1), policy_version=0)
        proxy.cut("request" if direction == "request" else "reply", 100)
        await worker.insert(steps(1, 4), policy_version=0)
    assert proxy.cuts == 1
    state = await replay.state()
    assert (state.accepted_fragments, state.sampleable_chunks, state.gaps) == (5, 5, 0)


async def test_fragments_that_could_not_be_sent_go_with_the_next_call(replay: AsyncReplay, proxy: CuttingProxy) -> None:
    upstream = proxy.upstream
    async with (
        AsyncReplay(settings_of(proxy, retry_budget_s=0.2)) as impatient,
        impatient.worker("w", steps=1) as worker,
    ):
        proxy.upstream = None
        await proxy.drop_all()
        with pytest.raises(Unreachable):
            await worker.insert(steps(0, 2), policy_version=0)
        proxy.upstream = upstream
        await worker.insert(steps(2, 1), policy_version=0)
        assert worker.outcomes == {"stored": 3}
    assert (await replay.state()).gaps == 0


async def test_a_sample_whose_answer_was_lost_is_not_lost(replay: AsyncReplay, proxy: CuttingProxy) -> None:
    async with replay.worker("w", steps=1) as worker:
        await worker.insert(steps(0, 2), policy_version=0)
    await replay.state()
    proxy.cut("reply", 100)
    async with aclosing(replay.samples(num_chunks=2, prefetch=0, wait_s=10)) as samples:
        await (await anext(samples)).ack()
    assert proxy.cuts == 1
    state = await replay.state()
    assert (state.limiter.samples, state.samples_held) == (2, 0)


async def test_what_a_loop_took_and_did_not_acknowledge_is_given_back(replay: AsyncReplay) -> None:
    async with replay.worker("w", steps=1) as worker:
        await worker.insert(steps(0, 6), policy_version=0)
    async with aclosing(replay.samples(num_chunks=1, prefetch=2, wait_s=10)) as samples:
        with pytest.raises(KeyError):
            async with await anext(samples):
                raise KeyError
        async with await anext(samples) as second:
            shown = await replay.show(second.info.sample)
            assert (shown.records, bytes(shown.blobs[0])) == (second.records, bytes(second.blobs[0]))
        await anext(samples)
    state = await replay.state()
    assert (state.samples_held, state.limiter.samples, state.sampleable_chunks) == (0, 1, 5)
    with pytest.raises(SampleNotFound):
        await replay.show(second.info.sample)


async def test_an_interrupted_end_extends_no_lease_and_can_be_repeated(run: Settings, proxy: CuttingProxy) -> None:
    replay = AsyncReplay(run)
    await replay.set_up()
    async with replay.worker("w", steps=1) as worker:
        await worker.insert(steps(0, 4), policy_version=0)
    loops = [replay.samples(num_chunks=1, prefetch=0) for _ in range(2)]
    samples = [await anext(loop) for loop in loops]
    async with silent_service(proxy):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await replay.aclose()
        assert [sample.held for sample in samples] == [False, False]
        for loop in loops:
            await loop.aclose()
        await replay.aclose()
        assert not replay._sender.is_open


async def test_a_loop_whose_end_is_interrupted_while_another_ends_extends_no_lease(replay: AsyncReplay) -> None:
    async with replay.worker("w", steps=1) as worker:
        await worker.insert(steps(0, 4), policy_version=0)
    loop = replay.samples(num_chunks=1, prefetch=0)
    sample = await anext(loop)
    async with replay._closing:  # as while the other loop ends
        await interrupted_end(loop)
    assert not sample.held


async def test_a_loop_that_waits_ends_when_its_buffer_is_closed(run: Settings) -> None:
    replay = AsyncReplay(run)
    await replay.set_up()

    async def trained() -> list[str]:
        return [sample.info.sample async for sample in replay.samples(num_chunks=1)]

    training = asyncio.create_task(trained())
    await wait_until(lambda: bool(replay._feeds))
    await replay.aclose()
    assert await training == []


async def test_a_lease_that_was_lost_is_said_so(replay: AsyncReplay) -> None:
    async with replay.worker("w", steps=1) as worker:
        await worker.insert(steps(0, 1), policy_version=0)
    async with aclosing(replay.samples(num_chunks=1, prefetch=0, wait_s=10)) as samples:
        sample = await anext(samples)
        assert await sample.extend(900) == 900
        async with AsyncReplay(replay.settings) as other:
            held = await other.show(sample.info.sample)
            await other._sender.send(other._calls.lease(held.info.sample, held.info.lease).nack(None))
        with pytest.raises(LeaseLost):
            await sample.ack()
        assert not sample.held


@pytest.mark.parametrize("given", [{"prefetch": -1}, {"wait_s": 0}, {"wait_s": float("nan")}])
async def test_a_loop_with_a_wrong_number_is_refused_by_name(replay: AsyncReplay, given: dict[str, Any]) -> None:
    (name,) = given
    with pytest.raises(InvalidField, match=f"^{name}: should be "):
        await anext(replay.samples(num_chunks=1, **given))


async def test_a_blocked_client_learns_what_blocks_it(replay: AsyncReplay) -> None:

    async def told() -> bool:
        with pytest.raises(NoBatch, match=r"no sample in 0\.2 s: ") as raised:
            await anext(replay.samples(num_chunks=1, wait_s=0.2))
        return "chunks: sampling 1 needs 1 chunk; 0 can" in str(raised.value)

    await wait_until(told)  # a service that is busy may not have answered within 0.2 s
    await replay.change(limiter=RateLimiter(samples_per_insert=1, min_diff=0, max_diff=2))
    async with AsyncReplay(settings_of_run(replay)) as other:
        worker = other.worker("w", steps=1, patience_s=0)
        for number in range(2):
            await worker.insert(steps(number, 1), policy_version=0)
        with pytest.raises(ReplayBlocked, match="max_diff = 2"):
            await worker.insert(steps(2, 1), policy_version=0)
        assert worker.outcomes == {"stored": 2}
        patient = replay.worker("v", steps=1)
        held_up = asyncio.create_task(patient.insert(steps(0, 1), policy_version=0))
        async with aclosing(replay.samples(num_chunks=1, prefetch=0, wait_s=10)) as samples:
            async with await anext(samples):
                await held_up
            async with await anext(samples):
                await worker.flush()
        assert (worker.outcomes, patient.outcomes) == ({"stored": 3}, {"stored": 1})


def settings_of_run(replay: AsyncReplay) -> Settings:
    """The same, and nothing is repeated."""
    given = replay.settings
    return Settings(given.url, run=given.run, retry_budget_s=0)


async def test_priorities_are_set_and_those_that_are_gone_are_named(replay: AsyncReplay) -> None:
    await replay.change(sampling=Sampling(strategy="proportional", alpha=1))
    async with replay.worker("w", steps=1) as worker:
        await worker.insert(steps(0, 2), policy_version=0)
    assert await replay.set_priorities({1: 9.0, 2: 1.0, 7: 1.0}) == [7]
    async with aclosing(replay.samples(num_chunks=2, wait_s=10)) as samples:
        sample = await anext(samples)
        chances = {record.chunk: record.probability for record in sample.records}
        assert chances == pytest.approx({1: 0.9, 2: 0.1}, rel=1e-3)
        await sample.ack()


async def test_fragments_are_read_in_parallel_by_the_loader(replay: AsyncReplay) -> None:
    async with replay.worker("w", steps=2) as worker:
        await worker.insert(steps(0, 16), policy_version=0)
    async with aclosing(replay.samples(num_chunks=8, wait_s=10)) as samples:
        sample = await anext(samples)
        ids = [record.fragment for record in sample.records]
        loader = Loader(replay.source(ids), batch_size=4, readers=4)
        read = [batch.data["action"].tolist() async for batch in loader]
        assert read == np.arange(16).reshape(2, 4, 2).tolist()
        assert (await replay.fetch(ids[0]))["obs"]["image"].tolist() == [[0], [1]]
        in_thread = await asyncio.to_thread(lambda: [batch.keys for batch in loader])
        assert in_thread == [ids[:4], ids[4:]]
        await sample.ack()


async def test_what_is_wrong_is_said_before_it_is_sent(replay: AsyncReplay) -> None:
    async with replay.worker("w", steps=4) as worker:
        for wrong, said in (
            ({"a": np.ones((2, 1)), "b": np.ones(3)}, "a: has 2 steps"),
            ({"a": np.ones(0)}, "a: has 0 steps"),
            ({"a": np.float32(1)}, "a: is one number"),
            ({"a": [1, 2, 3, 4]}, r"a/0: is one number, not an array .* lists nest: give numbers as np\.asarray"),
            ({"policy_versions": np.ones(2)}, "policy_versions: is given as policy_version"),
        ):
            with pytest.raises(InvalidField, match=said):
                await worker.insert(wrong, policy_version=0)
        for more, said in (
            ({"policy_version": -1}, r"policy_version\[0\]: is negative"),
            ({"policy_version": 1.0}, "policy_version: should be a whole number"),
            ({"policy_version": [0, 1, 2]}, "policy_version: should be a whole number, or 2 of them"),
            ({"policy_version": 0, "reward": [1.0]}, "reward: should be a number, or 2 of them"),
            ({"policy_version": 0, "reward": [1.0, np.nan]}, r"reward\[1\]: not a finite"),
            ({"policy_version": 0, "cost": [1.0, -1.0]}, r"cost\[1\]: not a finite number >= 0"),
        ):
            with pytest.raises(InvalidField, match=said):
                await worker.insert({"a": np.ones(2)}, **more)  # type: ignore[arg-type]
        await worker.insert({"a": np.ones(2)}, policy_version=0)
        for other, said in (({"b": np.ones(2)}, "is in some steps"), ({"a": np.ones((2, 3))}, "a: is float64")):
            with pytest.raises(InvalidField, match=said):
                await worker.insert(other, policy_version=0)
    with pytest.raises(InvalidField, match="num_chunks: "):
        await anext(replay.samples(num_chunks=0))
    with pytest.raises(InvalidField, match=r"^needs one of num_chunks and num_fragments, and not both$"):
        await anext(replay.samples())
    with pytest.raises(InvalidField, match=r"priorities: should be priorities by chunk, .* not list"):
        await replay.set_priorities([1, 2])  # type: ignore[arg-type]
    with pytest.raises(InvalidField, match="max_reuses: there is no such field; did you mean max_reuse"):
        await replay.change(max_reuses=2)  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="steps: "):
        replay.worker("w", steps=0)


async def test_all_this_works_without_an_event_loop(run: Settings) -> None:
    def live() -> list[int]:
        with Replay(run) as replay:
            replay.set_up(sampling=FIFO)
            with replay.worker("w", steps=2) as worker:
                worker.insert(steps(0, 5), policy_version=0)
            assert worker.outcomes == {"stored": 3}, "the rest at the end of the block"
            seen: list[int] = []
            for sample in replay.samples(num_chunks=1, wait_s=10):
                assert 600 < sample.extend(900) <= 900
                with sample:
                    seen += sample.fragments()[0]["action"].tolist()
                    shown = replay.show(sample.info.sample)
                    assert shown.records == sample.records
                    assert replay.set_priorities(dict.fromkeys(sample.chunks, 2.0)) == []
                if len(seen) == 2:
                    break
            assert replay.state().samples_held == 0
            return seen

    assert await asyncio.to_thread(live) == [0, 1]


async def test_a_run_without_a_buffer_says_so(run: Settings) -> None:
    async with AsyncReplay(run) as replay:
        with pytest.raises(ReplayNotFound, match=r"no replay buffer\. .*Replay\.set_up"):
            await replay.state()
        with pytest.raises(ReplayNotFound):
            async with replay.worker("w", steps=1):
                pass
        with pytest.raises(ReplayNotFound):
            await anext(replay.samples(num_chunks=1, wait_s=5))


async def test_a_trainer_that_goes_back_to_its_snapshot_finds_the_buffer_as_it_was(replay: AsyncReplay) -> None:
    async with replay.worker("w", steps=1) as worker:
        await worker.insert(steps(0, 3), policy_version=0)
        taken = await replay.snapshot("step-1")
        assert (taken.name, taken.chunks, taken.inserts) == ("step-1", 3, 3)
        await worker.insert(steps(3, 2), policy_version=0)
    assert await replay.delete_chunks(worker="w") == 5
    assert (await replay.snapshot()).chunks == 0
    assert (await replay.snapshots())[0].name == "step-1"
    assert (await replay.restore("step-1")).sampleable_chunks == 3
    assert [chunk.first async for chunk in replay.chunks(descending=True)] == [2, 1, 0]
    await replay.delete_snapshot("step-1")
    with pytest.raises(SnapshotNotFound):
        await replay.restore("step-1")
    with pytest.raises(InvalidField):
        await replay.snapshot("no spaces")
    await replay.delete()
    with pytest.raises(ReplayNotFound):
        await replay.state()


async def test_a_buffer_without_a_bound_shows_the_default_and_warns_nobody(
    run: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    async with AsyncReplay(run) as replay:
        state = await replay.set_up(max_bytes=None)
        assert isinstance(state.settings.max_bytes, int)
        assert "other settings" not in caplog.text
        await replay.set_up(max_bytes=1000)
        assert "keeps them: {'max_bytes'" in caplog.text


async def test_chunks_are_listed_by_page_and_buffers_deleted_without_an_event_loop(run: Settings) -> None:
    def look(replay: Replay) -> None:
        replay.set_up(max_chunks=500)
        with replay.worker("w", steps=1) as worker:
            worker.insert(steps(0, 130), policy_version=0)
        assert [chunk.first for chunk in replay.chunks()] == list(range(130))
        assert next(replay.chunks(worker="other"), None) is None
        replay.snapshot("a")
        assert replay.delete_chunks(below_version=1) == 130
        assert replay.restore("a").sampleable_chunks == 130
        replay.delete_snapshot("a")
        assert replay.snapshots() == []
        replay.delete()
        with pytest.raises(ReplayNotFound):
            replay.delete()

    with Replay(run) as replay:
        await asyncio.to_thread(look, replay)


async def test_groups_that_were_trained_on_are_sampled_and_fill_batches_up(run: Settings) -> None:
    async with AsyncTrainer(run) as trainer, AsyncEnvironment("math", run) as environment, AsyncReplay(run) as replay:
        await replay.set_up(groups=True, max_reuse=2)
        old = await submitted(environment, [group(1), group(2)])
        await (await trainer.take(wait_s=5)).ack()
        async with aclosing(replay.samples(num_chunks=2, wait_s=5)) as samples:
            sample = await anext(samples)
            tokens = [one["tokens"].tolist() for one in sample.fragments()]
            assert tokens == [[1 + old.index(record.group or "")] for record in sample.records]
            await sample.ack()
        assert (await trainer.change_run(fresh_fraction=0.5)).fresh_fraction == 0.5
        (new,) = await submitted(environment, [group(3)])
        batch = await trainer.take(wait_s=5)
        first, second = batch.groups
        assert (first.id, first.replayed, second.id in old) == (new, None, True)
        assert second.replayed is not None
        assert second.replayed.uses == 1
        await batch.ack()
        assert (await replay.state()).retired_chunks == {"used_up": 1}


async def test_prefetched_batches_with_old_replayed_groups_are_kept(run: Settings) -> None:
    async with AsyncTrainer(run) as trainer, AsyncEnvironment("math", run) as environment, AsyncReplay(run) as replay:
        await replay.set_up(groups=True)
        await submitted(environment, [group(position, policy_version=0) for position in (1, 2)])
        await (await trainer.take(wait_s=5)).ack()
        await trainer.change_run(max_staleness=1, fresh_fraction=0.5)
        await trainer.set_policy_version(5)
        await submitted(environment, [group(position, policy_version=5) for position in (3, 4)])
        async with aclosing(trainer.batches(prefetch=1, wait_s=5)) as batches:
            first = await anext(batches)

            async def is_ready() -> bool:
                return (await counts(trainer))["leased"] == 2  # only fresh ones count

            await wait_until(is_ready)
            await trainer.set_policy_version(6)
            second = await anext(batches)
            assert [one.replayed is None for one in second.groups] == [True, False]
            assert second.info.policy_version == 5, "it was not given back and formed again"
            for batch in (first, second):
                await batch.ack()
