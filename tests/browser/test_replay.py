"""The tab of the replay buffer shows its chunks by age, uses and priority, and what it waits for."""

import re

import httpx
from playwright.async_api import expect

from tests.api.replay.calls import REPLAY, end, insert, make_buffer, take
from tests.browser.conftest import Open, Watch
from tests.browser.test_accessibility import table
from tests.browser.test_page import figure

PAGE = "/runs/r/replay"


async def test_replay_shows_the_buffer_and_follows_it(client: httpx.AsyncClient, show: Open, watch: Watch) -> None:
    watch.expected.append("404")  # before there is a buffer
    await client.post("/v1/runs", json={"name": "r", "batch_size": 1})
    page = await show(PAGE, height=2400)  # rows out of sight are not drawn
    await expect(page.locator("[data-state=empty]")).to_contain_text("This run has no replay buffer. Set one up:")
    await make_buffer(client, limiter={"samples_per_insert": 1.0, "min_diff": 2.0, "max_diff": 100.0})
    await page.reload()
    words = page.get_by_role("list", name="State of the buffer")
    await expect(words).to_contain_text("Samples wait")
    await insert(client, range(3))
    await expect(words).to_contain_text("Open inserts and samples go through.")
    await expect(page.get_by_text("3 chunks may be sampled, 0 are reserved.")).to_be_visible()
    sample = await take(client, num_chunks=1, strategy="fifo")
    await expect(page.get_by_text("1 sample in use.")).to_be_visible()
    await end(client, sample)
    await client.put("/v1/runs/r/policy-version", json={"policy_version": 2})
    await client.patch(f"{REPLAY}/priorities", json={"priorities": {"2": 4.0, "3": 2.0}})
    await page.reload()
    cells = page.get_by_role("region", name="Chunks by age and uses").locator("td")
    await expect(cells).to_have_text(["", "", "1", "", "", "2"])
    await expect(page.get_by_role("region", name="Chunks by age and uses").locator("tbody th")).to_have_text(
        ["1 use", "0"]
    )
    assert await cells.nth(5).get_attribute("title") == "age 2, uses 0: 2 chunks, mean priority 3"
    await expect(page.get_by_text("All 3 were looked at.")).to_be_visible()

    rows = page.locator("[data-chunk]")
    await expect(rows).to_have_count(3)
    await page.get_by_label("Sort by").select_option("weight")
    await page.get_by_label("largest first").check()
    await expect(rows.first).to_contain_text(re.compile(r"^2\s*4\s*0"))
    heaviest, *_ = await table(page, "Chunks")
    assert (heaviest["Chunk"], heaviest["Priority"], heaviest["Uses"]) == ("2", "4", "0")
    assert "sort=weights&descending=true" in page.url
    await page.get_by_label("Chunks that are").select_option("archived")
    await expect(page.get_by_text("No chunk is here.")).to_be_visible()


async def test_the_error_of_a_limiter_has_all_its_digits(client: httpx.AsyncClient, show: Open) -> None:
    await make_buffer(client, limiter={"samples_per_insert": 334, "min_diff": 0, "max_diff": 5000})
    await insert(client, range(3))
    page = await show(PAGE)
    await expect(figure(page, "Buffer", "Limiter error")).to_have_text("1,002")


async def test_a_place_that_does_not_exist_is_not_looked_for(client: httpx.AsyncClient, show: Open) -> None:
    await make_buffer(client)
    page = await show(f"{PAGE}?place=constructor", height=2400)
    await expect(page.get_by_label("Chunks that are")).to_have_value("sampleable")


async def test_a_chunk_of_a_group_leads_to_the_group(client: httpx.AsyncClient, show: Open) -> None:
    await make_buffer(client, groups=True)
    group = {"id": "g1", "tokens": [[1, 2]], "masks": [[1, 2]], "scores": [0.5]}
    assert (await client.post("/v1/runs/r/groups", json={"groups": [group]})).status_code == 201
    batch = (await client.post("/v1/runs/r/batches", json={})).json()
    await client.post(f"/v1/runs/r/batches/{batch['batch']}/ack", json={"lease": batch["lease"]})
    page = await show(PAGE, height=2400)
    await page.locator("[data-chunk]").get_by_role("link", name="g1").click()
    await expect(page.locator("main")).to_contain_text("Sequence 0, score 0.5")
