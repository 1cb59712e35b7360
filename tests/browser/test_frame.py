"""The frame of all views: the sentence with its numbers, the explanation, the age of answers, what is left out."""

import asyncio
import re
from typing import Any

import httpx
import pytest
from playwright.async_api import Page, Route, expect

from app.api.pages.operators import TABS
from tests.api.access.conftest import bearer
from tests.browser.conftest import Open, Watch
from tests.scenarios.native_calls import end, group, join, lease_runs_out, make_run, submit, take, taken
from tests.waiting import wait_until

RUN = "/v1/runs/run"
LONG = "with-a-name-as-long-as-a-name-may-be-of-sixty-four-characters-xx"

HEALTH = """async (status) => {
    const { health } = await import(new URL("lib/health.js", document.querySelector("script[src]").src));
    return health(status);
}"""


def sentence(page: Page) -> Any:
    return page.get_by_role("heading", level=1)


async def test_the_sentence_says_how_long_the_run_is_blocked_and_how_fast_it_was(
    client: httpx.AsyncClient, show: Open
) -> None:
    await make_run(client, batch_size=2)
    await join(client, "math", min_share=0.5)
    page = await show("/runs/run/now")
    await expect(sentence(page)).to_contain_text(
        re.compile(r"Blocked\s+for \d+ (s|min): .*math needs 1 of 2 sequences")
    )
    await submit(client, group("a", environment=0), group("b", environment=0))
    await end(client, await taken(client))
    batch = await taken(client)
    training = r"Training\s+Step 2, a batch every [\d.]+ (s|min), trainer idle [\d.]+ %\. Next: "
    await expect(sentence(page)).to_contain_text(re.compile(training))
    await submit(client, group("c", environment=0))
    await expect(sentence(page)).to_contain_text("The next batch is ready.")
    await end(client, batch)
    waits = "A batch of 2 sequences waits for the trainer, the last ones came every "
    await expect(sentence(page)).to_contain_text(waits)


async def test_a_run_that_nobody_uses_is_idle_until_a_trainer_waits(client: httpx.AsyncClient, show: Open) -> None:
    await make_run(client, batch_size=2)
    environment = await join(client, "math")
    page = await show("/runs/run/now")
    await expect(sentence(page)).to_contain_text("Blocked")
    await client.delete(f"{RUN}/environments/{environment}")
    said = "Idle No environment is live, and no trainer waits: a batch needs 2 sequences; the queue has 0 that fit."
    await expect(sentence(page)).to_have_text(said)
    assert await take(client) is None
    await expect(sentence(page)).to_contain_text("Blocked")
    status = (await client.get(f"{RUN}/status")).json()
    for age_s, word in ((59, "Blocked"), (60, "Idle")):
        status["pace"]["waiting_age_s"] = age_s
        assert (await page.evaluate(HEALTH, status))["word"] == word


async def test_a_run_whose_trainer_asks_no_more_does_not_look_well(client: httpx.AsyncClient, show: Open) -> None:
    await make_run(client, batch_size=2)
    await join(client, "math", member="one")
    for groups in "ab", "cd", "ef":
        await submit(client, *(group(name, size=1, environment=0) for name in groups))
        if groups != "ef":
            await end(client, await taken(client))
    page = await show("/runs/run/now")
    status = (await client.get(f"{RUN}/status")).json()
    assert status["ready"]
    assert status["pace"]["batch_interval_s"] < 60

    async def said(age_s: float, alive: int = 1, oldest_waiting_s: float = 1.0, **pace: Any) -> tuple[str, str]:
        told = {"alive_environments": alive, "oldest_waiting_s": oldest_waiting_s}
        told["pace"] = {**status["pace"], "last_batch_age_s": age_s, **pace}
        found = await page.evaluate(HEALTH, {**status, **told})
        return found["kind"], found["sentence"]

    late = "A batch of 2 sequences waits for the trainer, which took the last one 10 min ago."
    assert await said(600, batch_interval_s=4.0) == ("warn", late)
    assert await said(600, batch_interval_s=4.0, alive=0) == ("idle", late), "a run that is over needs no action"
    assert (await said(600, batch_interval_s=300.0))[0] == "good", "long steps are usual here"
    assert [(await said(age, batch_interval_s=0.1))[0] for age in (14, 16)] == ["good", "warn"]
    assert [(await said(age, batch_interval_s=None))[0] for age in (599, 601)] == ["good", "warn"]
    assert (await said(14, batch_interval_s=0.11))[1].startswith(
        "A batch of 2 sequences waits for the trainer, the last ones came every 0.11 s, trainer idle "
    )
    never = {"last_batch_age_s": None, "batch_interval_s": None, "trainer_idle_share": None}
    assert [(await said(0, oldest_waiting_s=age, **never))[0] for age in (119, 121)] == ["good", "warn"]
    assert (await said(0, oldest_waiting_s=180, **never))[1] == (
        "A batch of 2 sequences waits for the trainer, which never took one: the oldest group has waited for 3 min."
    )


