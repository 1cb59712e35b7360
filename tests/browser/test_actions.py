"""Operators act on the page: it says what will happen, does it, and shows the answer. Others see no actions."""

import re
from typing import Any

import httpx
import pytest
from playwright.async_api import Locator, Page, Route, expect

from tests.api.access.conftest import Tokens, bearer
from tests.api.atropos_calls import register, register_env
from tests.browser.conftest import Open, Watch
from tests.browser.test_access import enter
from tests.browser.test_accessibility import findings
from tests.scenarios.native_calls import RUN, group, join, make_run, status, submit, take, taken
from tests.waiting import wait_until


async def opened(page: Page, label: str) -> Locator:
    """Open the dialog of an action."""
    await page.get_by_role("button", name=label, exact=True).click()
    dialog = page.get_by_role("dialog")
    await expect(dialog).to_be_visible()
    return dialog


async def confirm(page: Page, label: str, done: str | re.Pattern[str]) -> None:
    """Confirm the dialog, read what was done, and close it."""
    dialog = page.get_by_role("dialog")
    await dialog.get_by_role("button", name=label, exact=True).click()
    await expect(dialog.get_by_role("status").first).to_contain_text(done)
    await dialog.get_by_role("button", name="Close").click()
    await expect(dialog).to_have_count(0)


async def test_a_dialog_opens_again_while_it_is_closing(client: httpx.AsyncClient, show: Open) -> None:
    """The browser reports the end of a dialog after it has closed it, and may be late."""
    await make_run(client)
    page = await show("/runs/run/now")
    dialog = await opened(page, "Pause serving")
    button = page.locator("button", has_text="Pause serving").first
    await button.evaluate("button => { document.querySelector('dialog').close(); button.click(); }")
    await expect(dialog.get_by_role("button", name="Cancel")).to_be_focused()
    await page.keyboard.press("Escape")
    await expect(page.locator("dialog")).to_have_count(0)


async def test_a_run_is_paused_limited_and_resumed_with_the_keyboard_alone(
    client: httpx.AsyncClient, show: Open
) -> None:
    await make_run(client, batch_size=2)
    await submit(client, "a", "b")
    page = await show("/runs/run/now")
    dialog = await opened(page, "Pause serving")
    await expect(dialog).to_contain_text("The run hands out no more batches, and trainers wait.")
    await expect(dialog.locator("pre")).to_contain_text(
        re.compile(r"""curl -s -X PATCH -H 'Content-Type: application/json' -d '{"serving_paused":true}' 'http://""")
    )
    assert await findings(page) == []
    await page.keyboard.press("Escape")
    await expect(dialog).to_have_count(0)
    assert not (await status(client))["serving_paused"], "a dialog that is closed does nothing"

    button = page.get_by_role("button", name="Pause serving")
    await expect(button).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(dialog.get_by_role("button", name="Cancel")).to_be_focused()
    await page.keyboard.press("Tab")
    await page.keyboard.press("Enter")
    await expect(dialog.get_by_role("status")).to_have_text("Serving is paused.")
    await expect(dialog.get_by_role("button", name="Close")).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", level=1)).to_contain_text("an operator has paused serving")
    assert await take(client) is None

    await opened(page, "Pause intake")
    await confirm(page, "Pause intake", "Intake is paused.")
    await expect(page.get_by_text("an operator has paused intake")).to_be_visible()
    assert (await client.post(f"{RUN}/groups", json=group("c"))).status_code == 429
    for what in ("intake", "serving"):
        await opened(page, f"Resume {what}")
        await confirm(page, f"Resume {what}", "goes on.")
    await taken(client)

    dialog = await opened(page, "Change limits")
    await expect(dialog.get_by_role("button", name="Change limits")).to_be_disabled()
    await dialog.get_by_label("Groups in the queue").fill("7")
    await expect(dialog.locator("pre")).to_contain_text('{"max_queued_groups":7}')
    await confirm(page, "Change limits", "The limits are changed.")
    assert (await client.get(RUN)).json()["max_queued_groups"] == 7
    await page.get_by_role("link", name="audit").click()
    row = page.get_by_role("row").filter(has_text='run changed: {"serving_paused":true}')
    await expect(row).to_contain_text("PATCH /v1/runs/run")


