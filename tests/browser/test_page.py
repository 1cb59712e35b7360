"""What the page shows is what a live service holds, and it follows the service without being loaded again."""

import re
from collections.abc import Sequence
from typing import Any

import httpx
import pytest
from playwright.async_api import Page, Route, expect

from tests.browser.conftest import Open, Watch
from tests.scenarios.native_calls import end, group, join, join_many, make_run, submit, take, taken
from tests.waiting import wait_until


def figure(page: Page, panel: str, name: str) -> Any:
    """The value of a figure in a panel."""
    row = page.get_by_role("region", name=re.compile(f"^{panel}")).locator(".figures > div")
    return row.filter(has=page.get_by_text(name, exact=True)).locator("dd")


async def test_the_runs_are_listed_with_their_state_in_words(client: httpx.AsyncClient, show: Open) -> None:
    page = await show("/")
    await expect(page.get_by_text("There is no run yet")).to_be_visible()
    await make_run(client, name="empty")
    await make_run(client, name="stuck")
    await join(client, "gsm8k", run="/v1/runs/stuck", min_share=0.5)
    await make_run(client, name="fed", batch_size=2)
    await submit(client, "a", run="/v1/runs/fed")
    rows = page.locator(".run")
    for name, word, sentence in (
        ("empty", "Empty", "No environment has joined"),
        ("stuck", "Blocked", "gsm8k needs 2 of 4 sequences"),
        ("fed", "Ready", "A batch of 2 sequences waits for the trainer"),
    ):
        row = rows.and_(page.locator(f"[data-run={name}]"))
        await expect(row.locator(".kind")).to_have_text(word)
        await expect(row.locator(".sentence")).to_contain_text(sentence)
    await expect(page.locator("[data-run=fed] .facts")).to_contain_text("1 group queued")
    for place, name in enumerate(("stuck", "fed", "empty")):
        await expect(rows.nth(place)).to_have_attribute("data-run", name)
    await take(client, run="/v1/runs/fed")
    await expect(page.locator("[data-run=fed] .kind")).to_have_text("Training")
    await client.patch("/v1/runs/empty", json={"archived": True})
    await expect(page.locator("[data-run=empty] .kind")).to_have_text("Archived")
    await page.get_by_label("Name").fill("stu")
    await expect(rows).to_have_count(1)
    assert page.url.endswith("/?name=stu")
    await page.get_by_role("link", name="stuck").click()
    await expect(page).to_have_url(re.compile("/runs/stuck/now$"))
    await expect(page.get_by_role("heading", level=1)).to_contain_text("gsm8k needs 2 of 4 sequences, has 0 queued")


async def show_runs(client: httpx.AsyncClient, show: Open, names: Sequence[str]) -> Page:
    """Make runs, and show them on a page whose time passes as the test says."""
    for name in names:
        await make_run(client, name=name)
    page = await show("/about")
    await page.clock.install()
    await page.goto("/")
    await expect(page.locator(f"[data-run={names[0]}] .kind")).to_have_text("Empty")
    return page


def asked_for(watch: Watch, names: Sequence[str]) -> set[str]:
    """The runs of which the page has asked for the state."""
    return {name for name in names if any(f"/{name}/status" in url for url in watch.asked)}


async def test_a_run_out_of_sight_comes_first_when_it_gets_stuck(
    client: httpx.AsyncClient, show: Open, watch: Watch
) -> None:
    """The page asks for the states of 64 runs at a time. The last one has its turn 15 s later."""
    names = [f"sweep-{number:02}" for number in range(70)]
    page = await show_runs(client, show, names)
    rows = page.locator(".run")
    await page.clock.fast_forward(15_000)

    async def is_settled() -> bool:
        asked = asked_for(watch, names)
        return len(asked) == len(names) and await rows.first.get_attribute("data-run") == names[0]

    await wait_until(is_settled)
    await join(client, "math", run="/v1/runs/sweep-69", min_share=0.5)
    await page.clock.fast_forward(15_000)
    await expect(rows.first).to_have_attribute("data-run", "sweep-69")
    await page.get_by_label("Name").fill("other")
    await expect(page.get_by_text("No run has this in its name.")).to_be_visible()