async def test_a_trainer_that_stopped_with_a_batch_does_not_look_well(client: httpx.AsyncClient, show: Open) -> None:
    await make_run(client, batch_size=2, lease_s=1)
    await join(client, "math", member="one")
    await submit(client, *(group(name, environment=0) for name in "ab"))
    await end(client, await taken(client))
    held = await taken(client)
    page = await show("/runs/run/now")
    await lease_runs_out(client, held)
    said = r"Overdue\s+The trainer took step 2 \d+ s ago; before, a batch came every [\d.]+ (s|min)\. "
    await expect(sentence(page)).to_have_text(re.compile(f"{said}Its lease has ended\\."))
    await expect(page.locator(".headline")).to_have_attribute("data-kind", "warn")
    await expect(page.locator(".leases")).to_contain_text("held, lease ended")
    status = (await client.get(f"{RUN}/status")).json()

    async def judged(left_s: float | None, age_s: float | None, alive: int = 1, before: Any = ()) -> tuple[str, str]:
        pace = {**status["pace"], "batch_interval_s": 4.0, "last_batch_age_s": age_s}
        leases = [*before, {**status["leases"][0], "expires_s": left_s}]
        found = await page.evaluate(HEALTH, {**status, "pace": pace, "leases": leases, "alive_environments": alive})
        return found["kind"], found["sentence"]

    late = "The trainer took step 2 10 min ago; before, a batch came every 4 s."
    for left_s in (100, None):  # without a deadline: the trainer is one of Atropos
        assert await judged(left_s, 600) == ("warn", late)
        assert (await judged(left_s, 19))[0] == "good"
        assert (await judged(left_s, None))[0] == "good"
    assert await judged(100, 600, alive=0) == ("idle", late), "a run that is over needs no action"
    assert await judged(0, 600) == ("warn", f"{late} Its lease has ended.")
    assert [(await judged(0, 1, alive))[0] for alive in (0, 1)] == ["warn", "warn"], "nobody ended the batch"
    later = {**status, "current_step": 9, "leases": [{**status["leases"][0], "expires_s": 100}]}
    found = await page.evaluate(HEALTH, {**later, "pace": {**status["pace"], "last_batch_age_s": 1}})
    assert re.match("Step 9, a batch every .*%. A trainer still holds step 2. The next ", found["sentence"])
    found = await page.evaluate(HEALTH, {**later, "pace": {**status["pace"], "last_batch_age_s": 6000}})
    assert found["sentence"].startswith("A trainer still holds step 2; step 9 was taken 1.7 h ago; before, a batch ")
    later["leases"][0]["delivery_count"] = 2
    found = await page.evaluate(HEALTH, {**later, "pace": {**status["pace"], "last_batch_age_s": 1}})
    assert found["sentence"].startswith("Step 2, a batch every "), "a batch that is handed out again comes late"
    other = {**status["leases"][0], "expires_s": 0}
    assert (await judged(100, 1, before=[other]))[0] == "good", "another trainer goes on"


async def test_the_sentence_leads_to_the_explanation(client: httpx.AsyncClient, show: Open) -> None:
    await make_run(client)
    math = await join(client, "math", min_share=0.5)
    page = await show("/runs/run/shares", width=360)
    await page.get_by_role("link", name="explain").click()
    await expect(page).to_have_url(re.compile("/runs/run/now\\?explain=true$"))
    panel = page.get_by_role("region", name=re.compile("^Explanation"))
    said = (await client.get(f"{RUN}/batches/explain")).json()
    assert said["missing_by_environment"] == {str(math): 2}
    await expect(panel.get_by_role("row", name=re.compile("math 2"))).to_be_visible()
    await expect(panel).to_contain_text("Still to arrive at least")
    assert await page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    await page.get_by_role("link", name="hide the explanation").click()
    await expect(panel).to_have_count(0)


