"""With tokens, the page asks for one, keeps it in the browser tab, and says which role a view needs."""

import re

import httpx
import pytest
from playwright.async_api import Page, expect

from tests.api.access.conftest import Tokens, bearer
from tests.browser.conftest import Open, Watch, fixture
from tests.scenarios.native_calls import RUN


@fixture(autouse=True)
async def run(client: httpx.AsyncClient, operator: str) -> None:
    """There is a run."""
    made = await client.post("/v1/runs", json={"name": "run", "batch_size": 4}, headers=bearer(operator))
    assert made.status_code == 201


async def enter(page: Page, token: str) -> None:
    form = page.locator("[data-state=token]").first
    await form.get_by_label("Token").fill(token)
    await form.get_by_role("button", name="Use it").click()


async def test_the_page_asks_for_a_token_once(
    client: httpx.AsyncClient, operator: str, tokens: Tokens, show: Open, watch: Watch
) -> None:
    watch.expected.append("401")
    viewer = await tokens.make("viewer", "run")
    page = await show("/")
    await expect(page.locator("[data-state=token]")).to_contain_text("This service needs a token.")
    assert await page.locator("input[name=token]").get_attribute("type") == "password"
    await expect(page.locator("input[name=token]")).to_be_focused()
    await expect(page.locator(".live")).to_have_text("signed out")
    await enter(page, "lachesis_wrong")
    await expect(page.locator("[data-state=token]")).to_contain_text("It refused yours")
    await enter(page, viewer)
    await page.get_by_role("link", name="run", exact=True).click()
    await expect(page.get_by_role("heading", level=1)).to_contain_text("No environment has joined")
    await expect(page.locator(".live")).to_have_text("live")
    await expect(page.get_by_role("link", name="about")).to_be_visible()
    await expect(page.get_by_role("link", name="audit")).to_have_count(0)  # viewers may not read it
    await page.reload()
    await expect(page.get_by_role("heading", level=1)).to_contain_text("No environment has joined")
    await page.goto("/")
    await expect(page.locator(".run")).to_have_count(1)

    stored = await page.evaluate("[JSON.stringify(localStorage), document.cookie, JSON.stringify(sessionStorage)]")
    assert [viewer in one for one in stored] == [False, False, True]
    assert [url for url in watch.asked if viewer in url] == []


@pytest.mark.parametrize("wrong", ["lachesis_abc…", "lachesis_\u200babc", "lachesis abc"])
async def test_a_token_that_no_header_can_hold_is_not_sent(operator: str, show: Open, watch: Watch, wrong: str) -> None:
    watch.expected.append("401")
    page = await show("/runs/run/now")
    await enter(page, wrong)
    field = page.locator("input[name=token]")
    assert await field.evaluate("field => field.validity.patternMismatch")
    assert "only visible ASCII characters" in str(await field.get_attribute("title"))
    assert await page.evaluate("sessionStorage.length") == 0
    await enter(page, f" {operator} ")
    await expect(page.get_by_role("region", name="Progress")).to_be_visible()


async def test_the_bar_says_who_the_reader_is_and_signs_out(
    operator: str, tokens: Tokens, show: Open, watch: Watch
) -> None:
    watch.expected.append("401")
    viewer = await tokens.make("viewer", "run")
    page = await show("/runs/run/now")
    await enter(page, viewer)
    account = page.locator(".account")
    await expect(account).to_have_text(re.compile(r"\S+ \(viewer\)"))
    await page.get_by_role("button", name="sign out").click()
    await expect(page.locator("[data-state=token]")).to_contain_text("This service needs a token.")
    await expect(page.get_by_role("region", name="Progress")).to_have_count(0)
    await expect(account).to_have_count(0)
    await expect(page.get_by_role("button", name="sign out")).to_have_count(0)
    assert await page.evaluate("sessionStorage.length") == 0
    await enter(page, operator)
    await expect(account).to_have_text(re.compile(r"\S+ \(operator\)"))


async def test_a_view_that_the_role_does_not_allow_says_which_role_does(
    operator: str, tokens: Tokens, show: Open, watch: Watch
) -> None:
    watch.expected += ["401", "403"]
    page = await show("/audit")
    await enter(page, await tokens.make("viewer", "run"))
    refusal = page.locator("[data-state=forbidden]")
    await expect(refusal).to_contain_text("role viewer does not allow this request. It needs role operator")
    await refusal.get_by_role("button", name="Use another token").click()
    await enter(page, operator)
    await expect(page.get_by_role("cell", name="POST /v1/runs")).to_be_visible()


async def test_environments_may_not_look_at_runs(operator: str, tokens: Tokens, show: Open, watch: Watch) -> None:
    watch.expected += ["401", "403"]
    page = await show("/runs/run/now")
    await enter(page, await tokens.make("environment", "run"))
    await expect(page.locator("[data-state=forbidden]")).to_contain_text("It needs role trainer, viewer or operator.")


async def test_what_is_shown_goes_when_its_token_ends(
    client: httpx.AsyncClient, operator: str, tokens: Tokens, show: Open, watch: Watch
) -> None:
    watch.expected.append("401")
    viewer = await tokens.make("viewer", "run")
    page = await show("/about")
    await page.clock.install()
    await page.goto("/runs/run/now")
    await enter(page, viewer)
    await expect(page.get_by_role("region", name="Progress")).to_be_visible()
    account = page.locator(".account")
    await expect(account).to_have_count(1)
    revoked = await client.delete(f"/v1/tokens/{viewer.split('_')[2]}", headers=bearer(operator))
    assert revoked.status_code == 204
    await expect(page.locator("[data-state=token]")).to_be_visible()
    await expect(page.get_by_role("region", name="Progress")).to_have_count(0)
    await expect(account).to_have_count(0)

    # The refused token is tried again rarely.
    asked, begun_ms = len(watch.asked), await page.evaluate("Date.now()")
    for _ in range(30):
        await page.clock.run_for(1000)
    passed_ms = await page.evaluate("Date.now()") - begun_ms
    assert len(watch.asked) - asked <= 2 + passed_ms / 10_000
    await enter(page, operator)
    await expect(account).to_have_text(re.compile(r"\S+ \(operator\)"))


async def test_commands_name_the_token_and_do_not_hold_it(operator: str, show: Open, watch: Watch) -> None:
    watch.expected.append("401")
    page = await show("/runs/run/now")
    await enter(page, operator)
    await page.get_by_role("button", name="commands that fetch Groups").click()
    commands = await page.locator(".commands pre").all_inner_texts()
    assert len(commands) == 2
    assert [command for command in commands if "LACHESIS_TOKEN" not in command or operator in command] == []
    assert re.search(rf"http://127\.0\.0\.1:\d+{RUN}/status", commands[0])
