"""Large bodies about curricula, which may stop nobody else's requests."""

import threading
from typing import Any

import httpx
import pytest

from app.api.deps import parse

CURRICULUM = "/v1/runs/r/curricula/c"
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