async def test_shares_environments_groups_and_quarantined_batches(client: httpx.AsyncClient, show: Open) -> None:
    await make_run(client, batch_size=2, max_deliveries=1)
    math, code = await join(client, "math", member="m1"), await join(client, "code", member="c1")
    await submit(client, group("x", environment=math), group("y", environment=code))
    for _ in range(2):
        await taken(client, lease_s=0.01)

    async def are_quarantined() -> bool:
        return [one["state"] for one in (await status(client))["leases"]] == ["quarantined"] * 2

    await wait_until(are_quarantined)
    page = await show("/", width=1440)
    await expect(page.locator("[data-run=run] .sentence")).to_contain_text("2 batches quarantined.")
    await page.goto("/runs/run/now")
    buttons = page.get_by_role("button", name=re.compile("(Release|Drop) batch of step 1"))
    await expect(buttons).to_have_count(2)
    tops = await buttons.evaluate_all("found => found.map((one) => one.getBoundingClientRect().top)")
    assert tops[0] == tops[1], "they are beside each other"
    assert await page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    await opened(page, "Release batch of step 1")
    await confirm(page, "Release", "The groups are queued again.")
    await opened(page, "Drop batch of step 2")
    await confirm(page, "Drop", "The batch is dropped")
    await expect(page.get_by_role("region", name="Leases")).to_contain_text("No batch is handed out.")
    assert (await status(client))["dropped"] == {"quarantined": 1}

    await page.goto("/runs/run/shares")
    dialog = await opened(page, "Change shares of math")
    await dialog.get_by_label("Minimum share").fill("0.25")
    await dialog.get_by_label("Weight").fill("0.0004")
    await confirm(page, "Change", "math now gets at least 25 %, no maximum, weight 0.0004.")
    await expect(page.locator(f"[data-environment='{math}']")).to_contain_text("at least 25 %")

    await page.goto(f"/runs/run/workers?environment={code}")
    dialog = await opened(page, "Disconnect")
    await expect(dialog).to_contain_text("1 member of it will leave")
    await confirm(page, "Disconnect", "code has left.")
    await expect(page.locator(f"[data-environment='{code}'] .kind")).to_have_text("left")

    await submit(client, *(group(f"g{n}", environment=code) for n in range(3)))
    await page.goto("/runs/run/groups?environment=code")
    dialog = await opened(page, "Delete groups")
    await dialog.get_by_role("button", name="Count them").click()
    await expect(dialog).to_contain_text("3 waiting groups would be deleted.")
    assert (await status(client))["groups"]["queued"] == 4
    await dialog.get_by_label("Environment").select_option("")
    await dialog.get_by_label("Sequences in a group").fill("2")
    await dialog.get_by_role("button", name="Count them").click()
    await expect(dialog).to_contain_text("4 waiting groups would be deleted.")
    await confirm(page, "Delete groups", "4 groups deleted.")
    assert (await status(client))["groups"]["queued"] == 0

    await submit(client, *(group(f"h{n}", environment=code, scores=[n, n], item="x") for n in range(3)))
    await page.goto("/runs/run/groups?environment=code&score_min=1&item=x&step_max=7")
    dialog = await opened(page, "Delete groups")
    await expect(dialog).to_contain_text("No group that waits can match this: Last step: 7.")
    await expect(dialog.get_by_role("button", name="Count them")).to_be_disabled()
    assert await findings(page) == []
    await page.goto("/runs/run/groups?environment=code&score_min=1&item=x")
    dialog = await opened(page, "Delete groups")
    await expect(dialog).to_contain_text("Groups in batches stay.")
    await expect(dialog).to_contain_text("Filters of the list: Item: x; Minimum mean score: 1.")
    await dialog.get_by_role("button", name="Count them").click()
    await expect(dialog).to_contain_text("2 waiting groups would be deleted.")
    assert await findings(page) == []
    await confirm(page, "Delete groups", "2 groups deleted.")
    assert (await status(client))["groups"]["queued"] == 1
    trail = (await client.get("/v1/audit")).json()["entries"]
    assert any("score_min=1" in entry["path"] for entry in trail), "the audit trail has the filters"
    assert {"DELETE", "POST", "PATCH"} <= {entry["method"] for entry in trail}


