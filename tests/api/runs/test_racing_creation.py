"""Many who make the same run at the same time, on several API processes."""

import asyncio

import httpx

from tests.api.conftest import Start
from tests.api.log_capture import LogLines

PROCESSES, EACH = 3, 3


async def made(clients: list[httpx.AsyncClient], bodies: list[dict[str, object]]) -> list[httpx.Response]:
    posts = [client.post("/v1/runs", json=body) for client in clients for body in bodies]
    return await asyncio.gather(*posts)


async def test_of_simultaneous_requests_one_makes_the_run_and_the_others_find_it(
    start: Start, log_lines: LogLines
) -> None:
    clients = [await start() for _ in range(PROCESSES)]
    replies = await made(clients, [{"name": "run", "batch_size": 8}] * EACH)
    assert sorted(reply.status_code for reply in replies) == [*[200] * (PROCESSES * EACH - 1), 201]
    assert len({reply.text for reply in replies}) == 1
    assert len(log_lines.of("run created")) == 1


async def test_of_simultaneous_requests_with_different_settings_one_wins(start: Start) -> None:
    clients = [await start() for _ in range(PROCESSES)]
    replies = await made(clients, [{"name": "run", "batch_size": size} for size in (8, 16)])
    (winner,) = [reply for reply in replies if reply.status_code == 201]
    for reply in replies:
        same = reply.json().get("batch_size") == winner.json()["batch_size"]
        assert reply.status_code in ((200, 201) if same else (409,))
