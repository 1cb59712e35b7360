"""The replay buffer over HTTP: its settings, sessions and snapshots, and what operators see."""

from typing import Any

import httpx

from tests.api.replay.calls import REPLAY, RUN, end, in_binary, insert, make_buffer, state, take


async def test_a_buffer_is_set_up_changed_while_used_and_set_up_again(client: httpx.AsyncClient) -> None:
    await make_buffer(client, max_chunks=8, max_reuse=2)
    limiter = {"samples_per_insert": 2, "min_diff": 0, "max_diff": 8}
    reply = await client.patch(REPLAY, json={"max_reuse": None, "limiter": limiter, "sampling": {"strategy": "fifo"}})
    settings = reply.json()["settings"]
    assert (settings["max_chunks"], settings["max_reuse"], settings["limiter"]) == (8, None, limiter)
    assert settings["sampling"]["strategy"] == "fifo"
    assert (await state(client))["settings"] == settings
    again = (await client.put(REPLAY, json={})).json()["settings"]
    assert (again["max_chunks"], again["limiter"], again["sampling"]["strategy"]) == (10_000, None, "uniform")


async def test_if_absent_leaves_an_existing_buffer_as_it_is(client: httpx.AsyncClient) -> None:
    await make_buffer(client, max_chunks=8)
    await insert(client, [0, 1])
    if_absent = {"if_absent": "true"}
    kept = (await client.put(REPLAY, json={"max_chunks": 1, "groups": True}, params=if_absent)).json()
    assert (kept["settings"]["max_chunks"], kept["settings"]["groups"], kept["sampleable_chunks"]) == (8, False, 2)
    assert kept["filled_share"] == 0.25
    assert (await client.put(REPLAY, json={"max_chunks": 0}, params=if_absent)).status_code == 422
    await client.delete(REPLAY)
    made = (await client.put(REPLAY, json={"max_chunks": 7}, params=if_absent)).json()
    assert (made["settings"]["max_chunks"], made["sampleable_chunks"]) == (7, 0)


async def listed(client: httpx.AsyncClient, limit: int, **asked: Any) -> list[dict[str, Any]]:
    """Look at all chunks, page by page."""
    chunks: list[dict[str, Any]] = []
    cursor: dict[str, Any] = {}
    while cursor.get("cursor", "") is not None:
        page = (await client.get(f"{REPLAY}/chunks", params={"limit": limit, **asked, **cursor})).json()
        assert len(page["chunks"]) <= limit
        cursor = {"cursor": page["cursor"]}
        chunks += page["chunks"]
    return chunks


async def test_chunks_are_listed_sorted_filtered_and_retired(
    client: httpx.AsyncClient,
) -> None:
    await make_buffer(client, fragments_per_chunk=2)
    await insert(client, range(4), "a")
    await insert(client, range(6), "b", reward=1)
    pages = await listed(client, limit=2, descending=True)
    assert [one["chunk"] for one in pages] == [5, 4, 3, 2, 1]
    assert [len(one["fragments"]) for one in pages] == [2] * 5
    of_a = (await client.get(f"{REPLAY}/chunks", params={"worker": "a"})).json()["chunks"]
    assert [(one["worker"], one["first"]) for one in of_a] == [("a", 0), ("a", 2)]
    assert (await client.delete(f"{REPLAY}/chunks", params={"worker": "a", "session": 1})).json()["retired_chunks"] == 0
    assert (await client.delete(f"{REPLAY}/chunks", params={"worker": "a"})).json()["retired_chunks"] == 2
    assert (await client.delete(f"{REPLAY}/chunks")).json()["retired_chunks"] == 3
    seen = await state(client)
    assert (seen["sampleable_chunks"], seen["chunk_bytes"], seen["retired_chunks"]) == (0, 0, {"deleted": 5})


async def test_chunks_of_every_place_come_in_the_order_asked_for_or_it_is_refused(client: httpx.AsyncClient) -> None:
    """A page has no more chunks than it may, wherever they are."""
    await make_buffer(client, fragments_per_chunk=1, max_reuse=1)
    await client.put(f"{RUN}/policy-version", json={"policy_version": 30})
    for number in range(30):
        await insert(client, [number], policy_version=number * 7 % 30)
    await take(client, num_chunks=30)
    reserved = await listed(client, limit=7, place="reserved", sort="versions", descending=True)
    assert [chunk["version"] for chunk in reserved] == list(range(29, -1, -1))
    assert [chunk["version"] for chunk in await listed(client, limit=7, place="reserved")] == list(range(30))
    await client.put(f"{REPLAY}/session", json={"session": 1})
    archived = await listed(client, limit=7, place="archived", descending=True)
    assert [chunk["chunk"] for chunk in archived] == list(range(30, 0, -1))
    for place, asked in (
        ("reserved", {"sort": "uses"}),
        ("archived", {"sort": "versions"}),
        ("stale", {"descending": True}),
    ):
        refused = await client.get(f"{REPLAY}/chunks", params={"place": place, **asked})
        assert (refused.status_code, refused.json()["errors"][0]["loc"]) == (422, ["query", *asked])


