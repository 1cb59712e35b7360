"""The tab of batches shows the latest ones, and the loads of their ranks."""

import re
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from playwright.async_api import expect

from tests.browser.conftest import Open, Watch, answer_as_of
from tests.scenarios.native_calls import RUN, end, group, make_run, submit, taken, trained
from tests.waiting import wait_until

PAGE = "/runs/run/batches"
DAY_S = 86400
PAGE_BATCHES = 100  # batches in a page of the list


async def test_batches_are_listed_and_follow_the_run(client: httpx.AsyncClient, show: Open) -> None:
    await make_run(client, batch_size=4)
    await client.post(f"{RUN}/environments", json={"name": "math", "member": "one"})
    page = await show(PAGE, height=1600)
    await expect(page.locator("[data-state=empty]")).to_contain_text("No batch was handed out yet.")
    hostile = "<img src=x onerror=alert(1)>"
    await submit(client, group("first", environment=0), *(group(f"g{n}", environment=0) for n in range(3)))
    batch = await taken(client, trainer=hostile)
    row = page.locator(f"[data-batch='{batch['batch']}']")
    await expect(row).to_contain_text(re.compile(r"^\s*1\s*held"))
    await expect(row.get_by_role("img", name="math 4")).to_be_visible()
    await end(client, batch)
    await expect(row).to_contain_text("kept")
    second = await taken(client)
    await expect(page.locator("[data-batch]")).to_have_count(1)
    await page.get_by_role("button", name="1 new: show them").press("Enter")
    await expect(page.get_by_text("No newer batches.")).to_be_focused()
    await expect(page.locator("[data-batch]").first).to_contain_text(re.compile(r"^\s*2\s*held"))

    await row.get_by_role("link", name="1").click()
    await expect(page).to_have_url(re.compile(rf"/batches\?batch={batch['batch']}$"))
    await page.reload()
    facts = page.get_by_role("region", name="Batch", exact=True)
    await expect(facts).to_contain_text(re.compile(r"Trainer\s*<img src=x"))
    groups = page.get_by_role("region", name=re.compile("^Groups of the batch"))
    await expect(groups.get_by_role("link").first).to_have_attribute("href", re.compile(r"/groups\?group=first$"))
    await expect(groups.get_by_role("link")).to_have_count(2)
    assert await page.locator("img[src]").count() == 0
    await page.keyboard.press("Escape")
    await expect(page.locator("[data-batch]")).to_have_count(2)
    await end(client, second, "nack")
    await expect(page.locator(f"[data-batch='{second['batch']}']")).to_contain_text("given back")


async def test_the_list_stays_also_after_more_new_batches_than_a_page_has(
    client: httpx.AsyncClient, show: Open
) -> None:
    await make_run(client, batch_size=2)

    async def train(step: int) -> None:
        await submit(client, f"g{step}")
        await trained(client)

    await train(1)
    page = await show(PAGE)
    first = page.locator("[data-batch]").first
    await expect(first.get_by_role("link")).to_have_text("1")
    for step in range(2, PAGE_BATCHES + 3):
        await train(step)
    await expect(first.get_by_role("link")).not_to_have_text("1")
    begin = await first.get_attribute("data-batch")
    await train(PAGE_BATCHES + 3)
    await expect(page.get_by_role("button", name=re.compile(r"\d new: show them"))).to_be_visible()
    assert await first.get_attribute("data-batch") == begin


async def test_loads_of_ranks_are_dots_beside_the_bound(client: httpx.AsyncClient, show: Open) -> None:
    await make_run(client, batch_size=4)
    await client.post(f"{RUN}/environments", json={"name": "math", "member": "one"})
    await submit(client, *(group(f"g{n}", size=1, tokens=[[7] * (n + 1)], masks=[[7] * (n + 1)]) for n in range(4)))
    query = {"rank": 0, "world_size": 2}
    batch = (await client.post(f"{RUN}/batches", params=query, json={})).json()
    page = await show(f"{PAGE}?batch={batch['batch']}", height=1200)
    ranks = page.get_by_role("region", name=re.compile("^Ranks load of each of 2 ranks"))
    await expect(ranks).to_contain_text("Loads are in tokens. The largest is 0 % above the mean.")
    dots = ranks.locator(".dots i")
    await expect(dots).to_have_count(2)
    assert await dots.first.get_attribute("title") == "rank 0: 5"
    await expect(ranks.locator(".level")).to_have_count(2)
    await expect(ranks).to_contain_text("1 rank got the shard, 0 acknowledged it.")