async def test_idle_runs_keep_their_places_while_their_states_arrive(
    client: httpx.AsyncClient, show: Open, watch: Watch
) -> None:
    names = [f"sweep-{number:03}" for number in range(150)]
    page = await show_runs(client, show, names)
    await wait_until(lambda: len(asked_for(watch, names)) == 64)
    for _ in range(5):
        await page.clock.run_for(1000)  # the order is looked at twice in this time
        await expect(page.locator(".run").first).to_have_attribute("data-run", names[0])
    assert asked_for(watch, names) == set(names[:64]), "those in sight, and those whose turn it is"


@pytest.mark.parametrize(
    ("environment", "said"),
    [("99", "environment_not_found: run run has no environment 99."), ("x", "invalid_field: path.environment: ")],
)
async def test_workers_of_no_environment_are_not_found(
    client: httpx.AsyncClient, show: Open, watch: Watch, environment: str, said: str
) -> None:
    watch.expected += ["404", "422"]
    await make_run(client)
    await join(client, "math")
    page = await show(f"/runs/run/workers?environment={environment}")
    await expect(page.locator("main [data-state=error]")).to_contain_text(said)
    await page.locator("button.worker").click()
    await expect(page.locator("main [data-state=error]")).to_have_count(0)
    await expect(page.get_by_role("region", name="Members")).to_contain_text("math")


async def test_a_view_that_does_not_exist_is_named(client: httpx.AsyncClient, show: Open, watch: Watch) -> None:
    watch.expected.append("404")
    await make_run(client)
    page = await show("/runs/run/unknown")
    await expect(page.locator("main")).to_have_text("There is no view unknown.")
    await page.get_by_role("link", name="Workers").click()
    await expect(page.get_by_role("heading", name="Environments")).to_be_visible()


async def test_now_follows_the_run(client: httpx.AsyncClient, show: Open) -> None:
    await make_run(client, batch_size=4)
    page = await show("/runs/run/now")
    await expect(page.get_by_text("No environment has joined. Start one:")).to_be_visible()
    math = await join(client, "math")
    row = page.locator(f"[data-environment='{math}']")
    await expect(row).to_contain_text("math")
    await submit(client, group("a", environment=math), group("b", environment=math))
    await expect(row.locator(".number").first).to_have_text("4")
    await expect(figure(page, "Groups", "Queued")).to_contain_text(re.compile("^2 "))
    ledger = page.get_by_role("region", name="Token ledger")
    await expect(ledger).to_contain_text(re.compile(r"8 tokens\s+generated =\s+0 trained\s*\+\s+8 queued"))
    await expect(page.get_by_role("heading", level=1)).to_contain_text("Ready")

    batch = await taken(client)
    await expect(page.get_by_role("heading", level=1)).to_contain_text(re.compile(r"Training\s+Step 1\. Next: "))
    leases = page.get_by_role("region", name="Leases")
    await expect(leases.get_by_role("row")).to_have_count(2)
    await expect(leases.get_by_role("cell", name="held")).to_be_visible()
    await expect(ledger).to_contain_text("8 leased")
    table = page.locator(".leases")
    before = await table.bounding_box()
    await end(client, batch)
    await expect(ledger).to_contain_text(re.compile(r"=\s+8 trained\s*\+\s+0 queued"))
    await expect(figure(page, "Progress", "Step")).to_have_text("1")
    await expect(figure(page, "Groups", "Delivered")).to_have_text("2")
    await expect(leases).to_contain_text("No batch is handed out.")
    after = await table.bounding_box()
    assert before is not None
    assert after is not None
    assert abs(before["height"] - after["height"]) < 2, "what is below stays in place"


