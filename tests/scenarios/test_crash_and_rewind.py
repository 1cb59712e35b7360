"""After a crash, a trainer gets each batch since its last checkpoint again, once."""

import asyncio
from pathlib import Path
from random import Random

import httpx
import pytest
from redis.asyncio import Redis

from app.store.redis import scripts
from app.store.redis.keys import RunKeys
from tests.api.conftest import running_service
from tests.lossy_line import lossy_line
from tests.scenarios.native_calls import (
    RUN,
    Batch,
    content,
    end,
    group,
    ids,
    lease_runs_out,
    leased_batches,
    make_run,
    set_version,
    status,
    submit,
    take,
    taken,
    trained,
)
from tests.waiting import wait_until

EVERYTHING = [f"g{number:02}" for number in range(20)]


async def test_after_a_crash_every_group_is_trained_on_once_in_order(client: httpx.AsyncClient) -> None:
    """It saves a checkpoint after batch 5 and crashes while it holds batch 9."""
    await make_run(client, batch_size=4)
    await submit(client, *EVERYTHING)
    history = [await trained(client) for _ in range(5)]
    saved = (await client.post(f"{RUN}/checkpoints", json={"step": 5})).json()
    assert (saved["checkpoint"], saved["rewindable_to"], saved["kept_batches"]) == (5, 5, 0)
    lost = [await trained(client) for _ in range(3)] + [await taken(client)]

    rewound = (await client.post(f"{RUN}/rewind", json={"step": 5})).json()
    assert rewound["steps"] == [6, 7, 8, 9]
    assert rewound["batches"] == [batch["batch"] for batch in lost]
    late = await end(client, lost[3])
    assert (late.status_code, late.json()["code"]) == (409, "lease_lost")

    again = [await trained(client) for _ in lost]
    assert [content(batch) for batch in again] == [content(batch) for batch in lost]
    assert [batch["step"] for batch in again] == [6, 7, 8, 9]
    assert [batch["delivery_count"] for batch in again] == [2, 2, 2, 2]
    new = await trained(client)
    assert (new["step"], new["delivery_count"]) == (10, 1)
    assert [one for batch in (*history, *again, new) for one in ids(batch)] == EVERYTHING


async def test_it_can_crash_again_and_again_and_further_back(client: httpx.AsyncClient) -> None:
    await make_run(client, batch_size=2)
    await submit(client, *EVERYTHING[:6])
    first = [await trained(client) for _ in range(4)]
    for step in (3, 2, 2, 0):
        rewound = (await client.post(f"{RUN}/rewind", json={"step": step})).json()
        assert rewound["steps"] == list(range(step + 1, 5))
        assert content(await trained(client)) == content(first[step])
    rest = [await trained(client) for _ in range(5)]
    assert [one for batch in rest for one in ids(batch)] == EVERYTHING[1:6]


async def test_a_rewind_past_the_last_checkpoint_is_refused(client: httpx.AsyncClient) -> None:
    await make_run(client, batch_size=2)
    await submit(client, *EVERYTHING[:3])
    for _ in range(3):
        await trained(client)
    await client.post(f"{RUN}/checkpoints", json={"step": 2})
    refused = await client.post(f"{RUN}/rewind", json={"step": 1})
    assert (refused.status_code, refused.json()["code"]) == (409, "rewind_impossible")
    assert "2" in refused.json()["detail"]
    assert (await client.post(f"{RUN}/rewind", json={"step": 2})).json()["steps"] == [3]


async def rewind(client: httpx.AsyncClient, step: int) -> Batch:
    reply = await client.post(f"{RUN}/rewind", json={"step": step})
    assert reply.status_code == 200, reply.text
    answer: Batch = reply.json()
    return answer


async def version_of(client: httpx.AsyncClient) -> int:
    return int((await client.get(RUN)).json()["policy_version"])


@pytest.mark.parametrize(
    ("checkpoint", "restored"),
    [({"step": 2}, 2), ({"step": 2, "policy_version": 7}, 7), (None, 2)],
    ids=["stored with the checkpoint", "named with it", "no checkpoint was told"],
)
async def test_a_rewind_restores_the_policy_version(
    client: httpx.AsyncClient, checkpoint: dict[str, int] | None, restored: int
) -> None:
    """Without a checkpoint, it is the version at the ack of the batch after that step."""
    await make_run(client, batch_size=2, max_staleness=2)
    for step in range(1, 7):
        await submit(client, group(f"g{step}", policy_version=step - 1))
        await trained(client)
        await set_version(client, step)
        if step == 2 and checkpoint is not None:
            told = (await client.post(f"{RUN}/checkpoints", json=checkpoint)).json()
            assert told["policy_version"] == restored
    for _ in range(2):
        rewound = await rewind(client, 2)
        assert (rewound["steps"], rewound["policy_version"]) == ([3, 4, 5, 6], restored)
        assert await version_of(client) == restored