@pytest.mark.parametrize("view", ["shares", "freshness", "rewards"])
async def test_a_view_says_that_it_leaves_environments_out(client: httpx.AsyncClient, show: Open, view: str) -> None:
    await make_run(client)
    for name in ("first", "second", "third"):
        await join(client, name)
    page = await show("/about")

    async def with_less(route: Route) -> None:
        await route.continue_(url=route.request.url.replace("limit=1000", "limit=2"))

    await page.route(re.compile(r"/status\?limit=1000$"), with_less)
    await page.goto(f"/runs/run/{view}")
    await expect(page.get_by_text("This page shows the first 2 of 3 environments.")).to_be_visible()
    await page.unroute_all()
    await expect(page.get_by_text("This page shows the first")).to_have_count(0)


async def test_live_says_its_age_when_answers_are_late(client: httpx.AsyncClient, show: Open) -> None:
    await make_run(client)
    page = await show("/runs/run/now")
    live = page.locator(".live")
    await expect(live).to_have_text("live")

    async def keep(_: Route) -> None:
        """Leave the request without an answer."""

    await page.route(re.compile(r"/status\?"), keep)
    await page.set_viewport_size({"width": 500, "height": 640})
    boxes = [await part.bounding_box() for part in (page.get_by_label("Run", exact=True), live)]
    name, state = [box for box in boxes if box is not None]
    assert name["x"] + name["width"] <= state["x"] or name["y"] + name["height"] <= state["y"], "none covers the other"
    await page.set_viewport_size({"width": 375, "height": 640})
    bar = page.locator("header.bar")
    before = await bar.bounding_box()
    await expect(live).to_have_text(re.compile(r"^live, \d+ s ago$"))
    assert await bar.bounding_box() == before, "nothing below it moves on a phone"
    await page.unroute_all()
    await expect(live).to_have_text("live")


async def test_an_outage_makes_nothing_older_than_it_is(client: httpx.AsyncClient, show: Open, watch: Watch) -> None:
    """Who the reader is was asked for long before, and is not what they look at."""
    watch.expected.append("ERR_INTERNET_DISCONNECTED")
    await make_run(client)
    page = await show("/about")
    await page.clock.install()
    await page.goto("/runs/run/now")
    await expect(page.get_by_role("button", name="Pause intake")).to_be_visible()
    async with page.expect_response(re.compile(r"/status\?")):
        await page.clock.fast_forward(50_000)
    await expect(page.locator(".live")).to_have_text("live")
    await page.context.set_offline(True)
    await expect(page.locator("[data-state=disconnected]")).to_contain_text(
        re.compile(r"What you see is [0-3]?\d s old\.")
    )


async def test_ages_grow_between_answers(client: httpx.AsyncClient, show: Open) -> None:
    """They stay as they are while the service does not answer: it may have handed out a batch."""
    await make_run(client, batch_size=2)
    await join(client, "math")
    await submit(client, group("a", environment=0))
    await end(client, await taken(client))
    page = await show("/runs/run/now")
    last = page.get_by_text(re.compile(r"^The last batch was taken \d+ s ago\.$"))
    blocked = sentence(page).locator(".why")
    await expect(last).to_be_visible()

    async def keep(_: Route) -> None:
        """Leave the request without an answer."""

    await page.route(re.compile(r"/status\?"), keep)
    ages = [await one.inner_text() for one in (last, blocked)]
    await expect(last).not_to_have_text(ages[0])
    await expect(blocked).not_to_have_text(ages[1])
    before = int(re.findall(r"\d+", ages[0])[0])
    await expect(last).to_have_text(f"The last batch was taken {before + 3} s ago.")


async def test_the_ledger_keeps_its_parts(client: httpx.AsyncClient, show: Open) -> None:
    """A batch that comes and goes would move all that is below."""
    await make_run(client, batch_size=2)
    page = await show("/runs/run/now")
    ledger = page.get_by_role("region", name="Token ledger")
    await submit(client, "a")
    await expect(ledger).to_contain_text("4 queued")
    await expect(ledger).not_to_contain_text("leased")
    batch = await taken(client)
    await expect(ledger).to_contain_text("4 leased")
    await end(client, batch)
    await expect(ledger).to_contain_text("0 leased")


