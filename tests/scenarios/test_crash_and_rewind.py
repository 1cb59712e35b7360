"""A trainer crashes after its last checkpoint: what it trained on since then comes again, and nothing twice."""

import httpx

from tests.scenarios.native_calls import RUN, content, end, ids, make_run, submit, taken, trained

EVERYTHING = [f"g{number:02}" for number in range(20)]


async def test_the_history_that_survives_a_crash_has_every_group_once_and_in_order(client: httpx.AsyncClient) -> None:
    """It saves its state after batch 5, and crashes with batch 9 in its hands."""
    await make_run(client, batch_size=4)
    await submit(client, *EVERYTHING)
    history = [await trained(client) for _ in range(5)]
    bookmarks = (await client.post(f"{RUN}/checkpoints", json={"step": 5})).json()
    assert (bookmarks["checkpoint"], bookmarks["rewindable_to"], bookmarks["kept_batches"]) == (5, 5, 0)
    lost = [await trained(client) for _ in range(3)] + [await taken(client)]

    rewound = (await client.post(f"{RUN}/rewind", json={"step": 5})).json()
    assert rewound["steps"] == [6, 7, 8, 9]
    assert rewound["batches"] == [batch["batch"] for batch in lost]
    late = await end(client, lost[3])
    assert (late.status_code, late.json()["code"]) == (409, "lease_lost")

    again = [await trained(client) for _ in lost]
    assert [content(batch) for batch in again] == [content(batch) for batch in lost]
    assert [batch["step"] for batch in again] == [6, 7, 8, 9]
    assert [batch["delivery"] for batch in again] == [2, 2, 2, 2]
    new = await trained(client)
    assert (new["step"], new["delivery"]) == (10, 1)
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


async def test_a_run_goes_back_no_further_than_its_last_checkpoint_and_says_so(client: httpx.AsyncClient) -> None:
    await make_run(client, batch_size=2)
    await submit(client, *EVERYTHING[:3])
    for _ in range(3):
        await trained(client)
    await client.post(f"{RUN}/checkpoints", json={"step": 2})
    refused = await client.post(f"{RUN}/rewind", json={"step": 1})
    assert (refused.status_code, refused.json()["code"]) == (409, "rewind_impossible")
    assert "2" in refused.json()["detail"]
    assert (await client.post(f"{RUN}/rewind", json={"step": 2})).json()["steps"] == [3]
