"""Groups of an Atropos environment on the native API. The library itself is in the end-to-end tests."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from lachesis import AsyncTrainer, Group, Settings
from lachesis.atropos import BinarySubmission, settings_of
from lachesis.errors import EnvironmentNotFound, InvalidField
from lachesis.wire.columns import DETAIL_FIELDS
from tests.clients.proxy import CuttingProxy, Direction
from tests.clients.run import counts
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(120)

WHOLE: dict[str, Any] = {
    "tokens": [[1, 2, 3], [4, 2**40]],
    "masks": [[-100, 2, 3], [-100, 2**40]],
    "scores": [0.1, -1.5],
    "advantages": [[0.5, 0.25, 0.1, 7.0], []],
    "ref_logprobs": [[-0.1, -0.2, -0.3], [-0.4, -0.5]],
    "messages": [[{"role": "user", "content": [{"type": "text", "text": "é\u2028"}], "name": "x"}], []],
    "generation_params": {"temperature": 0.7, "stop": None},
    "inference_logprobs": [[1.0, -0.1, -0.2], [1.0, -1e-30]],
    "overrides": [{"set_advantage_to_zero": True}, {}],
    "group_overrides": {"group_size": 2},
    "images": [None, "aGk="],
    "distill_token_ids": [[[1, 2], [3], []], [[4], [5, 6]]],
    "distill_logprobs": [[[-0.1, -0.2], [-0.3], []], [[-0.4], [-0.5, -0.6]]],
}


class Env(BinarySubmission):
    """What the mixin finds of a ``BaseEnv``: its configuration, and its id once it is registered."""

    def __init__(self, url: str, env_id: int | None) -> None:
        self.config = SimpleNamespace(rollout_server_url=url)
        self.env_id = env_id

    async def send(self, scored: Any) -> None:
        await self._send_scored_data_to_api(scored)


@pytest.fixture
async def trainer(run: Settings) -> AsyncIterator[AsyncTrainer]:
    """A trainer that has asked for its first batch, so that environments of Atropos are let in."""
    async with AsyncTrainer(run) as trainer:
        assert await trainer.take() is None
        yield trainer


@pytest.fixture
async def atropos(run: Settings, proxy: CuttingProxy, trainer: AsyncTrainer) -> AsyncIterator[httpx.AsyncClient]:
    """The run's Atropos surface."""
    async with httpx.AsyncClient(base_url=f"{proxy.url}/runs/{run.run}/atropos", verify=False) as client:
        yield client


@pytest.fixture
async def env(atropos: httpx.AsyncClient) -> AsyncIterator[Env]:
    """An environment that registered as its library does, with groups of eight."""
    application = {"max_token_length": 99, "desired_name": "gsm8k", "weight": 1.0, "group_size": 8}
    registered = (await atropos.post("/register-env", json=application)).json()
    assert registered["status"] == "success"
    env = Env(str(atropos.base_url), registered["env_id"])
    yield env
    await env.close_lachesis()


def scored(*tokens: int) -> dict[str, Any]:
    """A group of one sequence, as a ``BaseEnv`` has it."""
    return {"tokens": [list(tokens)], "masks": [list(tokens)], "scores": [0.5]}


@pytest.mark.parametrize(
    ("given", "url", "run"),
    [
        ("http://host:8000", "http://host:8000", "default"),
        ("http://host:8000/", "http://host:8000", "default"),
        ("http://host:8000/runs/math/atropos", "http://host:8000", "math"),
        ("https://user:word@host/behind/runs/math.2/atropos/", "https://user:word@host/behind", "math.2"),
        ("http://host/runs/math", "http://host/runs/math", "default"),
    ],
)
def test_service_and_run_are_those_of_the_atropos_url(given: str, url: str, run: str) -> None:
    assert (settings_of(given).url, settings_of(given).run) == (url, run)


async def test_an_atropos_trainer_is_served_every_field_as_it_was_scored(env: Env, atropos: httpx.AsyncClient) -> None:
    await env.send(WHOLE)
    (served,) = (await atropos.get("/batch")).json()["batch"]
    assert served == {**WHOLE, "env_id": env.env_id}