async def test_shares_of_an_atropos_environment_with_a_negative_weight_are_changed(
    client: httpx.AsyncClient, show: Open
) -> None:
    """Atropos environments ask with weight -1 to be left out of weighting. An unchanged weight is not sent."""
    await register(client)
    name = (await register_env(client, "math", weight=-1.0))["wandb_name"]
    page = await show("/runs/default/shares")
    dialog = await opened(page, f"Change shares of {name}")
    await dialog.get_by_label("Minimum share").fill("0.25")
    await confirm(page, "Change", f"{name} now gets at least 25 %, no maximum, weight -1.")


async def test_a_refusal_is_shown_and_an_answer_that_is_lost_is_not_repeated(
    client: httpx.AsyncClient, show: Open, watch: Watch
) -> None:
    watch.expected += ["422", "ERR_FAILED"]
    await make_run(client)
    page = await show("/runs/run/now")
    dialog = await opened(page, "Change limits")
    await page.evaluate("document.querySelector('dialog form').noValidate = true")
    await dialog.get_by_label("Groups in the queue").fill("0")
    await dialog.get_by_role("button", name="Change limits").click()
    await expect(dialog.get_by_role("alert")).to_contain_text("invalid_field: max_queued_groups")
    sent: list[str] = []
    await page.route(re.compile("/v1/runs/run$"), lambda route: _lose(route, sent))
    await dialog.get_by_label("Groups in the queue").fill("5")
    await dialog.get_by_role("button", name="Change limits").click()
    await expect(dialog.get_by_role("alert")).to_contain_text("It may have happened or not")
    assert sent == ["PATCH"]


async def test_values_that_change_while_an_action_is_under_way_belong_to_the_next_one(
    client: httpx.AsyncClient, show: Open
) -> None:
    await make_run(client, batch_size=2)
    math, _ = await join(client, "math"), await join(client, "code")
    await submit(client, group("x", environment=math), group("y", environment=math))
    page = await show("/runs/run/groups")
    held: list[Route] = []

    async def hold(route: Route) -> None:
        if route.request.method == "GET":
            await route.continue_()
        else:
            held.append(route)

    async def is_held() -> bool:
        return len(held) == 1

    await page.route("**/v1/**", hold)
    dialog = await opened(page, "Delete groups")
    environment = dialog.get_by_label("Environment")
    await environment.select_option("code")
    await dialog.get_by_role("button", name="Count them").click()
    await wait_until(is_held)
    await environment.select_option("math")
    await expect(dialog.get_by_role("button", name="Count them")).to_be_disabled()
    await held.pop().continue_()
    await expect(dialog.get_by_role("button", name="Count them")).to_be_enabled()
    await expect(dialog).not_to_contain_text("would be deleted")
    await dialog.get_by_role("button", name="Count them").click()
    await wait_until(is_held)
    await held.pop().continue_()
    await expect(dialog).to_contain_text("2 waiting groups would be deleted.")
    await dialog.get_by_role("button", name="Delete groups").click()
    await wait_until(is_held)
    await environment.select_option("code")
    await expect(dialog.get_by_role("button", name="Delete groups")).to_be_disabled()
    await held.pop().continue_()
    await expect(dialog).to_contain_text("2 groups deleted.")


async def _lose(route: Any, sent: list[str]) -> None:
    if route.request.method == "GET":
        await route.continue_()
        return
    sent.append(route.request.method)
    await route.abort()


