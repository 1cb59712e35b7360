"""What each view shows follows the service without being loaded again."""

from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest
from playwright.async_api import expect

from tests.browser.conftest import Open, Watch
from tests.scenarios.native_calls import RUN, make_run, submit, taken

Change = Callable[[httpx.AsyncClient], Awaitable[Any]]


async def register(client: httpx.AsyncClient) -> None:
    reply = await client.post(f"{RUN}/environments", json={"name": "later", "member": "node8-2", "min_share": 0.25})
    assert reply.status_code == 201, reply.text


async def fill(client: httpx.AsyncClient) -> None:
    reply = await client.put(f"{RUN}/replay", json={"max_chunks": 4321})
    assert reply.status_code in (200, 201), reply.text


async def teach(client: httpx.AsyncClient) -> None:
    reply = await client.put(f"{RUN}/curricula/tasks", json={"strategy": "learnability"})
    assert reply.status_code in (200, 201), reply.text


async def begin(client: httpx.AsyncClient) -> None:
    await make_run(client, name="newcomer")


async def train(client: httpx.AsyncClient) -> None:
    await submit(client, "a", "b")
    await taken(client)


@pytest.mark.parametrize(
    ("path", "change", "shown"),
    [
        ("/", begin, "newcomer"),
        ("/", train, "Training"),
        ("/runs/run/now", register, "later"),
        ("/runs/run/now", train, "held"),
        ("/runs/run/now?explain=true", register, "later"),
        ("/runs/run/shares", register, "at least 25 %"),
        ("/runs/run/freshness", register, "later"),
        ("/runs/run/rewards", register, "later"),
        ("/runs/run/batches", train, "held"),
        ("/runs/run/replay", fill, "of 4,321 chunks"),
        ("/runs/run/curriculum", teach, "learnability: 0 of 0 items seen"),
        ("/runs/run/workers", register, "later"),
    ],
)
async def test_a_change_shows_up(
    client: httpx.AsyncClient, show: Open, watch: Watch, path: str, change: Change, shown: str
) -> None:
    watch.expected.append("404")  # of a replay buffer that is not there yet
    await make_run(client)
    page = await show(path)
    await expect(page.locator("main h1")).to_be_visible()
    await expect(page.locator("main [aria-busy]")).to_have_count(0)
    assert shown not in await page.locator("main").inner_text()
    await page.evaluate("window.loaded = true")
    await change(client)
    await expect(page.locator("main")).to_contain_text(shown)
    assert await page.evaluate("window.loaded"), "it was loaded again"