async def test_a_range_of_time_filters_the_list(client: httpx.AsyncClient, show: Open) -> None:
    await make_run(client, batch_size=4)
    await client.post(f"{RUN}/environments", json={"name": "math", "member": "one"})
    await submit(client, *(group(f"g{n}", environment=0) for n in range(2)))
    batch = await taken(client)
    page = await show(f"{PAGE}?from=1&to=2")
    await expect(page.locator("[data-state=empty]")).to_contain_text("No batch of this time is among the latest 128")
    await page.get_by_role("button", name="Show the latest").click()
    row = page.locator(f"[data-batch='{batch['batch']}']")
    await expect(row.locator(".composition .mark")).to_have_count(1)
    await expect(row.locator(".composition")).to_contain_text("math 4")
    await page.goto(f"{PAGE}?from=1&to=4000000000")
    await expect(row).to_be_visible()
    await expect(page.get_by_text("These were formed in the time above.")).to_be_visible()
    await row.get_by_role("link").click()
    await expect(page).to_have_url(re.compile(f"from=1&to=4000000000&batch={batch['batch']}$"))
    await page.keyboard.press("Escape")
    await expect(page).to_have_url(re.compile("from=1&to=4000000000$"))


async def test_the_last_day_moves_on_while_the_page_stays_open(
    client: httpx.AsyncClient, show: Open, watch: Watch
) -> None:
    await make_run(client)
    page = await show(f"{PAGE}?range=1d")
    await expect(page.locator("[data-state=empty]")).to_be_visible()
    later_s = await page.evaluate("Date.now() / 1000") + 3 * DAY_S
    await answer_as_of(page, later_s)
    await page.clock.set_fixed_time(later_s)

    async def is_of_the_last_day() -> bool:
        asked = [parse_qs(urlsplit(url).query) for url in watch.asked if "/batches/recent" in url]
        return any(later_s - DAY_S <= int(query["from"][0]) <= later_s for query in asked)

    await wait_until(is_of_the_last_day)


async def test_a_wrong_clock_of_the_browser_changes_no_range(
    client: httpx.AsyncClient, show: Open, watch: Watch
) -> None:
    await make_run(client)
    page = await show("/about")
    now_s = await page.evaluate("Date.now() / 1000")
    await page.clock.set_fixed_time(now_s + 3 * DAY_S)
    await page.goto("/runs/run/now?range=1d")

    async def is_of_the_last_day() -> bool:
        asked = [parse_qs(urlsplit(url).query) for url in watch.asked if "/history" in url and "from=" in url]
        return bool(asked) and abs(int(asked[-1]["from"][0]) - (now_s - DAY_S)) < DAY_S / 4

    await wait_until(is_of_the_last_day)
    await expect(page.locator("[data-state=error]")).to_have_count(0)


@pytest.mark.parametrize("place", ["batches?batch=", "groups?group=", "curriculum?item="])
async def test_an_address_that_names_nothing_shows_the_list(client: httpx.AsyncClient, show: Open, place: str) -> None:
    await make_run(client)
    assert (await client.put(f"{RUN}/curricula/gsm8k", json={})).is_success
    page = await show(f"/runs/run/{place}")
    await expect(page.locator("[data-state=empty]").first).to_be_visible()
    await expect(page.get_by_role("button", name=re.compile("^All "))).to_have_count(0)


async def test_a_batch_that_is_no_longer_kept_is_asked_for_once(
    client: httpx.AsyncClient, show: Open, watch: Watch
) -> None:
    watch.expected.append("404")
    await make_run(client)
    page = await show(f"{PAGE}?batch=abcdef")
    await expect(page.locator("[data-state=empty]")).to_contain_text("This batch is no longer kept")

    def times(end: str) -> int:
        return sum(url.partition("?")[0].endswith(end) for url in watch.asked)

    before = times("/status")
    await wait_until(lambda: times("/status") >= before + 3)
    assert times("/batches/abcdef") == 1
