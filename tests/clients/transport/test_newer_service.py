"""Replies of a newer service: this version leaves out what it does not know."""

import json
from contextlib import aclosing
from typing import Any

import httpx
import pytest

from lachesis import AsyncReplay, AsyncTrainer, Settings
from lachesis._transport.curriculum_calls import CurriculumCalls
from lachesis._transport.protocol import Call, Reply, read_reply
from lachesis._transport.replay_calls import ReplayCalls
from lachesis._transport.run_calls import RunCalls
from lachesis.wire.blob import read_header, with_metadata
from lachesis.wire.curriculum_items import SampleItems
from lachesis.wire.filters import PassRateFilter, RewardRangeFilter, ZeroVarianceFilter
from lachesis.wire.replay import RateLimiter, Sampling
from tests.clients.replay.test_replay import steps

FILTERS: dict[str, Any] = {
    "filter_zero_variance": ZeroVarianceFilter(),
    "filter_reward_range": RewardRangeFilter(above=-1),
    "filter_pass_rate": PassRateFilter(),
}


def newer(value: Any) -> Any:
    """The same with a further field in each object that has fields."""
    if isinstance(value, list):
        return [newer(one) for one in value]
    if isinstance(value, dict) and value:
        return {name: newer(one) for name, one in value.items()} | {"of_the_next_version": {"a": 1}}
    return value


@pytest.fixture
async def populated(run: Settings) -> Settings:
    """The run with all nested settings."""
    async with AsyncTrainer(run) as trainer, AsyncReplay(run) as replay:
        await trainer.change_run(**FILTERS)
        await trainer.curriculum("gsm8k").set_up()
        limiter = RateLimiter(samples_per_insert=1, min_diff=-9, max_diff=9)
        await replay.set_up(limiter=limiter, sampling=Sampling(strategy="fifo"))
    return run


@pytest.mark.parametrize(
    "call",
    [
        RunCalls("math").show(),
        RunCalls("math").curricula(),
        CurriculumCalls("math", "gsm8k").info(),
        ReplayCalls("math").state(),
    ],
    ids=lambda call: call.path,
)
async def test_settings_with_further_fields_are_read(populated: Settings, call: Call[Any]) -> None:
    async with httpx.AsyncClient(base_url=populated.url) as client:
        there = (await client.get(call.path)).json()
    same = read_reply(call, Reply(200, {}, json.dumps(there).encode()))
    assert read_reply(call, Reply(200, {}, json.dumps(newer(there)).encode())) == same


async def test_a_sample_with_further_fields_is_read(populated: Settings) -> None:
    async with AsyncReplay(populated) as replay:
        async with replay.worker("w", steps=1) as worker:
            await worker.insert(steps(0, 1), policy_version=0)
        async with aclosing(replay.samples(num_chunks=1, prefetch=0, wait_s=10)) as samples:
            sample = await anext(samples)
            call = ReplayCalls("math").show(sample.info.sample)
            async with httpx.AsyncClient(base_url=populated.url, headers=call.headers) as client:
                there = (await client.get(call.path)).content
            await sample.ack()
    header = read_header(there)
    metadata = {**header.metadata, "sample": json.dumps(newer(json.loads(header.metadata["sample"])))}
    read = read_reply(call, Reply(200, {}, with_metadata(there, header, metadata)))
    assert (read.info.sampling, read.info.records) == (sample.info.sampling, sample.info.records)


def test_events_keep_fields_that_this_version_does_not_know() -> None:
    event = {"id": "1-0", "time_s": 1.5, "kind": "batch taken", "of_the_next_version": 3}
    reply = Reply(200, {}, json.dumps({"events": [event], "next_after": "1-0"}).encode())
    assert read_reply(RunCalls("math").events("0", 1), reply).events[0].model_dump() == event


def test_a_receipt_may_have_an_outcome_that_this_version_does_not_know() -> None:
    reply = Reply(201, {}, b'{"groups": [{"id": "a", "status": "deduplicated"}]}')
    assert read_reply(RunCalls("math").submit([b""]), reply).groups[0].status == "deduplicated"
    reply = Reply(201, {}, b'{"fragments": [{"number": 0, "status": "throttled", "fragment": null}]}')
    assert read_reply(ReplayCalls("math").insert([b""], 0), reply)[0].status == "throttled"


def test_a_sample_may_lack_items_for_a_reason_that_this_version_does_not_know() -> None:
    sample = {"strategy": "uniform", "in_flight": 0, "in_flight_ttl_s": 1, "missing": "paused", "retry_after_s": None}
    call = CurriculumCalls("math", "gsm8k").sample(SampleItems(n=1))
    assert read_reply(call, Reply(200, {}, json.dumps(sample).encode())).missing == "paused"
