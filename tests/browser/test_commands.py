"""Each part of the page offers the commands that fetch what it shows, and these commands work."""

import asyncio
import json
import re
import sys

import httpx
import pytest
from playwright.async_api import Page, expect

from tests.browser.conftest import Open
from tests.scenarios.native_calls import end, group, make_run, submit, taken

JSON = {"Content-Type": "application/json"}
VIEWS = ["/", "/about", "/audit"] + [
    f"/runs/run/{name}"
    for name in (
        "now?explain=true",
        "shares",
        "freshness",
        "rewards",
        "groups",
        "batches",
        "replay",
        "curriculum",
        "workers?environment=0",
    )
]


async def populate(client: httpx.AsyncClient) -> None:
    """Make a run that has something on each view."""
    await make_run(client, batch_size=4)
    await client.post("/v1/runs/run/environments", json={"name": "math", "member": "node7-1"})
    # Groups of eight never fit a batch of four: a warning.
    await client.post("/v1/runs/run/environments", json={"name": "large", "group_size": 8})
    await client.put("/v1/runs/run/replay", json={"max_chunks": 8})
    await client.put("/v1/runs/run/curricula/tasks", json={"strategy": "learnability"})
    await submit(client, *(group(f"g{number}", environment=0, policy_version=0) for number in range(3)))
    await end(client, await taken(client))


async def run_command(*command: str) -> str:
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    assert process.returncode == 0, command
    return out.decode()


@pytest.mark.parametrize("path", VIEWS)
async def test_each_part_of_a_view_offers_commands_that_work(client: httpx.AsyncClient, show: Open, path: str) -> None:
    await populate(client)
    page = await show(path)
    panels = page.locator("main :is(.panel, .headline, .notices)")
    await expect_settled(page)
    for panel in await panels.all():
        buttons = panel.get_by_role("button", name=re.compile("^API: "))
        assert await buttons.count() >= 1, await panel.inner_text()
        await buttons.first.click()
    curls = await page.get_by_label("curl command").all_inner_texts()
    programs = await page.get_by_label("Python command").all_inner_texts()
    assert len(curls) == len(programs) >= await panels.count() > 0
    assert all(text.startswith("curl -s ") for text in curls)
    for text in set(curls):
        (address,) = re.findall(r"'(http[^']+)'$", text)
        bodies = re.findall(r"-d '([^']+)'", text)
        reply = await (client.post(address, content=bodies[0], headers=JSON) if bodies else client.get(address))
        assert reply.status_code == 200, (text, reply.text)
    said = json.loads(await run_command("sh", "-c", curls[-1]))
    assert isinstance(said, dict)
    printed = await run_command(sys.executable, "-c", programs[-1])
    assert printed.startswith("{")


async def expect_settled(page: Page) -> None:
    """Wait until all panels have their contents."""
    await expect(page.locator("main h1")).to_be_visible()
    await expect(page.locator("main [aria-busy]")).to_have_count(0)
    if "/runs/run/now" in page.url:
        await expect(page.locator(".notices")).to_be_visible()
