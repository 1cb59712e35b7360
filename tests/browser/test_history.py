"""Charts show the series of the API, and follow the run."""

import asyncio
import re
from itertools import count
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from playwright.async_api import Page, expect

from app.core.history.series import MOST_CHARTED_ENVIRONMENTS, Facts, HistorySpan
from app.store.history.codec import encode_span
from app.store.history.store import HistoryStore
from app.store.redis.client import RedisClient
from app.store.redis.keys import RunKeys
from tests.browser.conftest import Open, Watch, answer_as_of
from tests.scenarios.native_calls import end, group, make_run, submit, taken
from tests.waiting import wait_until


async def train(client: httpx.AsyncClient) -> None:
    """Make a run with an environment, and train on a batch of it."""
    await make_run(client, batch_size=4)
    await client.post("/v1/runs/run/environments", json={"name": "math"})
    await submit(client, *(group(f"g{number}", environment=0, policy_version=0) for number in range(3)))
    await end(client, await taken(client))


async def test_now_shows_what_came_in_and_went_out(client: httpx.AsyncClient, show: Open) -> None:
    await train(client)
    page = await show("/runs/run/now")
    arrived = page.get_by_role("region", name=re.compile("^In tokens in 10 s"))
    await expect(arrived.get_by_role("img")).to_be_visible()
    await expect(arrived.locator(".labels").get_by_text("12", exact=True)).to_be_visible()
    trained = page.get_by_role("region", name=re.compile("^Out tokens in 10 s"))
    await expect(trained.locator(".labels").get_by_text("8", exact=True)).to_be_visible()
    await expect(page.get_by_role("region", name="Queue sequences, mean in 10 s")).to_be_visible()
    await expect(page.get_by_role("region", name=re.compile("^Stalls")).get_by_role("img")).to_have_count(6)


GROW = """async (known) => {
  const page = document.querySelector("script[type=module]").src;
  const { growing } = await import(page.replace("app.js", "lib/series.js"));
  const lengths = (seconds, most) => {
    const { join } = growing(seconds, most);
    const found = [];
    for (let history = known; history !== null && found.length < 6; ) {
      const [from_s, to_s] = [history.to_s - 10, history.to_s + 10];
      history = join(history, { from_s, to_s, step_s: 10, times_s: [from_s, to_s - 10], run: { step: [7, 8] } });
      found.push(history && [history.times_s[0], history.times_s.length, history.run.step.length]);
    }
    return found;
  };
  return [lengths(50, 400), lengths(50, 5)];
}"""
"""Adds a span six times to a history that may have 50 s, and at most 400 spans, and at most 5 of them."""


async def test_charts_of_a_young_run_begin_with_it_and_grow(client: httpx.AsyncClient, show: Open) -> None:
    await train(client)
    page = await show("/runs/run/rewards")
    ends = page.get_by_role("region", name=re.compile("^Rewards generated")).locator(".ends span")
    await expect(ends).to_have_count(2)
    begin, end = (60 * int(one[:2]) + int(one[3:5]) for one in await ends.all_inner_texts())
    assert (end - begin) % 1440 <= 10
    known = {"from_s": 0, "to_s": 30, "step_s": 10, "times_s": [0, 10, 20], "run": {"step": [1, 2, 3]}}
    grown = [[0, 4, 4], [0, 5, 5], [0, 6, 6], [10, 6, 6], [20, 6, 6], [30, 6, 6]]
    assert await page.evaluate(GROW, {**known, "environments": {}}) == [grown, [*grown[:2], None]]


async def test_charts_drop_the_history_of_a_run_that_was_made_again(
    client: httpx.AsyncClient, show: Open, watch: Watch, redis_url: str
) -> None:
    async def make() -> None:
        await make_run(client)
        await client.post("/v1/runs/run/environments", json={"name": "math"})

    await make()
    connection = RedisClient(redis_url, 5.0)
    keys = RunKeys("run")
    old_ms = int((await HistoryStore(connection).now_s() - 600) * 1000)
    facts = encode_span(HistorySpan(Facts({"dropped:stale": 7})))
    # A stream takes no entry below its last one.
    await connection.pipeline([("DEL", keys.series(10)), ("XADD", keys.series(10), f"{old_ms}-0", "facts", facts)])
    await connection.aclose()
    page = await show("/runs/run/freshness")
    dropped = page.get_by_role("region", name=re.compile("^Dropped"))
    await expect(dropped.locator(".labels")).to_contain_text("stale")
    watch.expected.append("ERR_INTERNET_DISCONNECTED")
    await page.context.set_offline(True)  # the page never hears that there was no run
    assert (await client.delete("/v1/runs/run")).status_code == 204
    await make()
    await page.context.set_offline(False)
    await expect(dropped).to_contain_text("Nothing was dropped in this time.")


