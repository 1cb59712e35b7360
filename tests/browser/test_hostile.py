"""Names of others are text: no markup, no control characters, no direction, no length reaches the reader."""

import re

import httpx
import pytest
from playwright.async_api import Page, expect

from app.core.history.charts import BLOCKED, LOOKED_S
from app.core.history.series import Facts, HistorySpan
from app.store.history.store import HistoryStore
from app.store.redis.client import RedisClient
from tests.api.access.conftest import bearer
from tests.browser.conftest import Open, Watch
from tests.scenarios.native_calls import group, join, make_run, status, submit, take
from tests.waiting import wait_until

MARKUP = '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script><b>bold</b>&lt;i&gt;${1}'
ESCAPES = "\x1b[2J\x1b]0;title\x07\x9b31m\r\n\t\x00"
BIDI = "\u202egnp.exe\u2066\u200b\u200f"
NAMES = (MARKUP + ESCAPES + BIDI, BIDI * 10, "n" * 4096, "__proto__", '{"constructor":null,"type":"b"}')
UNSEEN = [*"\x1b\x07\x9b\x00\u202e\u2066\u200b\u200f"]


async def check_inert(page: Page) -> None:
    """Check that nothing ran, nothing became an element, and nothing makes the page wider than the window."""
    assert await page.evaluate("window.hacked") is None
    assert await page.locator("main :is(img, script)").count() == 0
    assert await page.locator("main b").get_by_text("bold", exact=True).count() == 0
    markup = await page.content()
    assert [character for character in UNSEEN if character in markup] == []
    assert await page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0


@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize(
    "path", ["/", "/runs/run/now", "/runs/run/shares", "/runs/run/batches", "/runs/run/workers?environment=0"]
)
async def test_hostile_names_of_environments_are_inert(
    client: httpx.AsyncClient, show: Open, path: str, width: int
) -> None:
    await make_run(client, batch_size=10)
    for name in NAMES:
        settings = {"name": name, "min_share": 0.2}
        assert (await client.post("/v1/runs/run/environments", json=settings)).status_code == 201
    page = await show(path, width=width)
    await expect(page.get_by_text("<img src=x onerror=").first).to_be_visible()
    await check_inert(page)
    assert "n" * 300 not in await page.content()


@pytest.mark.parametrize("path", ["/", "/runs/run/now"])
async def test_an_alert_is_readable_whatever_the_names_of_its_environments_are(
    client: httpx.AsyncClient, show: Open, path: str
) -> None:
    await make_run(client, batch_size=10, relax_scarce_after_s=0.001)
    sender = await join(client, "sender")
    for name in ("n" * 4096, "😀" * 90, MARKUP + BIDI):
        await join(client, name, min_share=0.2)
    await submit(client, *(group(f"g{number}", environment=sender) for number in range(5)))
    assert await take(client) is None

    async def is_alarming() -> bool:
        return (await status(client))["alert"] is not None

    await wait_until(is_alarming)
    page = await show(path)
    sentence = page.locator(".run .sentence, .headline .why")
    await expect(sentence).to_have_text(re.compile(r"^\s*n+… \(4,096 characters\) has sent .*; (😀)+… has sent "))
    await check_inert(page)


SENTENCE = """async ([text, names]) => {
  const page = document.querySelector("script[type=module]").src;
  const { html, render } = await import(page.replace("app.js", "lib/html.js"));
  const { Sentence } = await import(page.replace("app.js", "parts/names.js"));
  const place = document.body.appendChild(document.createElement("div"));
  render(html`<${Sentence} text=${text} names=${new Map(names)} />`, place);
  return [place.textContent, place.querySelectorAll(".environment").length];
}"""
"""Draws a sentence of the API. Returns its text, and how many environments it names."""


async def test_a_sentence_names_an_environment_once_also_if_it_is_called_environment_2(show: Open) -> None:
    page = await show("/about")
    names = [[1, "environment 2"], [2, "my environment 1"], [3, "`x`"]]
    for text, expected in (
        ("environment 1 (environment 2) has sent too little", ["environment 2 has sent too little", 1]),
        ("environment 2 (my environment 1): wait", ["my environment 1: wait", 1]),
        (
            "call `f` for environment 3 (`x`); environment 7 (environment 9)",
            ["call f for `x`; environment 7 (environment 9)", 1],
        ),
        ("environment 1 and environment 2 (my environment 1)", ["environment 2 and my environment 1", 2]),
    ):
        assert await page.evaluate(SENTENCE, [text, names]) == expected