@pytest.mark.parametrize("width", [1024, 1440])
async def test_what_is_below_the_sentence_stays_in_place(client: httpx.AsyncClient, show: Open, width: int) -> None:
    await make_run(client, batch_size=2)
    await join(client, "math", min_share=1)
    await submit(client, "other")
    page = await show("/runs/run/now", width=width)
    actions = page.get_by_role("button", name="Pause intake")
    await expect(page.locator(".who")).to_contain_text("lacks 2 sequences")
    blocked = await actions.bounding_box()
    await submit(client, group("a", environment=0))
    await expect(sentence(page)).to_contain_text("Ready")
    await expect(page.locator(".who")).to_have_count(0)
    assert await actions.bounding_box() == blocked


async def test_a_sentence_that_is_long_each_second_moves_what_is_below_only_once(
    client: httpx.AsyncClient, show: Open
) -> None:
    await make_run(client, batch_size=2)
    await join(client, LONG, min_share=1)
    await submit(client, group("a", environment=0))
    page = await show("/runs/run/now", width=1210)
    actions = page.get_by_role("button", name="Pause intake")
    await expect(sentence(page)).to_contain_text("Ready")
    short = await actions.bounding_box()
    assert short
    batch = await taken(client)
    await expect(page.locator(".who")).to_contain_text("lacks 2 sequences")
    long = await actions.bounding_box()
    assert long
    assert long["y"] > short["y"], "there are three lines"
    await submit(client, group("b", environment=0))
    await expect(sentence(page)).to_contain_text("The next batch is ready.")
    assert await actions.bounding_box() == long
    await end(client, batch)
    await expect(sentence(page)).to_contain_text("Ready")
    assert await actions.bounding_box() == long

    async def is_back() -> bool:
        return await actions.bounding_box() == short

    await page.set_viewport_size({"width": 1300, "height": 800})
    await wait_until(is_back)


async def test_the_parts_of_now_have_the_order_of_their_questions(client: httpx.AsyncClient, show: Open) -> None:
    """Is the run healthy, where do tokens go, what was it like, and then all figures."""
    await make_run(client)
    await join(client, "math")
    page = await show("/runs/run/now")
    await expect(page.locator(".panel", has_text="Stalls")).to_be_visible()
    ledger, tabs = page.get_by_role("region", name="Token ledger"), page.get_by_role("navigation", name="Views")
    tops = [(await one.bounding_box() or {})["y"] for one in (ledger, tabs, page.locator("main h1"))]
    assert tops == sorted(tops)
    titles = await page.locator("main .panel > header h2").all_inner_texts()
    first = [re.split(r"\s{2,}|\n| what", title)[0] for title in titles]
    assert first[0] == "Stalls"
    assert first.index("Stalls") < first.index("Progress")


@pytest.mark.parametrize("view", TABS)
async def test_every_view_of_a_run_has_its_ledger(
    client: httpx.AsyncClient, show: Open, watch: Watch, view: str
) -> None:
    watch.expected.append("404")  # of a replay buffer that is not there
    await make_run(client)
    page = await show(f"/runs/run/{view}")
    ledger = page.get_by_role("region", name="Token ledger")
    await expect(ledger).to_contain_text(re.compile(r"0 tokens\s+generated =\s+0 trained"))
    await submit(client, group("a"))
    await expect(ledger).to_contain_text(re.compile(r"4 tokens\s+generated =\s+0 trained\s*\+\s+4 queued"))


async def test_rows_of_very_many_environments_come_as_the_reader_scrolls(client: httpx.AsyncClient, show: Open) -> None:
    """A page of them has two here."""
    await make_run(client)
    numbers = [await join(client, f"e{number}") for number in range(5)]
    page = await show("/")

    async def with_less(route: Route) -> None:
        await route.continue_(url=route.request.url.replace("limit=1000", "limit=2"))

    await page.route(re.compile(r"/status\?limit=1000"), with_less)
    await page.goto(f"/runs/run/workers?environment={numbers[4]}")
    await expect(page.get_by_role("list", name="Environments").locator("[data-environment]")).to_have_count(5)
    await expect(page.get_by_text("More come as you scroll")).to_have_count(0)
    await expect(page.get_by_role("region", name="Members")).to_contain_text("e4")
    numbers.append(await join(client, "e5"))
    await expect(page.get_by_role("list", name="Environments").locator("[data-environment]")).to_have_count(6)