async def test_now_shows_what_was_dropped_and_what_is_wrong(client: httpx.AsyncClient, show: Open) -> None:
    await make_run(client, batch_size=4, max_staleness=0)
    page = await show("/runs/run/now")
    await expect(page.get_by_text("Nothing was dropped.")).to_be_visible()
    await submit(client, group("a", policy_version=0))
    await client.put("/v1/runs/run/policy-version", json={"policy_version": 1})
    await expect(figure(page, "Dropped", "stale")).to_have_text("1")
    await join(client, "large", group_size=8)
    await expect(page.get_by_role("list", name="Alerts and warnings")).to_contain_text("Warning")


async def test_shares_show_what_was_promised_and_got(client: httpx.AsyncClient, show: Open) -> None:
    await make_run(client, batch_size=4)
    first = await join(client, "first", min_share=0.25)
    second = await join(client, "second", max_share=0.75)
    page = await show("/runs/run/shares")
    row = page.locator(f"[data-environment='{first}']")
    await expect(row).to_contain_text("at least 25 %")
    await expect(page.locator(f"[data-environment='{second}']")).to_contain_text("at most 75 %")
    await expect(row.locator(".tick")).to_be_visible()
    await submit(client, group("a", environment=first), group("b", environment=second))
    await end(client, await taken(client))
    await expect(row.locator(".number")).to_have_text("50 %")


async def test_workers_shows_members_of_the_environment_in_the_address(client: httpx.AsyncClient, show: Open) -> None:
    await make_run(client)
    math = await join(client, "math", member="node7-1")
    await join(client, "math", member="node8-2")
    await join(client, "code")
    page = await show("/runs/run/workers")
    await page.get_by_role("button", name=re.compile("math")).click()
    assert page.url.endswith(f"/runs/run/workers?environment={math}")
    members = page.get_by_role("region", name="Members")
    await expect(members.get_by_role("row")).to_have_count(3)
    beat = {"member": "node7-1", "running_groups": 4, "start_groups": 1, "retries": 12}
    granted = await client.post(f"/v1/runs/run/environments/{math}/heartbeat", json=beat)
    assert granted.json()["granted_groups"] == 1
    row = members.get_by_role("row").filter(has_text="node7-1")
    await expect(row.get_by_role("cell").nth(1)).to_have_text("5")  # running groups
    await expect(row.get_by_role("cell").nth(2)).to_have_text("1")  # permits
    await expect(row.get_by_role("cell").nth(3)).to_have_text("12")  # retries
    other = members.get_by_role("row").filter(has_text="node8-2")
    await expect(other.get_by_role("cell").nth(3)).to_have_text("\u2013")  # unknown
    await page.reload()
    await expect(members.get_by_text("node8-2")).to_be_visible()
    await client.delete(f"/v1/runs/run/environments/{math}", params={"member": "node8-2"})
    await expect(members.get_by_text("node8-2")).to_have_count(0)


async def test_the_audit_trail_is_there_for_operators(client: httpx.AsyncClient, show: Open) -> None:
    page = await show("/audit")
    await expect(page.get_by_text("The trail has no entries here.")).to_be_visible()
    await make_run(client, name="math")
    await make_run(client, name="code")
    await expect(page.get_by_role("cell", name="POST /v1/runs")).to_have_count(2)
    await page.get_by_label("Run").fill("math")
    await page.get_by_role("button", name="Show").click()
    await expect(page.get_by_role("cell", name="POST /v1/runs")).to_have_count(1)
    assert page.url.endswith("/audit?run=math")
    await page.get_by_role("link", name="audit").click()
    await expect(page.get_by_role("cell", name="POST /v1/runs")).to_have_count(2)
    await expect(page.get_by_label("Run")).to_have_value("")


