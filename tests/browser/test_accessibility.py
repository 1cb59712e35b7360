"""Everyone can use the page: axe finds nothing, and the keyboard reaches every control."""

import re
from pathlib import Path

import httpx
import pytest
from playwright.async_api import Page, expect

from tests.browser.conftest import Open, Watch
from tests.scenarios.native_calls import RUN, group, join, make_run, submit, taken

AXE = (Path(__file__).parent / "vendor" / "axe-core" / "axe.min.js").read_text()
VIEWS = (
    *("/", "/about", "/audit", "/tokens", "/runs/run/now", "/runs/run/shares", "/runs/run/workers?environment=0"),
    *("/runs/run/freshness", "/runs/run/rewards", "/runs/run/curriculum", "/runs/run/curriculum?item=a"),
    *("/runs/run/replay", "/runs/run/batches", "/runs/run/batches?batch=BATCH"),
    "/runs/run/groups?item=x&score_min=0&state=queued",
    *("/runs/run/groups", "/runs/run/groups?group=c0", "/runs/run/groups?group=c0&view=raw"),
)
NO_BATCH = "0" * 32
CONTROLS = "a[href], button:enabled, input, select, textarea, summary, [tabindex='0']"


DIALOGS = (
    ("now", "Change limits"),
    ("shares", "Change shares of code"),
    ("workers?environment=0", "Disconnect"),
    ("groups?environment=math", "Delete groups"),
    ("groups?environment=nobody&state=leased", "Delete groups"),
)


async def fill(client: httpx.AsyncClient, state: str) -> str:
    """Make a run that is empty, blocked or healthy. Return the id of a batch that a trainer holds, if there is one."""
    await make_run(client)
    if state == "empty":
        return NO_BATCH
    for name, share in (("math", 0.5), ("code", None)):
        settings = {"name": name, "min_share": share, "member": f"{name}-1"}
        assert (await client.post("/v1/runs/run/environments", json=settings)).status_code == 201
    await submit(client, *(group(f"c{number}", environment=1) for number in range(3)))
    await client.put(f"{RUN}/replay", json={"groups": True})
    await client.put(f"{RUN}/curricula/gsm8k", json={"strategy": "plr"})
    await client.post(f"{RUN}/curricula/gsm8k/items", json={"items": ["a", "b"]})
    if state == "healthy":
        await submit(client, *(group(f"m{number}", environment=0) for number in range(3)))
        return str((await taken(client))["batch"])
    return NO_BATCH


async def findings(page: Page) -> list[str]:
    """What axe finds: rules of WCAG and good practice."""
    await page.evaluate(AXE)
    found = await page.evaluate("axe.run().then(result => result.violations)")
    return [f"{one['id']}: {node['target']} {node['failureSummary']}" for one in found for node in one["nodes"]]


async def settled(page: Page) -> None:
    await expect(page.locator("main [aria-busy]")).to_have_count(0)
    await expect(page.locator("main h1")).to_be_visible()


@pytest.mark.parametrize(
    ("state", "theme", "width", "views"),
    [
        ("empty", "dark", 360, VIEWS[::3]),
        ("blocked", "light", 1280, VIEWS[1::3]),
        ("healthy", "dark", 360, VIEWS[2::3]),
        pytest.param("empty", "light", 1280, VIEWS, marks=pytest.mark.at_length),
        pytest.param("blocked", "dark", 360, VIEWS, marks=pytest.mark.at_length),
        pytest.param("healthy", "dark", 360, VIEWS, marks=pytest.mark.at_length),
        pytest.param("healthy", "light", 1280, VIEWS, marks=pytest.mark.at_length),
    ],
)
async def test_axe_finds_nothing(
    client: httpx.AsyncClient, show: Open, watch: Watch, state: str, theme: str, width: int, views: tuple[str, ...]
) -> None:
    if state != "healthy":
        watch.expected.append("404")  # there is no group, or no batch, to open
    batch = await fill(client, state)
    for path in (view.replace("BATCH", batch) for view in views):
        page = await show(path, width=width, color_scheme=theme, reduced_motion="reduce")
        await settled(page)
        for button in await page.get_by_role("button", name="commands that fetch").all():
            await button.click()
        assert await findings(page) == [], path
        await page.context.close()


@pytest.mark.parametrize(("theme", "width"), [("light", 1280), ("dark", 360)])
async def test_axe_finds_nothing_in_dialogs(
    client: httpx.AsyncClient, show: Open, watch: Watch, theme: str, width: int
) -> None:
    watch.expected.append("404")  # an environment of the filter is not there
    await fill(client, "blocked")
    for path, label in DIALOGS:
        page = await show(f"/runs/run/{path}", width=width, color_scheme=theme, reduced_motion="reduce")
        await settled(page)
        await page.get_by_role("button", name=label, exact=True).click()
        await expect(page.get_by_role("dialog")).to_be_visible()
        assert await findings(page) == [], path
        await page.context.close()


async def test_axe_finds_nothing_in_the_list_of_keys_and_in_errors(
    client: httpx.AsyncClient, show: Open, watch: Watch
) -> None:
    watch.expected.append("404")
    page = await show("/runs/nothing/now")
    await expect(page.locator("[data-state=error]")).to_be_visible()
    await page.keyboard.press("?")
    await expect(page.get_by_role("dialog")).to_be_visible()
    assert await findings(page) == []