async def test_a_service_that_asks_nobody_names_nobody(show: Open) -> None:
    page = await show("/")
    await expect(page.get_by_role("link", name="tokens")).to_be_visible()
    await expect(page.locator(".account")).to_have_count(0)
    await expect(page.get_by_role("button", name="sign out")).to_have_count(0)


async def test_the_reader_goes_to_the_same_view_of_another_run(client: httpx.AsyncClient, show: Open) -> None:
    for name in ("run", "other", "third", LONG):
        await make_run(client, name=name, batch_size=2)
    page = await show("/runs/run/shares")
    runs = page.get_by_label("Run", exact=True)
    await expect(runs.locator("option")).to_have_text(["run", "All runs"])
    box = await runs.bounding_box()
    await runs.focus()
    await expect(runs.locator("option")).to_have_text(["run", "other", "third", LONG, "All runs"])
    assert await runs.bounding_box() == box, "other names do not make it wider"
    await runs.press("ArrowDown")
    await expect(page).to_have_url(re.compile("/runs/run/shares$"))
    await page.keyboard.press("ArrowDown")
    await page.keyboard.press("Enter")
    await expect(page).to_have_url(re.compile("/runs/other/shares$"))
    await runs.focus()
    await runs.select_option(label="third")
    await expect(page).to_have_url(re.compile("/runs/third/shares$"))
    await expect(runs.locator("option:checked")).to_have_text("third")
    await runs.focus()
    await runs.select_option(label="All runs")
    await expect(page.get_by_role("heading", level=1)).to_have_text("Runs")


BLOCK_STORAGE = """
const deny = () => { throw new DOMException("Access is denied.", "SecurityError"); };
for (const name of ["localStorage", "sessionStorage"]) Object.defineProperty(window, name, { get: deny });
navigator.locks.request = async () => deny();
"""


async def test_the_page_works_in_a_browser_that_blocks_storage(
    client: httpx.AsyncClient, operator: str, show: Open, watch: Watch
) -> None:
    watch.expected.append("401")
    made = await client.post("/v1/runs", json={"name": "run", "batch_size": 4}, headers=bearer(operator))
    assert made.status_code == 201
    page = await show("about:blank", color_scheme="light")
    await page.add_init_script(BLOCK_STORAGE)
    async with page.expect_request(re.compile("/events")):
        await page.goto("/runs/run/now")
        await page.get_by_label("Token").fill(operator)
        await page.keyboard.press("Enter")
    await expect(sentence(page)).to_contain_text("Empty")
    theme = page.get_by_role("button", name="theme")
    for chosen in ("light", "dark"):
        await theme.click()
        await expect(theme).to_have_text(f"theme: {chosen}")
    assert await page.evaluate("getComputedStyle(document.documentElement).colorScheme") == "dark"


async def test_a_service_that_says_nothing_is_lost(client: httpx.AsyncClient, show: Open) -> None:
    await make_run(client)
    page = await show("about:blank")
    await page.clock.install()
    await page.goto("/")
    await expect(page.locator("[data-run=run] .facts")).to_contain_text("queued")
    answers = asyncio.Event()

    async def hold(route: Route) -> None:
        await answers.wait()
        await route.continue_()

    await page.route("**/v1/**", hold)
    async with page.expect_request(re.compile("/status")):
        await page.clock.run_for(5_000)
    bar = page.locator("[data-state=disconnected]")
    await expect(bar).to_have_count(0)
    await page.clock.run_for(45_000)
    await expect(bar).to_contain_text(re.compile(r"The service does not answer\. .* What you see is \d+ s old\."))
    await expect(page.locator("[data-run=run] .facts")).to_contain_text("queued")
    answers.set()
    await expect(bar).to_have_count(0)


async def test_a_run_without_settings_is_in_the_list_of_runs(client: httpx.AsyncClient, show: Open) -> None:
    alone = {"tokens": [[1, 2]], "masks": [[-100, 2]], "scores": [0.5]}
    assert (await client.post("/runs/alone/atropos/scored_data", json=alone)).status_code == 200
    page = await show("/")
    row = page.locator("[data-run=alone]")
    await expect(row).to_contain_text("The run has no settings: only groups came, or it was reset.")
    await expect(row.get_by_role("link")).to_have_count(0)
