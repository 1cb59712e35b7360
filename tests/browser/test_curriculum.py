"""The tab of curricula shows how items are solved, finds items, and tries other settings."""

import json
import re

import httpx
from playwright.async_api import expect

from tests.api.access.conftest import Tokens, bearer
from tests.browser.conftest import Open, Watch
from tests.scenarios.native_calls import RUN, make_run

CURRICULUM = f"{RUN}/curricula/gsm8k"
PAGE = "/runs/run/curriculum"
HOSTILE = "<img src=x onerror=alert(1)>\u202e\x1b[31m"


async def fill(client: httpx.AsyncClient) -> None:
    """Make a curriculum with a hundred items, of which some were observed."""
    assert (await client.put(CURRICULUM, json={"strategy": "learnability"})).status_code == 200
    items = [{"key": f"math/{n:02}", "category": "math", "metadata": {"n": n}} for n in range(99)]
    await client.post(f"{CURRICULUM}/items", json={"items": [*items, {"key": HOSTILE, "metadata": {HOSTILE: HOSTILE}}]})
    seen = [{"item": f"math/{n:02}", "rewards": [n / 40, 1.0]} for n in range(40)]
    await client.post(f"{CURRICULUM}/observations", json={"observations": seen})


async def test_curriculum_shows_items_now_and_over_time(client: httpx.AsyncClient, show: Open) -> None:
    await make_run(client)
    await client.post(f"{RUN}/environments", json={"name": "math", "member": "one"})  # a run without members sleeps
    page = await show(PAGE, height=2400)
    await expect(page.locator("[data-state=empty]")).to_contain_text("This run has no curriculum. Set one up:")
    await fill(client)
    await expect(page.get_by_text("learnability: 40 of 100 items seen, 0 in flight.")).to_be_visible()
    now = page.get_by_role("region", name=re.compile("^Items by mean reward now"))
    await expect(now.locator(".bins .number")).to_have_text(["8", "8", "8", "8", "8", *["0"] * 5, "60"])
    later = [{"item": "math/99", "rewards": [0.0]}]
    await client.post(f"{CURRICULUM}/observations", json={"observations": later})
    await expect(now.locator(".bins .number")).to_have_text(["8", "8", "8", "8", "8", *["0"] * 4, "1", "60"])
    over_time = page.get_by_role("region", name=re.compile("^Items by mean reward over time"))
    canvas = over_time.locator(".heat canvas")
    await expect(canvas).to_be_visible()
    box = await canvas.bounding_box()
    assert box is not None
    await canvas.hover(position={"x": box["width"] - 1, "y": 9})
    await expect(over_time.locator(".heat-said")).to_contain_text(re.compile("0.9 and above: (8 items|not known)"))


async def test_items_are_sorted_searched_and_opened(client: httpx.AsyncClient, show: Open) -> None:
    await make_run(client)
    await fill(client)
    page = await show(f"{PAGE}?sort=signal", height=2400)
    rows = page.locator("[data-item]")
    await expect(page.get_by_text("40 items on this page.")).to_be_visible()
    await expect(rows.first).to_contain_text("math/39")
    await page.get_by_label("largest first").check()
    await expect(rows.first).to_contain_text("math/00")
    await page.get_by_label("Key contains").fill("h/1")
    await page.keyboard.press("Enter")
    await expect(page.get_by_text("10 items on this page.")).to_be_visible()
    assert re.search(r"search=h%2F1", page.url)
    await page.get_by_role("link", name="math/17").click()
    item = page.get_by_role("region", name="Item", exact=True)
    await expect(item).to_contain_text(re.compile(r"Mean reward\s*0.713"))
    await page.reload()
    await expect(item.get_by_role("link", name="its groups")).to_have_attribute(
        "href", re.compile(r"/runs/run/groups\?item=math%2F17$")
    )
    await page.keyboard.press("Escape")
    await expect(item).to_have_count(0)
    await page.get_by_label("Key contains").fill("<img")
    await page.keyboard.press("Enter")
    await expect(rows).to_have_count(1)
    await rows.get_by_role("link").click()
    await expect(item.get_by_label("Metadata")).to_contain_text("<img src=x onerror=alert(1)>")
    assert await page.locator("img[src]").count() == 0


async def test_the_reader_goes_back_from_an_item_to_its_place_in_the_list(
    client: httpx.AsyncClient, show: Open
) -> None:
    await make_run(client)
    await fill(client)
    page = await show(f"{PAGE}?search=h%2F1")
    link = page.locator("[data-item='math/17']").get_by_role("link")
    await page.get_by_text("10 items on this page.").scroll_into_view_if_needed()
    await link.focus()
    await page.keyboard.press("Enter")
    item = page.get_by_role("region", name="Item", exact=True)
    await expect(item).to_contain_text(re.compile(r"Mean reward\s*0.713"))
    await expect(item).to_be_in_viewport()
    await page.go_back()
    await expect(page.get_by_text("10 items on this page.")).to_be_visible()
    await expect(link).to_be_focused()
    await expect(link).to_be_in_viewport()


