"""What readers export is one HTML file: it opens without the service, runs nothing, and has a bound."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import httpx
import pytest
from playwright.async_api import Browser, Page, Route, expect

from tests.api.access.conftest import Tokens, bearer
from tests.browser.conftest import Open, Watch
from tests.browser.test_accessibility import findings
from tests.browser.test_hostile import BIDI, ESCAPES, MARKUP, NAMES, UNSEEN, check_inert
from tests.scenarios.native_calls import RUN, end, group, make_run, submit, taken
from tests.waiting import wait_until

GROUPS = "/runs/run/groups"
BATCHES = "/runs/run/batches"
HOSTILE = MARKUP + ESCAPES + BIDI + "</style></title></main></svg><script>window.hacked=1</script>"
MANY_BYTES = 10 * 1024 * 1024
MOST_BYTES = 25 * 1024 * 1024
Theme = Literal["light", "dark"]
NOTHING = "\u2013"  # a number that is not known
PAPER: dict[Theme, str] = {"light": "rgb(255, 255, 255)", "dark": "rgb(19, 22, 26)"}


async def exported(page: Page, folder: Path) -> Path:
    """Export what the page shows, and return the file."""
    async with page.expect_download() as started:
        await page.get_by_role("button", name=re.compile("^Export .*as HTML$")).click()
    download = await started.value
    path = folder / download.suggested_filename
    await download.save_as(path)
    await expect(page.get_by_role("status").get_by_text(f"Exported {path.name}, ")).to_be_visible()
    return path


def check_file(path: Path) -> None:
    """Check the size of a file, and that no character in it is unseen."""
    assert path.stat().st_size < MOST_BYTES
    assert [one for one in UNSEEN if one in path.read_text()] == []


@asynccontextmanager
async def offline(browser: Browser, path: Path, theme: Theme = "light", width: int = 360) -> AsyncIterator[Page]:
    """Open a file without a network. At the end, check that it is inert and asked for nothing."""
    check_file(path)
    context = await browser.new_context(offline=True, color_scheme=theme, viewport={"width": width, "height": 800})
    page = await context.new_page()
    asked: list[str] = []
    errors: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: errors.append(message.text))
    page.on("pageerror", lambda error: errors.append(str(error)))
    await page.goto(path.as_uri())
    yield page
    assert await page.evaluate("getComputedStyle(document.body).backgroundColor") == PAPER[theme]
    await expect(page.get_by_text(re.compile(r"^Exported from http.* time zone \S+ \(20.*Z\)\."))).to_be_visible()
    await check_inert(page)
    assert await page.locator("script, a, button, input, img, link, iframe, canvas").count() == 0
    assert errors == []
    await page.evaluate("document.head.append(Object.assign(document.createElement('script'), {text: 'hacked = 2'}))")
    assert await page.evaluate("window.hacked") is None, "its policy lets no script run"
    assert len(errors) == 1
    assert asked == [path.as_uri()]
    await context.close()


async def unfold(page: Page) -> None:
    for summary in await page.locator("summary").all():
        await summary.click()


@pytest.mark.parametrize(("theme", "tokens"), [("light", 5000), ("dark", 3)])
async def test_an_exported_group_opens_offline_and_is_inert(
    client: httpx.AsyncClient, show: Open, browser: Browser, watch: Watch, tmp_path: Path, theme: Theme, tokens: int
) -> None:
    watch.expected.append("it asked blob:")
    await make_run(client)
    long = "m" * MANY_BYTES if tokens > 3 else ""
    talk = [{"role": HOSTILE, "content": HOSTILE + long}, {"role": "tool", "content": [HOSTILE], HOSTILE: HOSTILE}]
    columns: dict[str, Any] = {"tokens": [[5] * tokens] * 2, "masks": [[5] * tokens] * 2, "item": HOSTILE[:400]}
    columns |= {"inference_logprobs": [[-0.5] * tokens, [-2.0] * tokens]}
    await submit(client, group("a.1", messages=[talk, talk], **columns))
    page = await show(f"{GROUPS}?group=a.1&overlay=logprob", color_scheme="dark" if theme == "light" else "light")
    await expect(page.get_by_role("article")).to_have_count(2)
    await page.keyboard.press("t")  # the theme of the page is not that of the file
    path = await exported(page, tmp_path)
    assert path.stat().st_size < 4 * 1024 * 1024

    async with offline(browser, path, theme) as file:
        await expect(file.get_by_role("heading", level=1)).to_have_text("Group a.1 of run run")
        await expect(file).to_have_title("Group a.1 of run run")
        await expect(file.get_by_role("list", name="Way of the group")).to_contain_text("item <img src=x onerror=")
        sequences = file.get_by_role("article")
        await expect(sequences).to_have_count(2)
        for text in ("<script>window.hacked=1</script>", "</style></title>", *(["characters)"] if long else [])):
            await expect(sequences.first).to_contain_text(text)
        first = sequences.nth(int(tokens > 3)).locator("[data-place]")  # a large group is in its own order
        await expect(first).to_have_count(min(tokens, 4000))
        assert await first.first.get_attribute("title") == (
            "token 0 · id 5 · in the loss · log probability -2 · advantage over the group 1"
        )
        assert "--share: 0" in (await first.first.get_attribute("style") or "")
        if tokens == 3:
            assert await findings(file) == []


async def make_batch(client: httpx.AsyncClient, *groups: dict[str, Any], size: int, **asked: Any) -> dict[str, Any]:
    """Make a run with two environments, and take a batch of ``groups``."""
    await make_run(client, batch_size=size)
    for name in ("math", NAMES[0]):
        await client.post(f"{RUN}/environments", json={"name": name, "member": "one"})
    await submit(client, *groups)
    return await taken(client, **asked)


@pytest.mark.parametrize("theme", ["light", "dark"])
async def test_an_exported_batch_shows_what_the_service_holds(
    client: httpx.AsyncClient, show: Open, browser: Browser, watch: Watch, tmp_path: Path, theme: Theme
) -> None:
    watch.expected.append("it asked blob:")
    talk = [[{"role": HOSTILE, "content": HOSTILE}]] * 2
    hostile = group("b", environment=1, messages=talk, item=HOSTILE[:400], policy_version=0)
    batch = await make_batch(client, group("a", environment=0), hostile, size=4, trainer=HOSTILE[:100])
    page = await show(f"{BATCHES}?batch={batch['batch']}", width=360)
    path = await exported(page, tmp_path)
    assert path.name == f"batch-{batch['batch']}.html"
    held = (await client.get(f"{RUN}/batches/{batch['batch']}")).json()
    async with offline(browser, path, theme) as file:
        await expect(file).to_have_title(f"Batch {batch['batch']} of run run")
        facts = file.locator(".figures")
        for what, value in (("State", "held"), ("Step", "1"), ("Handed out", "1 time"), ("Sequences", "4 in 2 groups")):
            await expect(facts.locator("div", has_text=what).first).to_contain_text(value)
        await expect(facts).to_contain_text("<img src=x onerror=")
        parts = file.locator(".batch-parts li")
        assert [one["sequences"] for one in held["environments"]] == [2, 2]
        await expect(parts).to_contain_text([re.compile("math.*2", re.S), re.compile("<img src=x.*2", re.S)])
        listed = file.get_by_role("table", name="Groups of the batch").locator("[data-group]")
        assert [await one.get_attribute("data-group") for one in await listed.all()] == [
            one["id"] for one in held["contents"]
        ]
        await expect(file.get_by_role("heading", level=3, name=re.compile("^Group "))).to_have_count(2)
        await expect(file.get_by_role("list", name="Way of the group")).to_contain_text(["leased", "leased"])
        sequences = file.get_by_role("article")
        await expect(sequences).to_have_count(4)
        await expect(sequences.filter(has_text="<script>window.hacked=1</script>")).to_have_count(2)
        assert await file.locator("[data-place]").count() == 8
        await expect(file.locator(".notice")).to_have_count(0)
        assert await findings(file) == []


async def test_an_exported_batch_shows_the_loads_of_its_ranks(
    client: httpx.AsyncClient, show: Open, browser: Browser, watch: Watch, tmp_path: Path
) -> None:
    watch.expected.append("it asked blob:")
    await make_run(client, batch_size=4)
    await submit(client, *(group(f"g{n}", size=1, tokens=[[7] * (n + 1)], masks=[[7] * (n + 1)]) for n in range(4)))
    batch = (await client.post(f"{RUN}/batches", params={"rank": 0, "world_size": 2}, json={})).json()
    page = await show(f"{BATCHES}?batch={batch['batch']}")
    path = await exported(page, tmp_path)
    async with offline(browser, path) as file:
        await expect(file.get_by_text("Loads are in tokens. The largest is 0 % above the mean.")).to_be_visible()
        await expect(file.locator(".dots i")).to_have_count(2)
        await unfold(file)
        rows = file.get_by_role("region", name="Ranks: numbers").locator("tbody tr")
        await expect(rows).to_have_text([re.compile(r"0\s*5\s*yes\s*no"), re.compile(r"1\s*5\s*no\s*no")])
        assert await findings(file) == []


async def test_an_exported_batch_says_what_it_leaves_out(
    client: httpx.AsyncClient, show: Open, browser: Browser, watch: Watch, tmp_path: Path
) -> None:
    """It has 128 groups with contents, 16 sequences of a group, 1,000 tokens of a sequence."""
    watch.expected.append("it asked blob:")
    long: dict[str, Any] = {"tokens": [[5] * 1500, [6]], "masks": [[5] * 1500, [6]]}
    wide = group("wide", size=20)
    small = (group(f"g{number:03d}", size=1) for number in range(140))
    batch = await make_batch(client, group("long", **long), wide, *small, size=162)
    page = await show(f"{BATCHES}?batch={batch['batch']}")
    path = await exported(page, tmp_path)
    async with offline(browser, path) as file:
        await expect(file.locator("h1 ~ .notice").first).to_have_text(
            "Left out: the contents of 14 of 142 groups, because a file has those of at most 128."
        )
        await expect(file.locator("[data-group]")).to_have_count(142)
        await expect(file.get_by_role("heading", level=3, name=re.compile("^Group "))).to_have_count(128)
        await expect(file.get_by_text("16 of 20 sequences.")).to_be_visible()
        await expect(file.get_by_text("The first 1,000 of 1,500 tokens.")).to_be_visible()
        await expect(file.get_by_role("article")).to_have_count(2 + 16 + 126)


async def test_a_file_has_a_bound_however_much_there_is(
    client: httpx.AsyncClient, show: Open, browser: Browser, watch: Watch, tmp_path: Path
) -> None:
    watch.expected.append("it asked blob:")
    row = list(range(100_000, 101_000))
    columns = {"tokens": [row] * 16, "masks": [row] * 16, "inference_logprobs": [[-0.123456789] * 1000] * 16}
    talk = [[{"role": "user", "content": "<" * 10_000}]] * 16
    groups = [group(f"g{number:02d}", size=16, messages=talk, **columns) for number in range(10)]
    batch = await make_batch(client, *groups, size=160)
    page = await show(f"{BATCHES}?batch={batch['batch']}")
    path = await exported(page, tmp_path)
    assert path.stat().st_size > MOST_BYTES // 2
    async with offline(browser, path) as file:
        drawn = await file.get_by_role("heading", level=3, name=re.compile("^Group ")).count()
        assert 1 < drawn < 10
        await expect(file.locator("h1 ~ .notice").first).to_have_text(
            re.compile(r"Left out: contents of \d of 10 groups, because a file has at most 24 MiB\.")
        )


async def test_an_export_can_be_stopped(
    client: httpx.AsyncClient, show: Open, browser: Browser, watch: Watch, tmp_path: Path
) -> None:
    """The page answers its reader while it writes a file."""
    watch.expected.append("it asked blob:")
    batch = await make_batch(client, group("a"), group("b"), size=4)
    page = await show(f"{BATCHES}?batch={batch['batch']}")

    async def leave(_: Route) -> None:
        """Never answer."""

    await page.route("**/groups/b", leave)
    start, stop = (page.get_by_role("button", name=name) for name in ("Export as HTML", "Stop the export"))
    await start.focus()
    await page.keyboard.press("Enter")
    await expect(stop).to_be_focused()
    await expect(page.get_by_role("status").get_by_text("Exporting…")).to_be_visible()
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("status").get_by_text("Stopped. Nothing was saved.")).to_be_visible()
    await expect(start).to_be_focused()
    assert await findings(page) == []
    await page.unroute("**/groups/b")
    async with offline(browser, await exported(page, tmp_path)) as file:
        await expect(file.get_by_role("article")).to_have_count(4)


async def test_an_exported_batch_says_that_its_contents_are_not_kept_or_not_allowed(
    client: httpx.AsyncClient,
    operator: str,
    tokens: Tokens,
    show: Open,
    browser: Browser,
    watch: Watch,
    tmp_path: Path,
) -> None:
    watch.expected += ["401", "403", "it asked blob:"]
    client.headers.update(bearer(operator))
    batch = await make_batch(client, group("a", environment=0), size=2)
    page = await show(f"{BATCHES}?batch={batch['batch']}")
    await page.get_by_label("Token").first.fill(await tokens.make("viewer", "run"))
    await page.get_by_role("button", name="Use it").first.click()
    async with offline(browser, await exported(page, tmp_path)) as file:
        await expect(file.locator("h1 ~ .notice").first).to_contain_text("Left out: the contents of 1 group, because")
        await expect(file.locator("[data-group]")).to_have_count(1)
        await expect(file.get_by_role("article")).to_have_count(0)
    await end(client, batch, "nack")
    await expect(page.get_by_text("The run keeps the groups of a batch while")).to_be_visible()
    async with offline(browser, await exported(page, tmp_path)) as file:
        await expect(file.get_by_text("The run keeps the groups of a batch while")).to_be_visible()
        await expect(file.locator(".batch-parts li")).to_contain_text("math")


async def train(client: httpx.AsyncClient) -> None:
    """Make a run with two environments and a curriculum, and train on a batch."""
    await make_run(client, batch_size=4)
    for name in ("math", NAMES[0]):
        await client.post(f"{RUN}/environments", json={"name": name, "min_share": 0.25, "member": "one"})
    await client.put(f"{RUN}/curricula/sums", json={"strategy": "plr"})
    await client.post(f"{RUN}/curricula/sums/items", json={"items": ["a", HOSTILE[:100]]})
    await submit(client, *(group(f"g{number}", environment=number % 2, policy_version=0) for number in range(4)))
    await end(client, await taken(client))


async def recorded(client: httpx.AsyncClient) -> dict[str, Any]:
    """Wait until the history has what was trained on, and the curriculum, and the spans of that are over."""
    found: dict[str, Any] = {}

    async def is_written() -> bool:
        found.update((await client.get(f"{RUN}/history")).json())
        return any(found["run"]["groups_out"]) and len(found["run"]["curricula"]) > 0

    async def is_over() -> bool:
        return bool((await client.get(f"{RUN}/history")).json()["to_s"] > found["to_s"] + 10)

    await wait_until(is_written)
    await wait_until(is_over)
    return found


@pytest.mark.parametrize(
    ("view", "theme"),
    [("rewards?environment=1", "dark"), pytest.param("now", "light", marks=pytest.mark.at_length)],
)
async def test_an_exported_time_shows_what_the_service_holds(
    client: httpx.AsyncClient, show: Open, browser: Browser, watch: Watch, tmp_path: Path, view: str, theme: Theme
) -> None:
    watch.expected.append("it asked blob:")
    await train(client)
    to_s = (await recorded(client))["to_s"]
    chosen = f"from={to_s - 1200}&to={to_s}"
    page = await show(f"/runs/run/{view}{'&' if '?' in view else '?'}{chosen}", width=360, timezone_id="Asia/Kolkata")
    path = await exported(page, tmp_path)
    found = re.fullmatch(r"run-(\d{8}T\d{6}Z)-(\d{8}T\d{6}Z)\.html", path.name)
    assert found is not None
    begin, end_s = (int(datetime.strptime(one, "%Y%m%dT%H%M%S%z").timestamp()) for one in found.groups())
    history = (await client.get(f"{RUN}/history?{chosen}")).json()
    assert (begin, end_s) == (history["from_s"], history["to_s"])
    status = (await client.get(f"{RUN}/status")).json()
    async with offline(browser, path, theme) as file:
        await expect(file).to_have_title(re.compile(r"^Run run from \d+ \w+ \d{4}, \S+ to \d+ \w+ \d{4}, \S+$"))
        await expect(file.get_by_text("time zone Asia/Calcutta").or_(file.get_by_text("Asia/Kolkata"))).to_be_visible()
        ledger = file.get_by_role("region", name="Token ledger")
        assert status["ledger"]["generated_tokens"] == 16
        await expect(ledger).to_contain_text(re.compile(r"16\s+tokens\s+generated\s+=\s+8\s+trained"))
        for name in ("Stalls", "In", "Out", "Queue", "Batches", "Trainer idle", "Bias by environment"):
            await expect(file.get_by_role("heading", level=2, name=re.compile(f"^{name}")).first).to_be_visible()
        await expect(file.locator(".stalls svg")).to_have_count(6)
        headings = await file.locator("h2:has(.environment)").all_inner_texts()
        order = ["math", "<img src=x"] if "environment" not in view else ["<img src=x", "math"]
        assert [one.startswith(start) for one, start in zip(headings, order, strict=True)] == [True, True]
        for name in ("Share", "Rewards generated", "Bias by reward", "Bias by time", "Staleness at delivery"):
            await expect(file.get_by_role("heading", level=2, name=re.compile(f"^{name} "))).to_have_count(2)
        assert await file.locator("svg.picture path.tint").count() > 0
        assert await file.locator("svg.picture path.steps").count() > 0
        await expect(file.get_by_role("heading", name="Items of the curriculum sums by mean reward")).to_be_visible()
        assert await findings(file) == []

        await unfold(file)
        assert await findings(file) == []
        numbers = file.get_by_role("region", name="The run: numbers")
        columns = await numbers.locator("thead th").all_inner_texts()
        rows = numbers.locator("tbody tr")
        await expect(rows).to_have_count(len(history["times_s"]))
        moments: list[str] = await rows.locator("time").evaluate_all("all => all.map(one => one.dateTime)")
        assert [datetime.fromisoformat(one).timestamp() for one in moments] == history["times_s"]
        for name in ("batches", "groups_in", "tokens_out", "blocked_s.waiting_for_data"):
            series = history["run"]
            for part in name.split("."):
                series = series[part]
            cells = await rows.locator(f"td:nth-child({columns.index(name) + 1})").all_inner_texts()
            unknown = -1.0
            shown = [unknown if cell == NOTHING else float(cell) for cell in cells]
            assert shown == pytest.approx([unknown if one is None else one for one in series], rel=1e-5)


async def test_an_exported_time_says_what_it_leaves_out(
    client: httpx.AsyncClient, show: Open, browser: Browser, watch: Watch, tmp_path: Path
) -> None:
    """It has charts of 8 environments, or says that nothing is known."""
    watch.expected.append("it asked blob:")
    await make_run(client)
    for number in range(10):
        await client.post(f"{RUN}/environments", json={"name": f"env-{number}"})
    page = await show("/runs/run/freshness?environment=9")
    path = await exported(page, tmp_path)
    async with offline(browser, path) as file:
        await expect(file.locator("h1 ~ .notice")).to_have_text(
            "Left out: charts of 2 of 10 environments, because a file has those of 8: the one that was chosen, then "
            "the first to register."
        )
        assert await file.locator("h2:has(.environment)").all_inner_texts() == [
            f"env-{number}" for number in (9, 0, 1, 2, 3, 4, 5, 6)
        ]
    await page.goto("/runs/run/now?from=1000000&to=1003600")
    async with offline(browser, await exported(page, tmp_path)) as file:
        await expect(file.get_by_text("Nothing is known of this time.")).to_be_visible()
        await expect(file.get_by_role("region", name="Token ledger")).to_be_visible()
        assert await findings(file) == []