async def test_charts_stay_while_a_later_range_is_read(client: httpx.AsyncClient, show: Open, watch: Watch) -> None:
    await train(client)
    page = await show("/runs/run/rewards?range=1d")
    labels = page.get_by_role("region", name=re.compile("^Rewards trained on")).locator(".labels")
    await expect(labels).to_contain_text(re.compile("mean 0.5"))
    await expect(page.locator("main [aria-busy]")).to_have_count(0)

    def begins(asked: list[str]) -> dict[str, int]:
        """The begin of each part that is asked for as a whole."""
        whole = (urlsplit(url) for url in asked if "/v1/runs/run/history" in url and "step_s" not in url)
        found = {re.sub(r"from=\d+", "", url.path + url.query): parse_qs(url.query)["from"] for url in whole}
        return {part: int(begin[0]) for part, begin in found.items()}

    first = begins(watch.asked)
    held: list[str] = []
    await page.route("**/v1/runs/run/history**", lambda route: held.append(route.request.url))
    later_s = await page.evaluate("Date.now() / 1000 + 900")
    await answer_as_of(page, later_s, but="events|history")
    await page.clock.set_fixed_time(later_s)
    await wait_until(lambda: all(begins(held).get(part, 0) > begin for part, begin in first.items()))
    assert len(first) == 5
    await page.evaluate("new Promise(requestAnimationFrame)")
    assert await page.locator("main [aria-busy]").count() == 0
    await expect(labels).to_contain_text(re.compile("mean 0.5"))


async def test_an_environment_without_series_is_said_to_have_none(client: httpx.AsyncClient, show: Open) -> None:
    await make_run(client)
    names = (f"e{number}" for number in range(MOST_CHARTED_ENVIRONMENTS + 1))
    await asyncio.gather(*(client.post("/v1/runs/run/environments", json={"name": name}) for name in names))
    await submit(client, group("last", environment=MOST_CHARTED_ENVIRONMENTS))
    page = await show(f"/runs/run/rewards?environment={MOST_CHARTED_ENVIRONMENTS}")
    said = page.get_by_text(f"Only the first {MOST_CHARTED_ENVIRONMENTS} environments have charts of their own.")
    await expect(said).to_be_visible()
    await page.goto(f"/runs/run/freshness?environment={MOST_CHARTED_ENVIRONMENTS}")
    await expect(said).to_be_visible()
    await page.goto("/runs/run/freshness?environment=0&from=1000000&to=1003600")
    await expect(page.get_by_text("Choose a longer time.")).to_be_visible()


async def test_staleness_is_in_whole_versions(client: httpx.AsyncClient, show: Open) -> None:
    await make_run(client, batch_size=2)
    await client.post("/v1/runs/run/environments", json={"name": "math"})
    await submit(client, group("a", environment=0, policy_version=0))
    await client.put("/v1/runs/run/policy-version", json={"policy_version": 8})
    await end(client, await taken(client))
    page = await show("/runs/run/freshness")
    staleness = page.get_by_role("region", name=re.compile("^Staleness at delivery"))
    values = re.compile(r"p90\s*8\s*mean\s*8\s*(latest|\d\d:\d\d:\d\d)")
    await expect(staleness.locator(".labels")).to_have_text(values)
    await expect(staleness.locator(".scale span").first).to_have_text("8")
    await expect(staleness.locator(".ends span").last).to_have_text(re.compile(r"^\d\d:\d\d:\d0, step 1$"))
    await staleness.get_by_role("button", name=re.compile("over time")).focus()
    said = staleness.get_by_role("status")
    for key in ["ArrowRight", *["ArrowLeft"] * 60]:
        await page.keyboard.press(key)
        if re.search(r", 8: 1 group\.$", await said.inner_text()):
            break
    await expect(said).to_have_text(re.compile(r", 8: 1 group\.$"))


