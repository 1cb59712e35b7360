"""What each view shows follows the service without being loaded again."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from itertools import count
from typing import Any

import httpx
import pytest
from playwright.async_api import Request, Route, expect

from app.core.history.resolution import KEPT
from tests.api.replay import calls
from tests.browser.conftest import Open, Watch
from tests.scenarios.native_calls import RUN, end, group, join_many, make_run, submit, taken
from tests.waiting import wait_until

Change = Callable[[httpx.AsyncClient], Awaitable[Any]]

FINEST_S = KEPT[0].step_s


async def register(client: httpx.AsyncClient) -> None:
    reply = await client.post(f"{RUN}/environments", json={"name": "later", "member": "node8-2", "min_share": 0.25})
    assert reply.status_code == 201, reply.text


async def fill(client: httpx.AsyncClient) -> None:
    reply = await client.put(f"{RUN}/replay", json={"max_chunks": 4321})
    assert reply.status_code in (200, 201), reply.text


async def teach(client: httpx.AsyncClient) -> None:
    reply = await client.put(f"{RUN}/curricula/tasks", json={"strategy": "learnability"})
    assert reply.status_code in (200, 201), reply.text


async def begin(client: httpx.AsyncClient) -> None:
    await make_run(client, name="newcomer")


async def train(client: httpx.AsyncClient) -> None:
    await submit(client, "a", "b")
    await taken(client)


@pytest.mark.parametrize(
    ("path", "change", "shown"),
    [
        ("/", begin, "newcomer"),
        ("/", train, "Training"),
        ("/runs/run/now", register, "later"),
        ("/runs/run/now", train, "held"),
        ("/runs/run/now?explain=true", register, "later"),
        ("/runs/run/shares", register, "at least 25 %"),
        ("/runs/run/freshness", register, "later"),
        ("/runs/run/rewards", register, "later"),
        ("/runs/run/batches", train, "held"),
        ("/runs/run/replay", fill, "of 4,321 chunks"),
        ("/runs/run/curriculum", teach, "learnability: 0 of 0 items seen"),
        ("/runs/run/workers", register, "later"),
    ],
)
async def test_a_change_shows_up(
    client: httpx.AsyncClient, show: Open, watch: Watch, path: str, change: Change, shown: str
) -> None:
    watch.expected.append("404")  # of a replay buffer that is not there yet
    await make_run(client)
    page = await show(path)
    await expect(page.locator("main h1")).to_be_visible()
    await expect(page.locator("main [aria-busy]")).to_have_count(0)
    assert shown not in await page.locator("main").inner_text()
    await page.evaluate("window.loaded = true")
    await change(client)
    await expect(page.locator("main")).to_contain_text(shown)
    assert await page.evaluate("window.loaded"), "it was loaded again"


async def send(client: httpx.AsyncClient) -> None:
    await submit(client, *(group(name, environment=0, policy_version=0) for name in "abc"))


async def deliver(client: httpx.AsyncClient) -> None:
    await send(client)
    await end(client, await taken(client))


async def add_items(client: httpx.AsyncClient) -> None:
    reply = await client.post(f"{RUN}/curricula/tasks/items", json={"items": ["x", "y"]})
    assert reply.status_code in (200, 201), reply.text


async def put_in(client: httpx.AsyncClient) -> None:
    await calls.insert(client, range(3))


async def draw(client: httpx.AsyncClient) -> None:
    await calls.insert(client, range(3))
    await calls.end(client, await calls.take(client, num_chunks=1))


async def early_in_a_span() -> None:
    """Wait until a span of the history has some time to go. In the next one, the latest value is 0 again."""
    left_s = FINEST_S - datetime.now(UTC).timestamp() % FINEST_S
    if left_s < 7:
        await asyncio.sleep(left_s)


KNOWN = re.compile(r"[1-9]")  # a number that is not 0
Series = dict[str, Any]


def has(field: str) -> Callable[[Series], bool]:
    return lambda series: any(series[field])


def measured(field: str) -> Callable[[Series], bool]:
    return lambda series: any(value is not None for value in series[field])


def has_items(series: Series) -> bool:
    return "tasks" in series["curricula"] and any(series["curricula"]["tasks"]["unseen"])


def unshared(route: Route) -> dict[str, str]:
    """The headers of a request for an answer of its own."""
    return {name: value for name, value in route.request.headers.items() if name != "cache-control"}


ONE_OF_EACH_CHANGE = [
    ("/runs/run/now", "^In tokens", ".labels", send, has("tokens_in"), KNOWN),
    ("/runs/run/shares", "^Batches batches in", ".labels", deliver, has("batches"), KNOWN),
    ("/runs/run/curriculum", "^Items by mean reward over time", ".labels", add_items, has_items, KNOWN),
    ("/runs/r/replay", "^Age and uses", "", put_in, None, "All 3 were looked at"),
    ("/runs/r/replay", "^Age of samples", ".labels", draw, measured("replay_age_versions"), "age 0"),
]
OTHER_PANELS = [
    ("/runs/run/now", "^Out tokens", ".labels", deliver, has("tokens_out"), KNOWN),
    ("/runs/run/now", "^Queue sequences", ".labels", send, has("queued_sequences"), KNOWN),
    ("/runs/run/now", "^Batches batches in", ".labels", deliver, has("batches"), KNOWN),
    ("/runs/run/freshness", "^Waiting", ".labels", deliver, has("tokens_out"), "median 0"),
    ("/runs/run/freshness", "^Staleness at", ".density", deliver, has("tokens_out"), "strongest colour is 2 groups"),
    ("/runs/run/rewards", "^Lengths generated", ".labels", send, has("tokens_in"), "median 2"),
    ("/runs/run/rewards", "^Bias by length", ".labels", send, has("tokens_in"), "3 groups"),
    ("/runs/run/rewards", "^Bias by environment", "[data-environment]", send, has("tokens_in"), "math"),
]


@pytest.mark.parametrize(
    ("path", "panel", "place", "change", "is_known", "shown"),
    [*ONE_OF_EACH_CHANGE, *(pytest.param(*panel, marks=pytest.mark.at_length) for panel in OTHER_PANELS)],
)
async def test_a_panel_shows_a_change_within_two_seconds_of_its_own_time(
    client: httpx.AsyncClient,
    show: Open,
    path: str,
    panel: str,
    place: str,
    change: Change,
    is_known: Callable[[Series], bool] | None,
    shown: str | re.Pattern[str],
) -> None:
    """The page's clock stands still except for these seconds, however long the service and the browser take."""
    await make_run(client, batch_size=4)
    await client.post(f"{RUN}/environments", json={"name": "math", "member": "one"})
    await teach(client)
    await calls.make_buffer(client)
    page = await show("/")
    asking = set[Request]()

    async def ask(route: Route) -> None:
        """Ask for a new answer: readers that share one are not what this is about."""
        if "/events" not in route.request.url:  # a stream, which does not end
            asking.add(route.request)
        await route.continue_(headers=unshared(route))

    def done(request: Request) -> None:
        asking.discard(request)

    page.on("requestfinished", done)
    page.on("requestfailed", done)

    await page.route("**/v1/**", ask)
    await page.clock.install()
    await page.goto(path)
    await expect(page.locator("main h1")).to_be_visible()
    await expect(page.locator("main [aria-busy]")).to_have_count(0)
    await page.clock.pause_at(await page.evaluate("Date.now() / 1000 + 1"))
    await early_in_a_span()
    await change(client)
    base = path.rpartition("/")[0]

    async def is_there() -> bool:
        series = (await client.get(f"/v1{base}/history")).json()["run"]
        return is_known is None or is_known(series)

    await wait_until(is_there)
    await wait_until(lambda: not asking)  # while one from before the change is awaited, the page asks for no other
    await page.clock.run_for(2000)
    region = page.get_by_role("region", name=re.compile(panel))
    await expect(region.locator(place).first if place else region).to_contain_text(shown)