@pytest.mark.parametrize("role", ["viewer", "trainer"])
async def test_who_may_not_do_it_sees_no_action(
    client: httpx.AsyncClient, operator: str, tokens: Tokens, show: Open, watch: Watch, role: str
) -> None:
    watch.expected.append("401")
    client.headers.update(bearer(operator))
    await make_run(client)
    await join(client, "math", member="m1")
    page = await show("/runs/run/now")
    await enter(page, await tokens.make(role, "run"))
    for view in ("now", "shares", "groups", "workers?environment=0"):
        await page.goto(f"/runs/run/{view}")
        await expect(page.locator("main h1")).to_be_visible()
        await expect(page.locator("button.action")).to_have_count(0)
    await expect(page.get_by_role("link", name="tokens")).to_have_count(0)


async def test_operators_create_rotate_and_revoke_tokens(
    client: httpx.AsyncClient, operator: str, show: Open, watch: Watch
) -> None:
    watch.expected.append("401")
    page = await show("/")
    await enter(page, operator)
    await page.get_by_role("link", name="tokens").click()
    dialog = await opened(page, "Create token")
    await dialog.get_by_label("Name").fill("O'Neill")
    await dialog.get_by_label("Runs").fill("math-*, code")
    await expect(dialog.locator("pre")).to_contain_text("O\\u0027Neill")
    await dialog.get_by_role("button", name="Create token").click()
    await expect(dialog).to_contain_text("The service shows this secret once.")
    secret = await dialog.locator("pre").inner_text()
    assert await findings(page) == []
    await dialog.get_by_role("button", name="Close").click()
    await expect(page.get_by_text(secret)).to_have_count(0)
    who = (await client.get("/v1/identity", headers=bearer(secret))).json()
    assert (who["name"], who["role"], who["runs"]) == ("O'Neill", "viewer", ["math-*", "code"])

    row = page.get_by_role("row").filter(has_text="O'Neill")
    await opened(page, "Rotate token O'Neill")
    await dialog.get_by_label("Present secret stays valid").fill("0")
    await dialog.get_by_role("button", name="Rotate").click()
    await expect(dialog).to_contain_text("The service shows this secret once.")
    newer = await dialog.locator("pre").inner_text()
    assert newer.startswith("lch_")
    assert newer != secret
    await dialog.get_by_role("button", name="Close").click()
    await opened(page, "Revoke token O'Neill")
    await confirm(page, "Revoke", "The token is revoked.")
    await expect(row.locator(".kind")).to_have_text("revoked")
    await expect(row.get_by_role("button")).to_have_count(0)
    assert await findings(page) == []
    stored = await page.evaluate("JSON.stringify(localStorage) + JSON.stringify(sessionStorage)")
    assert [one for one in (secret, newer) if one in stored] == []


async def test_a_foreign_page_changes_nothing(client: httpx.AsyncClient, show: Open, watch: Watch) -> None:
    """It may send what forms can send, with whatever the browser knows. Our own page may send the same."""
    watch.expected += ["403", "CORS", "ERR_FAILED", "favicon.ico"]
    await make_run(client)
    page = await show("/runs/run/now")
    url = f"{client.base_url}"

    def joining(name: str) -> str:
        plain = f"headers: {{'Content-Type': 'text/plain'}}, body: '{{\"name\":\"{name}\"}}'"
        return f"fetch('{url}{RUN}/environments', {{method: 'POST', mode: 'no-cors', {plain}}}).catch(() => 0)"

    await page.evaluate(joining("own"))

    async def joined() -> list[str]:
        return [one["name"] for one in (await client.get(f"{RUN}/environments")).json()["environments"]]

    assert await joined() == ["own"], "the guard lets our own page through"
    await page.goto("about:blank")
    await page.evaluate(joining("foreign"))
    for method, path in (("PATCH", RUN), ("DELETE", RUN), ("DELETE", f"{RUN}/groups?size=2")):
        refused = await page.evaluate(
            f"fetch('{url}{path}', {{method: '{method}'}}).then(() => 'sent', () => 'refused')"
        )
        assert refused == "refused"
    await page.set_content(f"<form method=post action='{url}{RUN}/rewind' enctype=text/plain><input name=a><button>go")
    await page.get_by_role("button", name="go").click()
    await expect(page.locator("body")).to_contain_text("cross_site")
    assert await joined() == ["own"]
    assert (await client.get(RUN)).status_code == 200