async def test_freshness_and_rewards_show_distributions(client: httpx.AsyncClient, show: Open) -> None:
    await train(client)
    page = await show("/runs/run/rewards")
    rewards = page.get_by_role("region", name=re.compile("^Rewards trained on"))
    await expect(rewards.locator(".labels")).to_contain_text(re.compile("mean 0.5"))
    lengths = page.get_by_role("region", name=re.compile("^Bias by length")).locator(".ends span")
    await expect(lengths).to_have_text(["1.5", "", "2.5"])  # one bin has no middle
    await page.get_by_role("button", name="1 d").click()
    await expect(page).to_have_url(re.compile(r"/rewards\?range=1d$"))
    await expect(rewards.locator(".labels")).to_contain_text(re.compile("mean 0.5"))
    await page.goto("/runs/run/freshness")
    staleness = page.get_by_role("region", name=re.compile("^Staleness at delivery"))
    await expect(staleness.locator(".labels")).to_contain_text(re.compile("mean 0"))
    forecast = (await client.get("/v1/runs/run/status")).json()["staleness_forecast"]
    assert forecast["waiting_sequences"] == 2
    await expect(page.get_by_role("region", name=re.compile("^Forecast"))).to_contain_text(forecast["detail"][1:])
    said = page.get_by_text(re.compile("^A group that starts now"))
    await expect(said).to_have_attribute("style", re.compile("min-height"))  # it gets shorter and longer
    await expect(page.get_by_text("Nothing was dropped in this time.")).to_be_visible()


async def test_rewards_are_a_map_whose_bins_open_groups(client: httpx.AsyncClient, show: Open) -> None:
    """Beside it stands how what was trained on differs from what was generated, in the words of the API."""
    await train(client)
    page = await show("/runs/run/rewards")

    async def histograms(value: str) -> Any:
        return (await client.get(f"/v1/runs/run/history/histograms?value={value}&environment=math")).json()

    async def is_written() -> bool:
        return (await histograms("reward"))["shift"] is not None

    await wait_until(is_written)
    for value in ("reward", "length"):
        found = await histograms(value)
        bias = page.get_by_role("region", name=re.compile(f"^Bias by {value}"))
        await expect(bias).to_contain_text(found["shift"])
        await expect(bias.locator(".labels")).to_have_text(re.compile(r"generated\s*3 groups\s*trained on\s*2 groups"))
    ends = page.get_by_role("region", name=re.compile("^Rewards generated")).locator(".ends span")
    await expect(ends.last).to_have_text(re.compile(r"^\d\d:\d\d:\d\d, step \d+$"))
    await expect(ends.first).to_have_text(re.compile(r"^\d\d:\d\d:\d\d$"))  # before the run, it had no step
    await open_bin(page, "Rewards generated")
    await expect(page).to_have_url(re.compile(r"/groups\?environment=0&received_from_s=\d+&received_to_s=\d+$"))
    listed = (await client.get(f"/v1/runs/run/groups?{page.url.partition('?')[2]}")).json()["groups"]
    await expect(page.locator("[data-group]")).to_have_count(len(listed))
    from_s, to_s = map(int, re.findall(r"\d{9,}", page.url))
    assert to_s - from_s == 20, "ten seconds, and what was written down later"
    await page.get_by_label("Maximum mean score").fill("0.25")
    await page.keyboard.press("Enter")
    await expect(page).to_have_url(re.compile(r"[?&]score_max=0\.25\b"))
    await expect(page.get_by_text("their scores at once.")).to_be_visible()
    await page.get_by_label("Received before", exact=True).fill("")
    await page.keyboard.press("Enter")
    await expect(page).not_to_have_url(re.compile("received_to_s"))

    # Those that were trained on are found by the steps of that time.
    await page.goto("/runs/run/rewards")
    await open_bin(page, "Rewards trained on")
    await expect(page).to_have_url(re.compile(r"/groups\?environment=0&(step_min=\d&)?step_max=1$"))
    await expect(page.locator("[data-group]")).to_have_count(2)