async def test_a_grid_shows_age_uses_and_priority(client: httpx.AsyncClient) -> None:
    await make_buffer(client, max_reuse=2, max_staleness=None)
    empty = (await client.get(f"{REPLAY}/grid")).json()
    assert (empty["chunks"], empty["looked_at"], empty["counts"]) == (0, 0, [])
    await insert(client, range(3), priority=2.0)
    await client.put(f"{RUN}/policy-version", json={"policy_version": 3})
    await insert(client, [3], policy_version=3, priority=4.0)
    for _ in range(2):  # the oldest chunk is used once, and then reserved
        sample = await take(client, num_chunks=1, strategy="fifo")
        await end(client, sample)
    found = (await client.get(f"{REPLAY}/grid")).json()
    assert (found["chunks"], found["looked_at"]) == (3, 3)
    assert (found["age_edges"], found["uses_edges"]) == ([0, 1, 2, 3, 4], [0, 1])
    assert found["counts"] == [[1, 0, 0, 2]]
    assert found["mean_priorities"] == [[4.0, None, None, 2.0]]
    held = await take(client, num_chunks=1, strategy="fifo")
    await end(client, held)
    await take(client, num_chunks=1, strategy="fifo")
    found = (await client.get(f"{REPLAY}/grid")).json()
    assert (found["chunks"], found["uses_edges"]) == (3, [0, 1, 2]), "a reserved chunk counts"
    assert [sum(row) for row in found["counts"]] == [2, 1]
    assert (await client.get("/v1/runs/none/replay/grid")).status_code == 404


async def test_a_grid_of_a_large_buffer_looks_at_a_part_of_it(client: httpx.AsyncClient) -> None:
    await make_buffer(client, max_chunks=10_000)
    for first in range(0, 2400, 800):
        await insert(client, range(first, first + 800))
    found = (await client.get(f"{REPLAY}/grid")).json()
    assert found["chunks"] == 2400
    assert 1000 <= found["looked_at"] <= 2000
    assert sum(map(sum, found["counts"])) == found["looked_at"]


async def test_a_new_session_retires_what_there_is_and_old_numbers_begin_again(client: httpx.AsyncClient) -> None:
    await make_buffer(client)
    await insert(client, [0, 1])
    assert (await client.put(f"{REPLAY}/session", json={"session": 1})).json() == {"session": 1, "retired_chunks": 2}
    assert (await insert(client, [2]))[0]["status"] == "old_session"
    assert (await insert(client, [0], session=2))[0]["status"] == "future_session"
    assert (await insert(client, [0], session=1))[0]["status"] == "stored"
    archived = (await client.get(f"{REPLAY}/chunks", params={"place": "archived"})).json()["chunks"]
    assert [one["session"] for one in archived] == [0, 0]
    seen = await state(client)
    assert (seen["session"], seen["sampleable_chunks"], seen["archived_chunks"]) == (1, 1, 2)
    back = await client.put(f"{REPLAY}/session", json={"session": 0})
    assert (back.status_code, back.json()["errors"][0]["loc"]) == (422, ["session"])


async def test_snapshots_are_taken_listed_restored_and_released(client: httpx.AsyncClient) -> None:
    await make_buffer(client, limiter={"samples_per_insert": 2, "min_diff": -8, "max_diff": 8})
    await insert(client, [0, 1])
    sample = await take(client, num_chunks=1)
    reply = await client.post(f"{REPLAY}/snapshots", json={"name": "step-1"})
    expected = {"name": "step-1", "taken_age_s": 0.0, "policy_version": 0, "session": 0, "chunks": 2}
    expected |= {"chunk_bytes": len(in_binary(0)) + len(in_binary(1)), "inserts": 2, "samples": 1, "limiter_error": 3.0}
    assert (reply.status_code, reply.json()) == (201, expected)
    await client.delete(f"{REPLAY}/chunks")
    named = (await client.post(f"{REPLAY}/snapshots", json={})).json()["name"]
    there = (await client.get(f"{REPLAY}/snapshots")).json()["snapshots"]
    assert [(one["name"], one["chunks"]) for one in there] == [("step-1", 2), (named, 0)]
    reply = await client.post(f"{REPLAY}/restore", json={"name": "step-1"})
    assert (reply.json()["sampleable_chunks"], reply.json()["limiter"]["error"]) == (2, 4.0)
    late = await end(client, sample)
    assert (late.status_code, late.json()["code"]) == (409, "lease_lost")
    assert (await client.delete(f"{REPLAY}/snapshots/step-1")).status_code == 204
    again = await client.delete(f"{REPLAY}/snapshots/step-1")
    assert (again.status_code, again.json()["code"]) == (404, "snapshot_not_found")
    for wrong in ({"name": "a b"}, {"name": ""}, {"called": "a"}):
        assert (await client.post(f"{REPLAY}/snapshots", json=wrong)).status_code == 422
    assert (await client.put(REPLAY, json={"keep_snapshots": 5})).status_code == 422


async def test_a_buffer_that_is_removed_is_not_there_and_may_be_made_again(client: httpx.AsyncClient) -> None:
    await make_buffer(client, max_chunks=7)
    await insert(client, [0])
    sample = await take(client, num_chunks=1)
    assert (await client.delete(REPLAY)).status_code == 204
    late = await end(client, sample)
    assert (late.status_code, late.json()["code"]) == (404, "replay_not_found")
    assert (await client.delete(REPLAY)).status_code == 404
    assert (await client.get(RUN)).status_code == 200
    await make_buffer(client)
    assert [receipt["status"] for receipt in await insert(client, [0])] == ["stored"]
    assert (await state(client))["settings"]["max_chunks"] == 10_000


async def test_a_buffer_of_groups_has_chunks_of_one_fragment(client: httpx.AsyncClient) -> None:
    await make_buffer(client, groups=True)
    for reply in (
        await client.patch(REPLAY, json={"fragments_per_chunk": 2}),
        await client.put(REPLAY, json={"groups": True, "fragments_per_chunk": 4}),
    ):
        assert (reply.status_code, reply.json()["code"]) == (422, "invalid_field")
        assert reply.json()["errors"][0]["loc"] == ["fragments_per_chunk"]
    assert (await state(client))["settings"]["fragments_per_chunk"] == 1
