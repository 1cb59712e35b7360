"""Large bodies about curricula do not stop the requests of others."""

import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest

from app.api.deps import parse
from tests.api.conftest import Start

CURRICULUM = "/v1/runs/r/curricula/c"
LINES = {"Content-Type": "application/jsonl"}
MIB = 1024 * 1024


async def test_a_large_list_of_items_to_release_is_parsed_in_a_thread(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the event loop it would hold up all other requests."""
    await client.post("/v1/runs", json={"name": "r", "batch_size": 1})
    await client.put(CURRICULUM, json={})
    threads = []

    def watched(model: Any, text: bytes) -> Any:
        threads.append(threading.current_thread())
        return parse(model, text)

    monkeypatch.setattr("app.api.routes.curriculum.parse", watched)
    path, body = f"{CURRICULUM}/samples/0/release", b'{"items": ["a"]' + b" " * MIB + b"}"
    reply = await client.post(path, content=body, headers={"Content-Type": "application/json"})
    assert reply.json() == {"released": 0}
    assert len(threads) == 1
    assert threads[0] is not threading.main_thread()


async def in_pieces(text: bytes) -> AsyncIterator[bytes]:
    yield text[:100]
    yield text[100:]


@pytest.mark.parametrize("sent", [in_pieces, bytes], ids=["no size announced", "a size over the limit of bodies"])
async def test_the_bytes_of_a_state_count_however_it_is_sent(
    start: Start, sent: Callable[[bytes], AsyncIterator[bytes] | bytes]
) -> None:
    client = await start(max_body_bytes=1024)
    await client.post("/v1/runs", json={"name": "r", "batch_size": 1})
    await client.put(CURRICULUM, json={})
    await client.post(f"{CURRICULUM}/items", json={"items": [f"q{n}" for n in range(50)]})
    state = (await client.get(f"{CURRICULUM}/state")).content
    assert len(state) > 1024
    assert (await client.patch("/v1/runs/r", json={"max_bytes_per_s": 1})).status_code == 200
    replies = [await client.put(f"{CURRICULUM}/state", content=sent(state), headers=LINES) for _ in range(2)]
    assert [reply.status_code for reply in replies] == [200, 429]
    assert "max_bytes_per_s" in replies[1].json()["detail"]