async def test_a_span_of_the_timeline_has_the_words_of_the_api_and_opens(client: httpx.AsyncClient, show: Open) -> None:
    await make_run(client, batch_size=4000)
    sent = count()

    async def history() -> Any:
        fields = "run.blocked_s,run.blocked_sentence"
        return (await client.get("/v1/runs/run/history", params={"step_s": 10, "fields": fields})).json()

    async def is_known() -> bool:
        await submit(client, f"g{next(sent)}")  # nobody looks at a run in which nothing happens
        sentences = filter(None, (await history())["run"]["blocked_sentence"])
        return any(re.search(r"^Too few .* for \d+ s", sentence) for sentence in sentences)

    await wait_until(is_known)
    page = await show("/runs/run/now")
    timeline = page.get_by_role("group", name=re.compile("^Stalls over time"))
    lane = timeline.locator("[data-cause=waiting_for_data]")
    await expect(lane.locator("path:not(.open)")).not_to_have_attribute("d", "")
    await timeline.focus()
    await page.keyboard.press("End")
    said: list[str] = []
    while not re.search(
        r"10 s: Too few trainable sequences were queued for \d+ s\. Last reason: a batch needs 4000 seq",
        " ".join(said[-1:]),
    ):
        assert len(said) < 60, said
        await page.evaluate("new Promise(requestAnimationFrame)")  # what the key did is shown then
        said.append(await page.locator(".moment").inner_text())
        await page.keyboard.press("ArrowLeft")
    box = await lane.bounding_box()
    assert box is not None
    middle = box["x"] + box["width"] / 2
    await page.mouse.move(middle, box["y"] + box["height"] / 2)
    chosen = await lane.locator("rect").bounding_box()
    assert chosen is not None
    assert chosen["x"] - 1 <= middle <= chosen["x"] + chosen["width"] + 1, "it shows the span that is read"
    await page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    await expect(page).to_have_url(re.compile(r"/now\?from=\d+&to=\d+$"))
    from_s, to_s = map(int, re.findall(r"\d{9,}", page.url))
    assert to_s - from_s == 10


async def open_bin(page: Page, title: str) -> None:
    """Open the latest bin that has groups with the keyboard."""
    panel = page.get_by_role("region", name=re.compile(f"^{title}"))
    await panel.get_by_role("button", name=re.compile(f"^{title} over time")).focus()
    for key in ["ArrowRight", *["ArrowLeft"] * 60]:
        await page.keyboard.press(key)
        await page.evaluate("() => new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))")
        said = await panel.get_by_role("status").inner_text()
        if re.search(r", 0 to 1: [1-9]\d* groups?\.", said):
            break
    await page.keyboard.press("Enter")


STEPS_AT = """async (steps) => {
  const page = document.querySelector("script[type=module]").src;
  const { stepsAt } = await import(page.replace("app.js", "parts/distributions.js"));
  const times = steps.map((_, place) => 10 * place);
  return [...times, 10 * steps.length].map((time) => {
    const { step_min, step_max } = stepsAt({ times_s: times, run: { step: steps } }, time);
    return [step_min, step_max];
  });
}"""
"""Asks for the steps of each span of a history, and of the one after it, which the history lacks."""


async def test_a_span_without_a_step_of_its_own_opens_the_steps_around_it(
    client: httpx.AsyncClient, show: Open
) -> None:
    await train(client)
    page = await show("/runs/run/rewards")
    spans = await page.evaluate(STEPS_AT, [None, 1, 4, None, 4, None])
    assert spans == [[None, 1], [None, 1], [2, 4], [4, 4], [4, 4], [5, None], [5, None]]