async def table(page: Page, name: str) -> list[dict[str, str]]:
    """Return the rows of a list as screen readers have them: each value with the title of its column."""
    there = page.get_by_role("table", name=name, exact=True)
    await expect(there.get_by_role("cell").first).to_be_visible()
    titles = await there.get_by_role("columnheader").all_inner_texts()
    _, *rows = await there.get_by_role("row").all()
    return [dict(zip(titles, await row.get_by_role("cell").all_inner_texts(), strict=True)) for row in rows]


@pytest.mark.parametrize("width", [360, 1280])
async def test_values_in_lists_have_the_titles_of_their_columns(
    client: httpx.AsyncClient, show: Open, width: int
) -> None:
    batch = await fill(client, "healthy")
    for path, name, seen, more in (
        ("groups", "Groups", {"Group": "m2", "State": "queued", "Mean score": "0.5"}, {"Tokens": "4"}),
        ("curriculum", "Items", {"Item": "a", "Bin": "2"}, {"Pass rate": "0.5", "Observations": "0"}),
        ("batches", "Batches", {"Step": "1"}, {"Sequences": "4", "Groups": "2"}),
        (f"batches?batch={batch}", "Groups of the batch", {"Group": "m0", "Sequences": "2"}, {"From": "queue"}),
    ):
        page = await show(f"/runs/run/{path}", width=width, height=3000)
        expected = seen | (more if width == 1280 else {})
        rows = await table(page, name)
        assert any(row.items() >= expected.items() for row in rows), rows
        assert width == 1280 or not any(row.keys() & more.keys() for row in rows), "narrow screens have fewer columns"
        await page.context.close()


@pytest.mark.parametrize("path", VIEWS)
async def test_the_keyboard_reaches_every_control(client: httpx.AsyncClient, show: Open, path: str) -> None:
    state = "healthy" if "BATCH" in path else "blocked"
    page = await show(path.replace("BATCH", await fill(client, state)))
    await settled(page)
    mark = f"""[...document.querySelectorAll("{CONTROLS}")].filter(one => one.checkVisibility())
        .forEach((one, at) => one.dataset.control = at)"""
    await page.evaluate(mark)
    wanted = await page.locator("[data-control]").count()
    reached = set()
    for _ in range(2 * wanted + 10):
        await page.keyboard.press("Tab")
        reached.add(await page.evaluate("document.activeElement.dataset.control ?? null"))
    assert len(reached - {None}) == wanted


async def test_keys_change_the_view_and_are_listed(client: httpx.AsyncClient, show: Open) -> None:
    await fill(client, "blocked")
    page = await show("/runs/run/now")
    await settled(page)
    for key, view in (("2", "shares"), ("9", "workers"), ("1", "now")):
        await page.keyboard.press(key)
        await expect(page).to_have_url(re.compile(f"/runs/run/{view}$"))
    await page.keyboard.press("?")
    keys = page.get_by_role("dialog")
    await expect(keys).to_contain_text("view Shares")
    await expect(keys).to_contain_text("all runs")
    await page.keyboard.press("Escape")
    await expect(keys).to_have_count(0)
    await page.keyboard.press("r")
    await expect(page.locator(".run")).to_have_count(1)
    await page.keyboard.press("j")
    await expect(page.get_by_role("link", name="run", exact=True)).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(page).to_have_url(re.compile("/runs/run/now$"))


async def test_the_list_of_keys_has_those_of_the_view_and_they_work(client: httpx.AsyncClient, show: Open) -> None:
    await make_run(client)
    await join(client, "math")
    await join(client, "code")
    await submit(client, group("a", environment=0))
    page = await show("/runs/run/now")
    await settled(page)
    await page.keyboard.press("j")
    await page.keyboard.press("j")
    await expect(page.locator("[data-environment]").nth(1).locator("xpath=..")).to_be_focused()
    keys = page.get_by_role("dialog")
    for path, listed, others in (
        ("/runs/run/now", ("next row", "view Shares"), ("raw JSON", "back to the list")),
        ("/runs/run/groups?group=a", ("raw JSON", "next sibling", "back to the list"), ("next row",)),
        ("/about", ("all runs",), ("next row", "view Shares")),
    ):
        await page.goto(path)
        await settled(page)
        await page.keyboard.press("?")
        for what in listed:
            await expect(keys).to_contain_text(what)
        for what in others:
            await expect(keys).not_to_contain_text(what)
        await page.keyboard.press("Escape")
        await expect(keys).to_have_count(0)


async def test_the_reader_chooses_the_theme_and_it_stays(client: httpx.AsyncClient, show: Open) -> None:
    page = await show("/about", color_scheme="light")
    paper = "getComputedStyle(document.body).backgroundColor"
    light = await page.evaluate(paper)
    button = page.get_by_role("button", name="Theme")
    await button.click()
    assert await page.evaluate(paper) == light
    await page.keyboard.press("t")
    await expect(button).to_have_text("theme: dark")
    dark = await page.evaluate(paper)
    assert dark != light
    await page.reload()
    await expect(button).to_have_text("theme: dark")
    assert await page.evaluate(paper) == dark
    await page.emulate_media(media="print")
    assert await page.evaluate(paper) == light