@pytest.mark.parametrize("limit", [{"max_staleness": 0}, {"max_age_s": 60}], ids=str)
async def test_what_comes_again_is_never_too_old(
    client: httpx.AsyncClient, redis_client: Redis, limit: dict[str, float]
) -> None:
    """The cases: acknowledged or held, taken at once or returned first."""
    await make_run(client, batch_size=2, lease_s=10_000, **limit)
    await submit(client, *(group(name, policy_version=0) for name in "abcd"))
    before = [await trained(client) for _ in range(2)] + [await taken(client) for _ in range(2)]
    assert (await rewind(client, 1))["steps"] == [2, 3, 4]
    await redis_client.hincrby(RunKeys("run").run, "clock_ms", 3_600_000)  # type: ignore[misc]
    await set_version(client, 9)
    for _ in range(2):
        again = [await taken(client) for _ in range(3)]
        assert [content(batch) for batch in again] == [content(batch) for batch in before[1:]]
        assert all(batch["rewound"] for batch in again)
        for batch in again:
            for _ in range(2):  # its answer may have been lost
                assert (await end(client, batch, "nack")).json()["state"] == "given_back"
    assert [(await trained(client))["step"] for _ in range(3)] == [2, 3, 4]
    found = await status(client)
    assert (found["dropped"], found["groups"]["delivered"]) == ({}, 4)


async def test_a_rewind_names_quarantined_batches(client: httpx.AsyncClient) -> None:
    await make_run(client, batch_size=2, max_deliveries=1)
    await submit(client, *"abc")
    await trained(client)
    poison = await taken(client, lease_s=0.05)
    await lease_runs_out(client, poison)
    last = await trained(client)
    rewound = await rewind(client, 0)
    assert rewound["steps"] == [1, 3]
    assert (rewound["quarantined"], rewound["quarantined_steps"]) == ([poison["batch"]], [2])
    assert [(await trained(client))["step"] for _ in range(2)] == [1, last["step"]]
    assert await take(client) is None


async def test_a_second_rewind_skips_batches_before_its_step(
    client: httpx.AsyncClient,
) -> None:
    """An operator rewinds too far, then names the right step before a trainer takes a batch."""
    await make_run(client, batch_size=2)
    await submit(client, *EVERYTHING[:5])
    lost = [await trained(client) for _ in range(4)]
    assert (await client.post(f"{RUN}/rewind", json={"step": 0})).json()["steps"] == [1, 2, 3, 4]
    assert (await client.post(f"{RUN}/rewind", json={"step": 2})).json()["steps"] == [3, 4]
    again = [await trained(client) for _ in range(3)]
    assert [one for batch in again for one in ids(batch)] == EVERYTHING[2:5]
    assert [content(batch) for batch in again[:2]] == [content(batch) for batch in lost[2:]]
    assert (await status(client))["groups"]["delivered"] == 5


async def test_a_batch_returned_after_a_rewind_comes_again(
    client: httpx.AsyncClient,
) -> None:
    """One trainer gave batch 1 back, another one trained on batch 2 and saved its state, which lacks batch 1."""
    await make_run(client, batch_size=2)
    await submit(client, *EVERYTHING[:3])
    for _ in range(3):
        await trained(client)
    await client.post(f"{RUN}/rewind", json={"step": 0})
    one, two = await taken(client), await taken(client)
    assert (await end(client, one, "nack")).status_code == (await end(client, two)).status_code == 200
    for _ in range(2):
        assert (await client.post(f"{RUN}/rewind", json={"step": 2})).json()["steps"] == [1, 3]
    assert [ids(await trained(client))[0] for _ in range(2)] == [EVERYTHING[0], EVERYTHING[2]]


async def test_a_late_checkpoint_changes_nothing(client: httpx.AsyncClient) -> None:
    await make_run(client, batch_size=2)
    await submit(client, *EVERYTHING[:3])
    for version in range(1, 4):
        await trained(client)
        await set_version(client, version)
    checkpoints = [{"step": 2, "policy_version": 7}, {"step": 1, "policy_version": 1}]
    answers = [(await client.post(f"{RUN}/checkpoints", json=one)).json() for one in checkpoints]
    assert answers[0] == answers[1]
    assert (await client.post(f"{RUN}/rewind", json={"step": 2})).json()["policy_version"] == 7