async def test_rewards_say_how_environments_and_times_differ(
    client: httpx.AsyncClient, show: Open, redis_url: str
) -> None:
    """Of many environments, those that differ most are in sight."""
    await make_run(client, batch_size=4)
    for name in ("math", "code"):
        await client.post("/v1/runs/run/environments", json={"name": name})
    await submit(client, *(group(f"g{number}", environment=0, policy_version=0) for number in range(3)))
    await submit(client, group("c0", environment=1, policy_version=0))
    await end(client, await taken(client))

    async def shares(**query: Any) -> Any:
        return (await client.get("/v1/runs/run/history/shares", params=query)).json()

    async def is_written() -> bool:
        return (await shares())["shift"] is not None

    await wait_until(is_written)
    page = await show("/runs/run/rewards")
    bias = page.get_by_role("region", name=re.compile("^Bias by environment"))
    said = '"code" is 25 % of what was generated and 0 % of what was trained on.'
    assert (await shares())["shift"] == said
    await expect(bias.locator("p", has_text=said)).to_be_visible()
    rows = bias.get_by_role("list").get_by_role("listitem")
    await expect(rows).to_have_text([re.compile(r"^code.*25 %.*0 %.*-25 points"), re.compile("^math.*75 %.*100 %")])
    await bias.get_by_role("button", name="tokens").click()
    await expect(page).to_have_url(re.compile(r"/rewards\?count=tokens$"))
    await expect(rows.first).to_contain_text((await shares(count="tokens"))["environments"][0]["shift"])
    await bias.get_by_role("button", name="API").click()
    await expect(bias.get_by_label("curl command")).to_contain_text("/history/shares?most_spans=125&count=tokens")
    await bias.get_by_role("button", name="code").click()
    await expect(page).to_have_url(re.compile(r"[?&]environment=1\b"))
    await expect(bias.get_by_role("button", name="code")).to_have_attribute("aria-pressed", "true")

    await bias.get_by_role("button", name="math").click()
    time = page.get_by_role("region", name=re.compile("^Bias by time"))
    waited = (await client.get("/v1/runs/run/history/histograms?value=waiting&environment=math")).json()["shift"]
    assert waited.startswith("Half of the groups trained on had waited at least")
    await expect(time).to_contain_text(waited)
    await expect(time.get_by_label("Mean reward generated and trained on, of groups: values")).to_contain_text(
        re.compile(r"generated\s*0\.5\s*trained on\s*0\.5")
    )
    await expect(time.get_by_role("img")).to_have_count(4)

    connection = RedisClient(redis_url, 5.0)
    many = {f"left{number:02}": Facts({"groups_in": 4, "sequences_in": 4, "sequences_out": 1}) for number in range(20)}
    assert await HistoryStore(connection).append("run", HistorySpan(environments=many))
    await connection.aclose()
    await page.goto("/runs/run/rewards")
    await expect(rows.first).to_have_attribute("aria-setsize", "8")
    await expect(rows.first).to_contain_text("math")
    await bias.get_by_role("button", name="All 22 environments").click()
    await expect(rows.first).to_have_attribute("aria-setsize", "22")
    assert page.url.endswith("?environments=all")
    await page.reload()
    await expect(rows.first).to_have_attribute("aria-setsize", "22")
    await page.keyboard.press("k")
    await expect(rows.first.get_by_role("button")).to_be_focused()

    await page.goto("/runs/run/rewards?from=1000000&to=1003600")
    await expect(bias).to_contain_text("Nothing was generated or trained on in this time.")


async def test_shares_show_what_environments_got_over_time(client: httpx.AsyncClient, show: Open) -> None:
    await train(client)
    page = await show("/runs/run/shares")
    row = page.get_by_role("list", name="Shares of environments").locator("[data-environment='0']")
    await expect(row.get_by_role("img", name="Share over time").locator("path[data-of=got]")).to_have_attribute(
        "d", re.compile("^M")
    )
    await expect(page.get_by_role("region", name=re.compile("^Batches batches in 10 s"))).to_be_visible()
    words = page.get_by_text("Over time: got (line)")
    await expect(words).to_be_visible()
    await expect(words).not_to_contain_text("owed")
    await expect(page.get_by_role("img", name="Owed over time")).to_have_count(0)
    await page.set_viewport_size({"width": 360, "height": 800})
    await expect(page.locator(".sparkline").first).to_be_hidden()
    await expect(words).to_be_hidden()


@pytest.mark.parametrize(
    ("view", "panels"),
    [
        ("now", "Progress|Groups|Dropped|Leases|Queue by environment"),
        ("replay", "Buffer|Retired|Workers|Age and uses|Chunks"),
    ],
)
async def test_figures_of_now_say_so_beside_charts_of_another_time(
    client: httpx.AsyncClient, show: Open, view: str, panels: str
) -> None:
    await train(client)
    assert (await client.put("/v1/runs/run/replay", json={})).status_code == 200
    page = await show(f"/runs/run/{view}?from=1000000&to=1003600", height=3000)
    said = page.get_by_text("Figures of now. The time that was brushed applies to the charts.")
    await expect(said).to_be_visible()
    await expect(page.locator(".labels .when").first).to_have_text("No data for this time.")
    units = page.get_by_role("region", name=re.compile(f"^({panels})")).locator("header .unit")
    await expect(units).to_have_text([re.compile(r"\bnow$")] * 5)
    await page.get_by_role("button", name="Clear").click()
    await expect(said).to_be_hidden()
    await expect(page.locator("header .unit", has_text=re.compile(r"\bnow$"))).to_have_count(0)


async def test_a_time_that_is_brushed_is_written_as_all_others(client: httpx.AsyncClient, show: Open) -> None:
    """The browser's fields have the form of its own language."""
    await make_run(client)
    page = await show("/runs/run/now?from=1000000&to=1003600", timezone_id="UTC")
    await expect(page.get_by_text("12 Jan 1970, 13:46:40 to 12 Jan 1970, 14:46:40, in UTC.")).to_be_visible()