async def test_an_idle_run_is_asked_for_only_when_it_changes(
    client: httpx.AsyncClient, show: Open, watch: Watch
) -> None:
    """What changes by time alone is asked for each ten seconds. So there are five without a request."""
    await make_run(client)
    page = await show("/runs/run/now")
    await expect(page.locator("main h1")).to_be_visible()
    await page.clock.install()
    await page.goto("/runs/run/now")
    await expect(page.locator("main h1")).to_be_visible()

    async def is_left_alone() -> bool:
        watch.asked.clear()
        await page.clock.run_for(5_000)
        return not any("/v1/runs/run/" in url for url in watch.asked)

    await wait_until(is_left_alone)
    await register(client)
    await expect(page.locator("main")).to_contain_text("later")


async def test_a_history_is_asked_for_when_the_service_has_more_of_it(
    client: httpx.AsyncClient, show: Open, watch: Watch
) -> None:
    """The page's clock stands still until the test moves it, so speed does not matter."""
    await make_run(client)
    await join_many(client, [f"e{number}" for number in range(100)])  # of so many it is not written each second
    page = await show("/")
    may_answer, sent = asyncio.Event(), count()
    asked: list[Route] = []
    said_s: list[int] = []
    revisions: list[str] = []

    async def answer(route: Route) -> None:
        """Give the page an answer that says how long there is no more."""
        asked.append(route)
        await may_answer.wait()
        more_in_s = 0
        while not more_in_s:
            found = await route.fetch(headers=unshared(route))
            more_in_s = (await found.json())["next_in_s"]
        said_s.append(more_in_s)
        await route.fulfill(response=found)

    def note(request: Request) -> None:
        if "/status" in request.url and "revision=" in request.headers.get("cache-control", ""):
            revisions.append(request.url)

    async def hears_of_changes() -> bool:
        await submit(client, f"g{next(sent)}")
        return bool(revisions)

    async def is_asked() -> bool:
        await page.clock.run_for(1_000)
        return len(asked) > len(said_s)

    may_answer.set()
    await page.route("**/history/shares?*", answer)
    page.on("request", note)
    await page.clock.install()
    await page.goto("/runs/run/rewards")
    await expect(page.locator("main [aria-busy]")).to_have_count(0)
    await wait_until(hears_of_changes)
    await page.clock.pause_at(await page.evaluate("Date.now() / 1000 + 1"))
    may_answer.clear()
    await wait_until(is_asked)
    times = len(asked)
    may_answer.set()
    await wait_until(lambda: len(said_s) == times)

    groups = next(sent) + 1
    await submit(client, f"g{groups - 1}")
    ledger = page.get_by_role("region", name="Token ledger")
    await expect(ledger).to_contain_text(re.compile(rf"\b{4 * groups} tokens\s+generated"))
    assert len(asked) == times, "it has changed, and the service has said that the history has not"
    told = len(revisions)
    await page.clock.run_for(1000 * said_s[-1])
    await wait_until(lambda: len(said_s) > times)
    assert len(revisions) == told, "nothing else has made it ask"
    await page.unroute_all(behavior="wait")


async def test_more_pages_of_one_browser_than_it_has_connections_all_follow(
    client: httpx.AsyncClient, show: Open, watch: Watch
) -> None:
    await make_run(client)
    page = await show("/runs/run/workers")
    pages = [page, *[await page.context.new_page() for _ in range(7)]]
    for one in pages[1:]:
        watch.follow(one)
        await one.goto("/runs/run/workers")
    await register(client)
    for one in pages:
        await expect(one.locator("main")).to_contain_text("later")


async def test_a_page_follows_without_a_stream(client: httpx.AsyncClient, show: Open, watch: Watch) -> None:
    watch.expected.append("ERR_FAILED")
    await make_run(client)
    page = await show("/")
    await page.route("**/events?*", lambda route: route.abort())
    await page.goto("/runs/run/workers")
    await expect(page.locator("main h1")).to_be_visible()
    await register(client)
    await expect(page.locator("main")).to_contain_text("later")