async def test_an_operator_can_dissolve_a_rewound_batch(client: httpx.AsyncClient) -> None:
    """A batch that no trainer can use would be redelivered forever."""
    await make_run(client, batch_size=2)
    await submit(client, *"ab")
    lost = await trained(client)
    await rewind(client, 0)
    for lease in ("", lost["lease"]):
        refused = await client.post(f"{RUN}/batches/{lost['batch']}/nack", json={"lease": lease})
        assert refused.json()["code"] == "lease_lost"
    for _ in range(2):
        reply = await client.post(f"{RUN}/batches/{lost['batch']}/nack", json={})
        assert reply.status_code == 200, reply.text
    assert await leased_batches(client) == []
    assert ids(await trained(client)) == ["a"]


async def test_a_trainer_from_before_the_rewind_is_refused(client: httpx.AsyncClient) -> None:
    await make_run(client, batch_size=2)
    await submit(client, *"abcd")
    lost = [await trained(client), await taken(client)]
    assert (await rewind(client, 0))["rewinds"] == (await client.get(RUN)).json()["rewinds"] == 1
    for batch in lost:
        for how in ("ack", "nack", "extend"):
            late = await end(client, batch, how)
            assert (late.status_code, late.json()["code"]) == (409, "lease_lost")
    for reply in (
        await client.post(f"{RUN}/batches", json={"rewinds": 0}),
        await client.post(f"{RUN}/batches", json={"rewinds": 0}, params={"rank": 0, "world_size": 2}),
        await client.put(f"{RUN}/policy-version", json={"policy_version": 3, "rewinds": 0}),
        await client.post(f"{RUN}/checkpoints", json={"step": 2, "rewinds": 0}),
    ):
        assert (reply.status_code, reply.json()["code"]) == (409, "run_rewound")
    assert await version_of(client) == 0
    assert (await rewind(client, 0))["steps"] == [1, 2], "no checkpoint has taken that away"
    assert [(held["state"], held["rewound"]) for held in await leased_batches(client)] == [("returned", True)] * 2
    assert (await taken(client, rewinds=2))["step"] == 1


@pytest.mark.parametrize("waiting", ["a batch that waits to be handed out again", "new groups"])
async def test_a_rewind_takes_away_a_batch_that_is_being_taken(
    client: httpx.AsyncClient, redis_url: str, redis_client: Redis, tmp_path: Path, waiting: str
) -> None:
    """The trainer's request is planned before the rewind and reaches Redis after it."""
    await make_run(client, batch_size=2)
    await submit(client, *"abcde")
    for _ in range(2):
        await trained(client)
    if waiting != "new groups":
        await rewind(client, 1)
        script = "change_lease"
    else:
        script = "commit_batch"
    async with lossy_line(redis_url, tmp_path / "line") as (line, url), running_service(url) as other:
        line.hold(scripts.load(script).digest.encode())
        asking = asyncio.create_task(take(other))

        async def decided() -> bool:
            return line.holds

        await wait_until(decided)
        assert (await rewind(client, 0))["steps"] == [1, 2]
        line.heal()
        await line.deliver_late()
        batch = await asking
        assert batch is not None
        assert batch["step"] == 1, "it looked again, and said nothing of rewinds"
    assert (await taken(client))["step"] == 2


async def test_no_race_with_survivors_changes_the_order(client: httpx.AsyncClient) -> None:
    """Trainers take, acknowledge and return batches as fast as they can during the rewind."""
    await make_run(client, batch_size=2, keep_batches=1000)
    await submit(client, *(f"g{number:03}" for number in range(60)))
    dice = Random(7)

    async def survive(rewinds: int) -> None:
        while (reply := await client.post(f"{RUN}/batches", json={"rewinds": rewinds})).status_code != 409:
            if reply.status_code == 201:
                await end(client, reply.json(), dice.choice(("ack", "ack", "nack")))
        assert reply.json()["code"] == "run_rewound"

    for rewinds in range(8):
        survivors = [asyncio.create_task(survive(rewinds)) for _ in range(4)]
        wanted = dice.randint(0, 12)

        async def far_enough(step: int = 6 * rewinds + wanted) -> bool:
            return int((await client.get(RUN)).json()["step"]) >= step

        await wait_until(far_enough, pause_s=0)
        rewound = await rewind(client, dice.randint(0, 3))
        again = [await taken(client, rewinds=rewinds + 1) for _ in rewound["steps"]]
        assert [batch["step"] for batch in again] == rewound["steps"]
        assert [batch["batch"] for batch in again] == rewound["batches"]
        for batch in again:
            assert (await end(client, batch)).status_code == 200
        await asyncio.gather(*survivors)
    groups = (await status(client))["groups"]
    assert groups["queued"] + groups["delivered"] == 60