async def test_a_time_is_typed_part_by_part_while_the_page_is_drawn_again(
    client: httpx.AsyncClient, show: Open
) -> None:
    """Each digit alone makes another date. It counts when the reader is done."""
    await make_run(client)
    begin, end, past, hour = 1_795_860_000, 1_795_863_600, 1_795_973_700, 3600
    page = await show("/about", timezone_id="UTC", locale="en-US")
    await page.clock.install()
    await page.goto(f"/runs/run/now?from={begin}&to={end}")

    to, from_ = (page.get_by_label(name, exact=True) for name in ("To", "From"))
    for field, done, shown in ((to, to.press("Enter"), (begin, past)), (from_, from_.blur(), (past, past + hour))):
        before = page.url
        await field.focus()
        for key in (*"11292026", "ArrowRight", *"053500P"):
            await page.keyboard.press(key)
            await page.clock.run_for(1000)
        assert page.url == before
        await done
        await expect(page).to_have_url(re.compile("/now\\?from={}&to={}$".format(*shown)))
        await expect(field).to_have_value("2026-11-29T17:35")


async def test_a_wrong_environment_in_the_address_is_named(client: httpx.AsyncClient, show: Open) -> None:
    await train(client)
    page = await show("/runs/run/freshness?environment=nope")
    said = page.get_by_text("There is no environment nope. This is math.")
    await expect(said).to_be_visible()
    await page.goto("/runs/run/freshness?environment=math")
    await expect(page.get_by_role("region", name=re.compile("^Staleness at delivery"))).to_be_visible()
    await expect(said).to_have_count(0)


async def test_plots_side_by_side_begin_at_one_height(client: httpx.AsyncClient, show: Open) -> None:
    await make_run(client)
    for number in range(3):
        await client.post("/v1/runs/run/environments", json={"name": f"an-environment-with-a-long-name-{number}"})
        await submit(client, group(f"g{number}", environment=number))
    page = await show("/runs/run/now", width=1440)
    plots = page.locator(".chart .u-over")
    await expect(page.get_by_role("region", name=re.compile("^In ")).locator(".labels li")).to_have_count(4)
    await expect(plots).to_have_count(5)
    tops = [(await one.bounding_box() or {})["y"] for one in (await plots.all())[:3]]
    assert len(set(tops)) == 1


async def test_plots_beside_a_map_follow_their_labels(client: httpx.AsyncClient, show: Open) -> None:
    await train(client)
    page = await show("/runs/run/freshness", width=1440)
    waiting = page.get_by_role("region", name=re.compile("^Waiting"))
    await expect(page.locator(".density canvas")).to_be_visible()
    labels, plot = await waiting.locator(".labels").bounding_box(), await waiting.get_by_role("img").bounding_box()
    assert labels is not None
    assert plot is not None
    assert plot["y"] - (labels["y"] + labels["height"]) < 8


async def test_a_time_that_is_brushed_is_in_the_address_of_all_views(client: httpx.AsyncClient, show: Open) -> None:
    await train(client)
    page = await show("/runs/run/now")
    chart = page.get_by_role("region", name=re.compile("^Queue sequences")).locator(".u-over")
    await expect(chart).to_be_visible()
    await chart.scroll_into_view_if_needed()
    box = await chart.bounding_box()
    assert box is not None
    await page.mouse.move(box["x"] + box["width"] * 0.25, box["y"] + 40)
    await page.mouse.down()
    await page.mouse.move(box["x"] + box["width"] * 0.75, box["y"] + 40, steps=5)
    shown = (await client.get("/v1/runs/run/history")).json()
    await page.mouse.up()
    await expect(page).to_have_url(re.compile(r"/now\?from=\d+&to=\d+$"))
    from_s, to_s = map(int, re.findall(r"\d{9,}", page.url))
    assert to_s - from_s == pytest.approx((shown["to_s"] - shown["from_s"]) / 2, abs=30)

    # The keyboard does the same on the timeline.
    timeline = page.get_by_role("group", name=re.compile("^Stalls over time"))
    await timeline.focus()
    for key in ("End", "Shift+ArrowLeft", "Shift+ArrowLeft"):
        await page.keyboard.press(key)
    await expect(page.locator(".moment")).to_contain_text(re.compile("is known|blocked it|held|queued"))
    await page.keyboard.press("Enter")
    await expect(page).not_to_have_url(re.compile(str(from_s)))
    closer = page.url.partition("?")[2]
    await page.get_by_role("link", name="Freshness").click()
    assert page.url.endswith(f"/freshness?{closer}")
    await page.get_by_role("button", name="Clear").click()
    assert page.url.endswith("/freshness")
