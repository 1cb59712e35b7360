"""Answers and the log warn of what cannot work when it begins, before a trainer waits without a batch."""

from typing import Any

import httpx

from tests.api import atropos_calls
from tests.api.log_capture import LogLines
from tests.scenarios.native_calls import RUN, change_run, group, make_run, set_version, status, submit, taken


async def join(client: httpx.AsyncClient, name: str, **settings: Any) -> list[str]:
    """Join an environment; the kinds of warnings in the answer."""
    reply = await client.post(f"{RUN}/environments", json={"name": name, **settings})
    assert reply.status_code == 201, reply.text
    return kinds(reply.json())


async def send(client: httpx.AsyncClient, *groups: dict[str, Any]) -> list[str]:
    """Submit groups; the kinds of warnings in the answer."""
    reply = await client.post(f"{RUN}/groups", json={"groups": list(groups)})
    assert reply.status_code == 201, reply.text
    return kinds(reply.json())


async def told(client: httpx.AsyncClient, **instead: Any) -> list[str]:
    """What explain and the status say, which must be the same."""
    explained = (await client.get(f"{RUN}/batches/explain", params=instead)).json()
    assert instead or explained["warnings"] == (await status(client))["warnings"]
    return kinds(explained)


def kinds(answer: dict[str, Any]) -> list[str]:
    return [warning["kind"] for warning in answer.get("warnings", [])]


async def test_a_group_larger_than_the_batch_is_warned_of_in_its_receipt(
    client: httpx.AsyncClient, log_lines: LogLines
) -> None:
    await make_run(client, batch_size=4)
    assert await send(client, group("good")) == []
    assert await told(client) == []
    for n in range(3):
        reply = await client.post(f"{RUN}/groups", json=group(f"large{n}", size=5))
        (warning,) = reply.json()["warnings"]
        assert warning["kind"] == "groups_too_large"
        assert "have 5 sequences" in warning["detail"]
        assert warning["environments"] == [None]
    assert await told(client) == ["groups_too_large"]
    assert [(line["run"], line["kind"]) for line in log_lines.of("run warned")] == [("run", "groups_too_large")]
    await change_run(client, batch_size=7)
    assert await send(client, group("later", size=5)) == []
    assert await told(client) == []


async def test_sizes_that_fit_no_batch_are_warned_of_once_groups_arrive(
    client: httpx.AsyncClient, log_lines: LogLines
) -> None:
    await make_run(client, batch_size=8)
    assert await join(client, "math", group_size=3) == [], "others may be about to join"
    assert await told(client) == []
    assert len(log_lines.of("run warned")) == 0
    assert await send(client, group("a", size=3, environment=0)) == ["sizes_do_not_fit"]
    assert await told(client) == ["sizes_do_not_fit"]
    assert await told(client, batch_size=9) == []
    assert await join(client, "also", group_size=3) == ["sizes_do_not_fit"]
    assert await send(client, group("b", size=2, environment=0)) == [], "3 + 3 + 2"
    assert len(log_lines.of("run warned")) == 1


async def test_minimums_above_one_raise_a_warning_on_joining(client: httpx.AsyncClient, log_lines: LogLines) -> None:
    await make_run(client, batch_size=8)
    assert await join(client, "math", min_share=0.6) == []
    assert await join(client, "code", min_share=0.6) == ["minimums_above_one"]
    assert await told(client) == ["minimums_above_one"]
    assert len(log_lines.of("run warned")) == 1


async def test_sequences_that_are_dropped_for_their_length_are_warned_of(
    client: httpx.AsyncClient, log_lines: LogLines
) -> None:
    await make_run(client, batch_size=2, max_sequence_tokens=2, long_sequences="drop")
    assert await send(client, group("a")) == []
    long = [[1, 2, 3], [1, 2, 3]]
    for n in range(3):
        assert await send(client, group(f"long{n}") | {"tokens": long, "masks": long}) == ["sequences_too_long"]
    assert await told(client) == ["sequences_too_long"]
    assert len(log_lines.of("run warned")) == 1


async def test_an_environment_that_never_gets_into_a_batch_is_warned_of_until_it_does(
    client: httpx.AsyncClient, log_lines: LogLines
) -> None:
    await make_run(client, batch_size=4, max_staleness=0)
    assert await join(client, "fast", group_size=2) == []
    assert await join(client, "game", group_size=2) == []
    for version in range(2):
        await send(client, *(group(f"fast{version}{n}", environment=0, policy_version=version) for n in range(2)))
        await send(client, group(f"old{version}", environment=1, policy_version=version))
        await taken(client)
        assert await told(client) == []
        await set_version(client, version + 1)
    assert await told(client) == ["never_taken"]
    await send(client, *(group(f"new{number}", environment=1, policy_version=2) for number in range(2)))
    await taken(client)
    assert await told(client) == []
    assert len(log_lines.of("run warned")) == 1


async def test_a_worker_with_old_weights_is_not_told_to_change_its_share(client: httpx.AsyncClient) -> None:
    """Its groups never waited for a batch."""
    await make_run(client, batch_size=4, max_staleness=0)
    assert await join(client, "fast", group_size=2) == []
    assert await join(client, "game", group_size=2) == []
    await set_version(client, 5)
    await submit(client, *(group(f"fast{n}", environment=0, policy_version=5) for n in range(2)))
    await taken(client)
    late = [group(f"old{number}", environment=1, policy_version=0) for number in range(3)]
    assert await submit(client, *late) == ["stale"] * 3
    assert await told(client) == []


async def test_environments_of_atropos_are_warned_of_in_the_log_and_in_the_status(
    client: httpx.AsyncClient, log_lines: LogLines
) -> None:
    await atropos_calls.register(client, batch_size=8)
    answer = await atropos_calls.register_env(client, group_size=3)
    assert set(answer) == {
        *("status", "env_id", "wandb_name", "checkpoint_dir", "starting_step", "checkpoint_interval", "num_steps")
    }
    assert log_lines.of("run warned") == []
    for mark in range(3):
        assert await atropos_calls.post(client, atropos_calls.group(9, mark, env_id=answer["env_id"])) == {
            "status": "buffered",
            "buffer_size": 0,
        }
    assert kinds(await atropos_calls.status(client)) == ["groups_too_large", "sizes_do_not_fit"]
    assert [line["kind"] for line in log_lines.of("run warned")] == ["groups_too_large", "sizes_do_not_fit"]


async def test_a_flood_of_sizes_is_one_line_of_the_log(client: httpx.AsyncClient, log_lines: LogLines) -> None:
    await make_run(client, batch_size=2)
    await submit(client, *(group(f"g{size}", size=size) for size in range(3, 60)))
    assert len(log_lines.of("run warned")) == 1