async def test_an_item_that_has_no_address_is_an_error_of_the_service(
    client: httpx.AsyncClient, show: Open, watch: Watch
) -> None:
    """Browsers remove its key from the path. An earlier build may have stored it."""
    watch.expected.append("404")
    await make_run(client)
    await client.put(CURRICULUM, json={})
    await client.post(f"{CURRICULUM}/items", json={"items": ["two dots"]})
    state = (await client.get(f"{CURRICULUM}/state")).text.replace('"two dots"', '".."')
    await client.put(f"{CURRICULUM}/state", content=state, headers={"Content-Type": "application/jsonl"})
    page = await show(PAGE, height=2400)
    await page.get_by_role("link", name="..", exact=True).click()
    item = page.get_by_role("region", name="Item", exact=True)
    await expect(item.locator("[data-state=error]")).to_contain_text("not_found")
    await page.keyboard.press("Escape")
    await expect(page.locator("[data-item]")).to_have_count(1)


async def test_other_settings_are_tried_and_not_kept(client: httpx.AsyncClient, show: Open, watch: Watch) -> None:
    watch.expected.append("422")
    await make_run(client)
    await fill(client)
    page = await show(PAGE, height=2400)
    tried = page.get_by_role("region", name=re.compile("^What if"))
    await expect(tried).to_contain_text(
        re.compile(r"learnability\s+with these settings instead of the present ones would move\s+0 % of the draws")
    )
    await tried.get_by_label("Strategy").select_option("plr")
    await expect(tried).to_contain_text(re.compile(r"plr\s+instead of learnability"))
    slider = tried.get_by_role("slider", name=re.compile("Share of unseen items"))
    await slider.press("End")
    await expect(page).to_have_url(re.compile("strategy=plr&unseen_share=1$"))
    await expect(tried.locator(".bins .number")).to_have_text(["0 %", "0 %", "100 %", "0 %", "0 %"])
    await tried.get_by_role("button", name="commands that fetch What if").click()
    command = await tried.get_by_label("curl command").inner_text()
    (body,) = re.findall(r"-d '([^']+)'", command)
    assert json.loads(body) == {"strategy": "plr", "n": 16, "unseen_share": 1}
    await tried.get_by_label("Strategy").select_option("easy_first")
    await expect(tried.locator("[data-state=error]")).to_contain_text("total_steps")
    assert (await client.get(CURRICULUM)).json()["settings"]["strategy"] == "learnability"


async def test_a_name_that_every_object_has_is_a_name_like_others(
    client: httpx.AsyncClient, show: Open, watch: Watch
) -> None:
    watch.expected.append("422")  # there is no such order
    await make_run(client)
    await client.post(f"{RUN}/environments", json={"name": "math", "member": "one"})  # a run without members sleeps
    assert (await client.put(f"{RUN}/curricula/constructor", json={})).status_code == 200
    page = await show(f"{PAGE}?range=constructor&strategy=constructor&sort=constructor", height=2400)
    await expect(page.get_by_label("Sort by")).to_have_value("mean_reward")
    await expect(page.get_by_label("Strategy")).to_have_value("uniform")
    await expect(page.get_by_role("region", name=re.compile("^Items by mean reward over time"))).to_be_visible()
    await expect(page.locator("main")).not_to_contain_text("This view failed")


async def test_a_wrong_curriculum_in_the_address_is_named(client: httpx.AsyncClient, show: Open) -> None:
    await make_run(client)
    await fill(client)
    page = await show(f"{PAGE}?curriculum=nope")
    said = page.get_by_text("There is no curriculum nope. This is gsm8k.")
    await expect(said).to_be_visible()
    await page.goto(f"{PAGE}?curriculum=gsm8k")
    await expect(page.get_by_text("40 of 100 items seen")).to_be_visible()
    await expect(said).to_have_count(0)


async def test_viewers_may_read_and_try(
    operator: str, tokens: Tokens, client: httpx.AsyncClient, show: Open, watch: Watch
) -> None:
    watch.expected.append("401")
    client.headers.update(bearer(operator))
    await make_run(client)
    await fill(client)
    viewer = await tokens.make("viewer", "run")
    page = await show("/about", height=2400)
    await page.evaluate("token => sessionStorage.setItem('lachesis.token', token)", viewer)
    await page.goto(PAGE)
    await expect(page.get_by_role("region", name=re.compile("^What if"))).to_contain_text("instead of the present ones")
    await expect(page.locator("[data-item]").first).to_be_visible()
