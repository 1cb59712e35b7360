"""The status says what happened to every token, whatever happens to its group."""

from typing import Any

import httpx

from tests.scenarios.native_calls import (
    RUN,
    change_run,
    end,
    group,
    make_run,
    set_version,
    status,
    submit,
    taken,
    trained,
)

PRICE = 2.5


async def ledger(client: httpx.AsyncClient, environment: str | None = None) -> dict[str, int]:
    """Return the tokens of the run or of an environment by state, without states that have none."""
    answer = await status(client)
    found = answer if environment is None else next(one for one in answer["environments"] if one["name"] == environment)
    tokens: dict[str, Any] = found["ledger"]
    cost = tokens.pop("cost")
    assert tokens["generated_tokens"] * 2 == sum(tokens.values())
    assert cost == {name.removesuffix("_tokens"): count * PRICE / 1e6 for name, count in tokens.items()}
    return {name.removesuffix("_tokens"): count for name, count in tokens.items() if count}


async def test_each_token_is_somewhere(client: httpx.AsyncClient) -> None:
    """Groups have two sequences of two tokens each, unless it says something else."""
    await make_run(
        client,
        max_staleness=1,
        max_sequence_tokens=4,
        long_sequences="drop",
        filter_zero_variance={},
        cost_per_million_tokens=PRICE,
    )
    joined = (await client.post(f"{RUN}/environments", json={"name": "math", "group_size": 2})).json()
    assert await ledger(client) == {}

    def of_math(group_id: str, **keys: Any) -> dict[str, Any]:
        return group(group_id, environment=joined["id"], **keys)

    too_long = of_math("too-long", tokens=[[1] * 5, [2]], masks=[[1] * 5, [2]])
    same = of_math("same", scores=[1.0, 1.0])
    assert await submit(client, too_long, same, of_math("a"), "b", "c") == [
        "too_long",
        "zero_variance",
        *3 * ["accepted"],
    ]
    assert await submit(client, of_math("a")) == ["accepted"], "a repetition generates nothing"
    assert await ledger(client) == {"generated": 22, "dropped": 6, "filtered": 4, "queued": 12}
    assert await ledger(client, "math") == {"generated": 14, "dropped": 6, "filtered": 4, "queued": 4}

    batch = await taken(client)
    assert await ledger(client, "math") == {"generated": 14, "dropped": 6, "filtered": 4, "leased": 4}
    assert (await end(client, batch, "nack")).status_code == 200
    assert await ledger(client, "math") == {"generated": 14, "dropped": 6, "filtered": 4, "queued": 4}
    await trained(client)
    assert await ledger(client) == {"generated": 22, "dropped": 6, "filtered": 4, "trained": 8, "queued": 4}

    assert (await client.delete(f"{RUN}/groups/c")).status_code == 204
    await submit(client, of_math("old", policy_version=0))
    assert await set_version(client, 2) == 1
    assert await ledger(client) == {
        "generated": 26,
        "dropped": 6,
        "filtered": 4,
        "trained": 8,
        "surplus": 4,
        "stale": 4,
    }
    assert (await client.post(f"{RUN}/rewind", json={"step": 0})).status_code == 200
    assert await ledger(client) == {"generated": 26, "dropped": 6, "filtered": 4, "leased": 8, "surplus": 4, "stale": 4}
    await trained(client)
    assert (await ledger(client))["trained"] == 8

    await change_run(client, cost_per_million_tokens=None)
    assert (await status(client))["ledger"]["cost"] is None