async def test_a_character_is_shown_whole_or_not_at_all(show: Open) -> None:
    """In JavaScript, an emoji is two units of a string."""
    page = await show("/")
    cut = await page.evaluate("""async () => {
        const { shown, shownLines } = await import(new URL("lib/text.js", document.querySelector("script[src]").src));
        return [shown("ab😀c", 3), shown("ab😀c", 4), shownLines("ab😀c", 3)];
    }""")
    assert cut == ["ab…", "ab😀…", "ab… (5 characters)"]


async def test_hostile_names_of_rows_are_inert(client: httpx.AsyncClient, show: Open) -> None:
    await make_run(client, batch_size=10)
    for number, name in enumerate(NAMES):
        await client.post("/v1/runs/run/environments", json={"name": name})
        await submit(client, group(f"g{number}", environment=number))
    await client.put("/v1/runs/run/curricula/tasks", json={})
    items = [{"key": MARKUP + BIDI}, {"key": "n" * 400}]
    added = await client.post("/v1/runs/run/curricula/tasks/items", json={"items": items})
    assert added.status_code == 200, added.text
    page = await show("/runs/run/rewards", height=3000)
    rows = page.get_by_role("list", name=re.compile("^Environments")).get_by_role("listitem")
    await expect(rows).to_have_count(len(NAMES))
    await check_inert(page)
    await page.goto("/runs/run/curriculum")
    await expect(page.locator("[data-item]")).to_have_count(len(items))
    await check_inert(page)
    assert "n" * 300 not in await page.locator("main").inner_text()


async def test_hostile_reasons_are_inert_on_the_timeline(client: httpx.AsyncClient, show: Open, redis_url: str) -> None:
    await make_run(client, batch_size=10)
    connection = RedisClient(redis_url, 5.0)
    cause = BLOCKED + "starvation"
    facts = Facts({LOOKED_S: 5, cause: 5}, texts={cause: MARKUP + ESCAPES + BIDI + "n" * 4096})
    assert await HistoryStore(connection).append("run", HistorySpan(facts))
    await connection.aclose()
    page = await show("/runs/run/now")
    timeline = page.get_by_role("group", name="Stalls over time")
    await expect(timeline.locator("[data-cause=starvation] path:not(.open)")).not_to_have_attribute("d", "")
    box = await timeline.locator("[data-cause=starvation]").bounding_box()
    assert box is not None
    said = page.locator(".moment")
    for pixel in range(int(box["width"]), 0, -10):
        await page.mouse.move(box["x"] + pixel, box["y"] + box["height"] / 2)
        await page.evaluate("new Promise(requestAnimationFrame)")  # what is pointed at is shown then
        if "Last reason: <img src=x onerror=" in await said.inner_text():
            break
    await expect(said).to_contain_text("Last reason: <img src=x onerror=")
    await check_inert(page)
    assert "n" * 2000 not in await page.content()


async def test_a_hostile_address_is_inert(client: httpx.AsyncClient, show: Open) -> None:
    await make_run(client)
    query = "%3Cimg%20src%3Dx%20onerror%3D%22window.hacked%3D1%22%3E%E2%80%AE"
    page = await show(f"/?name={query}")
    await expect(page.get_by_text("0 runs")).to_be_visible()
    assert await page.evaluate("window.hacked") is None


async def test_a_time_that_is_no_date_is_shown_as_it_is(client: httpx.AsyncClient, show: Open) -> None:
    await make_run(client)
    page = await show("/runs/run/groups?received_from_s=1764432000000000")  # microseconds
    await expect(page.get_by_role("list", name="Filters that are set")).to_contain_text("from: 1764432000000000")
    await expect(page.get_by_text("The run knows no such group.")).to_be_visible()


async def test_an_address_with_a_malformed_escape_shows_what_is_wrong(show: Open, watch: Watch) -> None:
    watch.expected.append("422")
    page = await show("/runs/%FF/now")
    await expect(page).to_have_title("%FF · now · Lachesis")
    await expect(page.get_by_label("Run", exact=True)).to_have_value(re.compile("/runs/%25FF/now$"))
    await expect(page.locator("main [data-state=error]")).to_contain_text("invalid_field")


async def test_hostile_names_of_tokens_are_inert_in_the_audit_trail(
    client: httpx.AsyncClient, operator: str, show: Open, watch: Watch
) -> None:
    watch.expected.append("401")
    asked = {"role": "operator", "name": (MARKUP + BIDI)[:128]}
    made = await client.post("/v1/tokens", json=asked, headers=bearer(operator))
    token = made.json()["token"]
    await client.post("/v1/runs", json={"name": "run", "batch_size": 4}, headers=bearer(token))
    page = await show("/audit")
    await page.get_by_label("Token").fill(token)
    await page.get_by_role("button", name="Use it").click()
    await expect(page.get_by_role("cell", name="<img src=x").first).to_be_visible()
    await check_inert(page)