async def test_the_audit_trail_says_how_often_a_request_came(client: httpx.AsyncClient, show: Open) -> None:
    await make_run(client)
    for version in (1, 2, 3):
        await client.put("/v1/runs/run/policy-version", json={"policy_version": version})
    page = await show("/audit")
    row = page.get_by_role("row").filter(has_text="PUT /v1/runs/run/policy-version")
    await expect(row).to_contain_text("3 times, most recently:")
    await expect(row.get_by_role("cell").nth(1)).to_have_text("no token")

    async def answer_without_changes(route: Route) -> None:
        trail = await (await route.fetch()).json()
        await route.fulfill(json={**trail, "entries": [{**one, "changes": []} for one in trail["entries"]]})

    await page.route("**/v1/audit?*", answer_without_changes)
    await expect(row.locator(".request")).to_have_text("PUT /v1/runs/run/policy-version 3 times")


@pytest.mark.parametrize("path", ["/", "/about", "/audit", "/runs/run/now", "/runs/run/shares", "/runs/run/workers"])
async def test_a_lost_connection_is_shown_and_what_was_there_stays(
    client: httpx.AsyncClient, show: Open, watch: Watch, path: str
) -> None:
    await make_run(client)
    watch.expected.append("ERR_INTERNET_DISCONNECTED")
    page = await show(path)
    await expect(page.locator("main [aria-busy]")).to_have_count(0)
    before = await page.locator("main h1").inner_text()
    await page.context.set_offline(True)
    if path == "/about":  # it asks once a minute
        await page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    await expect(page.locator("[data-state=disconnected]")).to_contain_text("The service does not answer")
    assert await page.locator("main h1").inner_text() == before
    await page.context.set_offline(False)
    if path == "/about":
        await page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    await expect(page.locator("[data-state=disconnected]")).to_have_count(0)


async def test_a_run_that_does_not_exist_is_an_error_with_its_code(show: Open, watch: Watch) -> None:
    watch.expected.append("404")
    page = await show("/runs/nothing/now")
    await expect(page.locator("[data-state=error]")).to_contain_text("run_not_found: there is no run nothing.")
    await expect(page.locator("[data-state=error]")).to_contain_text("It may have been deleted")
    await expect(page.get_by_role("navigation", name="Views of the run")).to_have_count(0)
    await expect(page.locator(".live")).to_have_count(0)
    await expect(page.get_by_role("button", name="Try again")).to_be_visible()
    await page.get_by_role("link", name="All runs").click()
    await expect(page.get_by_role("heading", level=1, name="Runs")).to_be_visible()


async def test_a_hidden_page_asks_for_nothing(client: httpx.AsyncClient, show: Open, watch: Watch) -> None:
    await make_run(client)
    page = await show("/runs/run/now")
    await expect(page.get_by_role("heading", level=1)).to_be_visible()
    await expect(page.locator("main [aria-busy]")).to_have_count(0)

    def asked() -> list[str]:
        return [url for url in watch.asked if "/v1/" in url]  # the browser fetches the icon when it has time

    hide = "hidden => { Object.defineProperty(document, 'hidden', {get: () => hidden, configurable: true});"
    hide += " document.dispatchEvent(new Event('visibilitychange')) }"
    await page.clock.install()
    await page.evaluate(hide, True)
    await page.clock.run_for(5_000)  # what was asked before may arrive here late
    before = asked()
    await page.clock.run_for(60_000)
    await join(client, "later")
    assert asked() == before
    await page.evaluate(hide, False)
    await expect(page.locator("[data-environment='0']")).to_contain_text("later")


async def test_two_hundred_environments_are_few_elements(client: httpx.AsyncClient, show: Open) -> None:
    await make_run(client)
    await join_many(client, [f"task-{number:03d}" for number in range(200)])
    page = await show("/runs/run/now")
    rows = page.get_by_role("list", name="Environments").get_by_role("listitem")
    await expect(rows.first).to_have_attribute("aria-setsize", "200")
    assert await rows.count() < 60
    last = page.locator("[data-environment='199']")

    async def scrolled_to_the_end() -> bool:
        await page.mouse.wheel(0, 100_000)  # charts that are drawn later move the end down
        return await last.count() > 0

    await wait_until(scrolled_to_the_end)
    await expect(last).to_contain_text("task-199")
    assert await rows.count() < 60