async def test_a_native_trainer_is_served_every_field_as_it_was_scored(env: Env, trainer: AsyncTrainer) -> None:
    await env.send(WHOLE)
    batch = await trainer.take()
    assert batch is not None
    (served,) = batch.groups
    assert served.environment == env.env_id
    assert served.details == {name: WHOLE[name] for name in DETAIL_FIELDS if name in WHOLE}
    assert set(served.names) >= {name for name in WHOLE if name not in DETAIL_FIELDS}
    assert served.column("scores").tolist() == WHOLE["scores"]
    assert served.column("tokens").tolist() == [token for row in WHOLE["tokens"] for token in row]
    assert served.lengths_of("advantages").tolist() == [4, 0]


async def test_groups_of_another_size_than_declared_wait_for_no_others(env: Env, trainer: AsyncTrainer) -> None:
    await env.send(scored(1))
    await env.send([scored(2), WHOLE])
    status = await trainer.status()
    assert (status.groups.queued, status.groups.buffered) == (3, 0)


@pytest.mark.parametrize("direction", ["request", "reply"])
async def test_a_submission_that_is_cut_is_sent_again_and_stored_once(
    env: Env, proxy: CuttingProxy, trainer: AsyncTrainer, direction: Direction
) -> None:
    before = proxy.passed[direction]
    await env.send([scored(1), scored(2)])
    proxy.cut(direction, proxy.passed[direction] - before - 1)
    await env.send([scored(1), scored(2)])
    assert proxy.cuts == 1
    assert (await counts(trainer))["queued"] == 4


@pytest.mark.slow
async def test_a_full_queue_is_waited_out_also_when_the_worker_is_cancelled(env: Env, trainer: AsyncTrainer) -> None:
    """``BaseEnv`` cancels its workers when the queue is long; what they made is not lost by that."""
    await trainer.change_run(max_queued_groups=2)
    await env.send([scored(1), scored(2)])
    waiting, cancelled = (asyncio.create_task(env.send(scored(token))) for token in (3, 4))
    done, _ = await asyncio.wait([waiting, cancelled], timeout=0.5)
    assert not done
    cancelled.cancel()
    batch = await trainer.take()
    assert batch is not None
    await batch.ack()
    await waiting

    async def both_arrived() -> bool:
        return (await counts(trainer))["queued"] == 2

    await wait_until(both_arrived)


async def test_what_is_wrong_is_said_and_nothing_of_its_list_is_stored(env: Env, trainer: AsyncTrainer) -> None:
    with pytest.raises(InvalidField, match=r"masks\[0\]: has 1 values where tokens has 2"):
        await env.send([scored(1), {**scored(1, 2), "masks": [[1]]}])
    env.env_id = 77
    with pytest.raises(EnvironmentNotFound, match=r"no environment 77, which group .* names"):
        await env.send([scored(1)])
    assert (await counts(trainer))["queued"] == 0


async def test_numbers_are_read_as_the_atropos_surface_reads_them(env: Env, trainer: AsyncTrainer) -> None:
    await env.send({"tokens": [[1.0, 2]], "masks": [[False, True]], "scores": [True]})
    await env.send({"tokens": [[1, 2]], "masks": [[0, 1]], "scores": [1.0], "distill_token_ids": [[[3.0], [True]]]})
    batch = await trainer.take()
    assert batch is not None
    assert [batch.tokens.tolist(), batch.masks.tolist(), batch.scores.tolist()] == [[1, 2] * 2, [0, 1] * 2, [1.0, 1.0]]
    assert batch.groups[1].column("distill_token_ids").tolist() == [3, 1]


@pytest.mark.parametrize("token", [1.5, float("inf"), float("nan"), 1e300, "1", None, [1]])
async def test_what_is_no_integer_is_not_made_one(env: Env, trainer: AsyncTrainer, token: Any) -> None:
    with pytest.raises(InvalidField, match="tokens"):
        await env.send({**scored(1), "tokens": [[token]]})
    assert (await counts(trainer))["queued"] == 0


async def test_an_environment_may_say_more_than_atropos_has_fields_for(env: Env, trainer: AsyncTrainer) -> None:
    class Versioned(Env):
        def lachesis_group(self, scored: Any) -> Group:
            return replace(super().lachesis_group(scored), policy_version=3, item="gsm8k/7", id="mine")

    await trainer.set_policy_version(4)
    versioned = Versioned(env.config.rollout_server_url, env.env_id)
    await versioned.send(scored(1))
    await versioned.close_lachesis()
    assert (await trainer.find_group("mine")).policy_version == 3
