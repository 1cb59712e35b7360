"""Each view says in what state it is: it loads, is empty, has failed, has lost the service, or is not allowed.

Each state is brought about in a live service, and is looked at in both themes and several widths: nothing sticks out
of the page, and titles of columns are whole. The pictures go to the folder that SCREENSHOTS names, of the whole page,
and otherwise to pytest's own. They are for people: no test compares pixels, because fonts differ between machines.

All tests share one page and three services: an open one with runs, a closed one, and one whose Redis has stopped.
CI looks at a few views (`IN_CI`); `make test-browser` looks at all.
"""

import asyncio
import os
import re
import shlex
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import httpx
import pytest
import pytest_asyncio
from playwright.async_api import Page, Route, expect

from app.store.server.embedded import EmbeddedRedis
from tests.api.access.conftest import Tokens, bearer
from tests.api.conftest import running_service
from tests.browser.conftest import PATIENCE_MS, Watch, launched
from tests.scenarios.native_calls import end, group, submit, take, taken
from tests.waiting import wait_until

pytestmark = pytest.mark.asyncio(loop_scope="module")

SCREENSHOTS = "SCREENSHOTS"
# Phones and screens, and windows that are just too wide for the layout of a narrower one.
SIZES = {360: 640, 481: 640, 801: 640, 1440: 700, 3840: 600}
THEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
ALWAYS = ((1440, "light"), (360, "dark"))  # pictures that are taken without the variable, too
OF_A_RUN = ("now", "shares", "freshness", "rewards", "groups", "batches", "replay", "curriculum", "workers")
OF_THE_SERVICE = ("runs", "audit", "tokens", "about")
OPENED = ("group", "batch")  # views of one thing in a view of a run
ALL = OF_THE_SERVICE + OF_A_RUN + OPENED
IN_CI = ("now", "groups", "group", "tokens", 3)  # views, and environments of a run
FULL = "math-7b"  # a healthy run with all that a run can have
LEAST = {**dict.fromkeys(ALL, "viewer"), "group": "viewer with contents, or trainer"}
LEAST |= {"audit": "operator", "tokens": "operator of all runs"}
NO_ENVIRONMENT = "No environment has joined. Start one:"
OPEN = {"environment_ttl_s": 86400}  # no environment falls silent
EMPTY = {
    **dict.fromkeys(("now", "shares", "freshness", "rewards", "workers"), NO_ENVIRONMENT),
    "groups": "The run knows no group. Environments submit them",
    "batches": "No batch was handed out yet. Now says what the next one waits for.",
    "replay": "This run has no replay buffer. Set one up:",
    "curriculum": "This run has no curriculum. Set one up:",
    "runs": "There is no run yet, or none that you may see. A trainer makes one, or:",
    "tokens": "There is no token yet. The first one closes the service",
    "audit": "It gets one when a run, its settings or a token is changed or removed.",
}


def briefly_in_ci(name: str, values: Iterable[Any]) -> pytest.MarkDecorator:
    """Try all values of a parameter, but in CI those of IN_CI."""
    return pytest.mark.parametrize(
        name, [value if value in IN_CI else pytest.param(value, marks=pytest.mark.at_length) for value in values]
    )


@dataclass
class Services:
    """Services in the states that tests need. `closed` has tokens, and `broken` has lost its Redis."""

    open: httpx.AsyncClient
    closed: httpx.AsyncClient
    broken: httpx.AsyncClient
    tokens: Tokens
    batch: str


def path(view: str, run: str = FULL, batch: str = "") -> str:
    """The address of a view."""
    place = {"group": "groups?group=math-0", "batch": f"batches?batch={batch}", "item": "curriculum?item=gsm8k/7"}
    place["members"] = "workers?environment=0"
    if view in OF_THE_SERVICE:
        return "/" if view == "runs" else f"/{view}"
    return f"/runs/{run}/{place.get(view, view)}"


async def done(reply: httpx.Response) -> Any:
    assert reply.is_success, reply.text
    return reply.json() if reply.content else None


async def make_run(client: httpx.AsyncClient, name: str, environments: int = 0, **settings: Any) -> str:
    """Make a run with environments, of which the first has a minimum. Return its path."""
    await done(await client.post("/v1/runs", json={"name": name, "batch_size": 8, **settings}))
    run = f"/v1/runs/{name}"
    join = partial(client.post, f"{run}/environments")
    for number, task in enumerate(("math", "code", "web-agents-with-tools-and-long-names")[:environments]):
        share = 0.25 if task == "math" else None
        await done(await join(json={"name": task, "member": f"node{number}-1", "min_share": share}))
    others = [{"name": f"task-{number:03d}", "member": f"node{number}-1"} for number in range(3, environments)]
    for reply in await asyncio.gather(*(join(json=other) for other in others)):
        await done(reply)
    return run


async def train(client: httpx.AsyncClient, run: str, environments: int) -> str:
    """Give a run groups, batches, a replay buffer and a curriculum. Return the batch that the trainer holds."""
    await done(await client.put(f"{run}/replay", json={"groups": True}))
    await done(await client.put(f"{run}/curricula/gsm8k", json={"strategy": "learnability"}))
    items = [{"key": f"gsm8k/{number}", "category": "sums", "metadata": {"level": number % 5}} for number in range(40)]
    await done(await client.post(f"{run}/curricula/gsm8k/items", json={"items": items}))
    seen = [{"item": f"gsm8k/{number}", "rewards": [number / 30, 1.0]} for number in range(30)]
    await done(await client.post(f"{run}/curricula/gsm8k/observations", json={"observations": seen}))
    answer = {"role": "assistant", "content": "42"}
    said = [[{"role": "user", "content": f"What is {number} + {number}?"}, answer] for number in (1, 2)]
    more: dict[str, Any] = {"policy_version": 0, "item": "gsm8k/7", "messages": said}
    names = [(number, name) for number in range(8) for name in ("math", "code", "web")]
    await submit(
        client,
        *(
            group(f"{name}-{number}", environment=at % min(environments, 3), scores=[0.0, number / 8], **more)
            for at, (number, name) in enumerate(names)
        ),
        run=run,
    )
    for version in (1, 2):
        assert (await end(client, await taken(client, run=run, trainer="trainer-0"), run=run)).is_success
        await done(await client.put(f"{run}/policy-version", json={"policy_version": version}))
    return str((await taken(client, run=run, trainer="trainer-0"))["batch"])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def services(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Services]:
    with EmbeddedRedis.start(tmp_path_factory.mktemp("redis")) as redis:
        other = EmbeddedRedis.start(tmp_path_factory.mktemp("stopped"))
        tokens = Tokens(f"{redis.url}?db=1")
        operator = await tokens.make("operator")
        async with (
            running_service(f"{redis.url}?db=0", **OPEN) as opened,
            running_service(f"{redis.url}?db=1") as closed,
            running_service(other.url, store_patience_s=0.2) as broken,
        ):
            other.stop()
            closed.headers.update(bearer(operator))
            await submit(closed, group("math-0"), run=await make_run(closed, FULL))
            batch = await train(opened, await make_run(opened, FULL, 3), 3)
            yield Services(opened, closed, broken, tokens, batch)
        await tokens.connection.aclose()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(chromium: str, services: Services) -> AsyncIterator[tuple[Page, Watch]]:
    clients = (services.open, services.closed, services.broken)
    watch = Watch(*(httpx.URL(str(client.base_url)).netloc.decode() for client in clients))
    async with launched(chromium) as browser:
        context = await browser.new_context(reduced_motion="reduce")
        context.set_default_timeout(PATIENCE_MS)
        page = await context.new_page()
        watch.follow(page)
        yield page, watch


@pytest.fixture
def page(shared: tuple[Page, Watch]) -> Page:
    return shared[0]


@pytest_asyncio.fixture(loop_scope="module")
async def watch(shared: tuple[Page, Watch]) -> AsyncIterator[Watch]:
    page, watch = shared
    watch.begin("favicon.ico")  # Chromium asks for it beside an answer in JSON
    yield watch
    await page.goto("about:blank")  # what it still asks for belongs to this test
    watch.check()


FITS = """[document.documentElement, ...document.querySelectorAll("[role=columnheader]")]
    .every(one => one.scrollWidth <= one.clientWidth)"""


class Look:
    """Looks at a page in all themes and widths, and keeps pictures."""

    def __init__(self, folder: Path, *, wants_all: bool) -> None:
        self._folder = folder
        self._wants_all = wants_all

    async def __call__(self, page: Page, name: str) -> None:
        await page.evaluate("scrollTo(0, 0)")
        for width, height in SIZES.items():
            await page.set_viewport_size({"width": width, "height": height})
            await wait_until(partial(page.evaluate, FITS))
            for theme in THEMES:
                if self._wants_all or (width, theme) in ALWAYS:
                    await page.emulate_media(color_scheme=theme)
                    place = self._folder / f"{name}-{width}-{theme}.png"
                    await page.screenshot(path=place, full_page=self._wants_all)


@pytest.fixture
def look(tmp_path: Path) -> Look:
    chosen = os.environ.get(SCREENSHOTS)
    return Look(Path(chosen or tmp_path), wants_all=bool(chosen))


async def show(page: Page, client: httpx.AsyncClient, place: str, token: str | None = None) -> None:
    root = str(client.base_url).rstrip("/")
    if token is not None:
        await page.goto(f"{root}/healthz")
        await page.evaluate("token => sessionStorage.setItem('lachesis.token', token)", token)
    await page.goto(f"{root}{place}")


async def filled(page: Page) -> None:
    """Wait until nothing loads any more."""
    await expect(page.locator("main :is(h1, h2)").first).to_be_visible()
    await expect(page.locator("main [aria-busy]")).to_have_count(0)


@briefly_in_ci("view", ALL)
async def test_loading_shows_the_frame_at_once(
    services: Services, page: Page, watch: Watch, look: Look, view: str
) -> None:
    answers = asyncio.Event()

    async def hold(route: Route) -> None:
        await answers.wait()
        await route.continue_()

    held = re.compile(r"/v1/|/version$")
    await page.route(held, hold)
    await show(page, services.open, path(view, batch=services.batch))
    await expect(page.locator("main [aria-busy]").first).to_have_text("Loading…")
    await expect(page.get_by_role("link", name="Lachesis")).to_be_visible()
    await expect(page.locator("nav.tabs")).to_have_count(0 if view in OF_THE_SERVICE else 1)
    await look(page, f"loading-{view}")
    answers.set()
    await filled(page)
    await page.unroute(held)


async def send(command: str, client: httpx.AsyncClient) -> None:
    """Do what a command of the page does."""
    if " python " in command:
        said = dict(part.split("=", 1) for part in command.split() if "=" in part)
        assert said["LACHESIS_URL"] == str(client.base_url).rstrip("/")
        body = {"name": "math", "member": "one"}
        await done(await client.post(f"/v1/runs/{said['LACHESIS_RUN']}/environments", json=body))
        return
    program, *words = shlex.split(command)
    assert program == "curl"
    method = words[words.index("-X") + 1] if "-X" in words else "POST"
    content = words[words.index("-d") + 1]
    await done(await client.request(method, words[-1], content=content, headers={"Content-Type": "application/json"}))


@briefly_in_ci("view", EMPTY)
async def test_empty_says_what_changes_it(services: Services, page: Page, watch: Watch, look: Look, view: str) -> None:
    watch.expected.append("404")  # there is no replay buffer
    run = f"empty-{view}"
    if view == "runs":
        await show(page, services.closed, "/", await services.tokens.make("viewer", "others-*"))
    else:
        await make_run(services.open, run)
        await show(page, services.open, path(view, run) + ("?run=nothing" if view == "audit" else ""))
    state = page.locator("[data-state=empty]")
    await expect(state).to_contain_text(EMPTY[view])
    await look(page, f"empty-{view}")
    command = state.get_by_label("Command")
    if view == "tokens":
        await expect(command).to_have_text("python -m app token create --role operator")
    elif view == "runs":
        await expect(command).to_contain_text('curl -s -H "Authorization: Bearer $LACHESIS_TOKEN"')
    elif await command.count() > 0:
        await send(await command.inner_text(), services.open)
        await page.reload()
        await filled(page)
        await expect(page.get_by_text(EMPTY[view])).to_have_count(0)
    else:
        assert view in ("audit", "batches"), "it has no command"


@briefly_in_ci("view", [view for view in (*ALL, "item") if view not in ("about", "batch")])  # these show no errors
async def test_an_error_has_its_sentence_its_code_and_a_retry(
    services: Services, page: Page, watch: Watch, look: Look, view: str
) -> None:
    if view in OF_THE_SERVICE:
        watch.expected.append("503")
        await show(page, services.broken, path(view))
        words = r"^store_unavailable: Redis did not answer within .+"
    else:
        watch.expected.append("404")
        thing = {"group": "group", "item": "item"}.get(view, "run")
        run = "nothing" if thing == "run" else FULL
        place = path(view, run).replace("math-0", "nothing").replace("gsm8k/7", "nothing")
        await show(page, services.open, place)
        words = rf"^{thing}_not_found: .*nothing.*"
    state = page.locator("[data-state=error]").last
    await expect(state.locator("p").first).to_have_text(re.compile(words))
    await expect(state.locator("p").last).to_have_text(re.compile(r"\w{3,}.*\.$"))  # the remedy
    await look(page, f"error-{view}")
    await state.get_by_role("button", name="Try again").click()
    await expect(state.locator("p").first).to_have_text(re.compile(words))


WHAT_STAYS = """[...document.querySelectorAll("main :is(h1, h2, h3, dt, canvas, svg, table, .rows)")]
    .map(one => one.tagName).join(" ")"""


@briefly_in_ci("view", ALL)
async def test_what_was_there_stays_while_the_service_is_lost_and_its_age_is_shown(
    services: Services, page: Page, watch: Watch, look: Look, view: str
) -> None:
    watch.expected.append("ERR_INTERNET_DISCONNECTED")
    await show(page, services.open, path(view, batch=services.batch))
    await filled(page)
    bar = page.locator("[data-state=disconnected]")
    await expect(bar).to_have_count(0)
    before = await page.evaluate(WHAT_STAYS)
    assert before
    await page.context.set_offline(True)
    try:
        await expect(bar).to_have_text(
            re.compile(r"The service does not answer\. The page keeps trying\. What you see is \d+ s old\.\s*Try now")
        )
        await expect(page.locator(".live")).to_have_text("lost")
        assert await page.evaluate(WHAT_STAYS) == before
        await look(page, f"disconnected-{view}")
        await expect(page.locator("[data-state=error]")).to_have_count(0)
    finally:
        await page.context.set_offline(False)
    await bar.get_by_role("button", name="Try now").or_(page.locator(".live[data-kind=good]")).first.click()
    await expect(bar).to_have_count(0)


async def test_a_list_that_could_not_be_read_is_read_when_the_service_is_back(
    services: Services, page: Page, watch: Watch
) -> None:
    watch.expected.append("ERR_INTERNET_DISCONNECTED")
    await show(page, services.open, path("now"))
    await filled(page)
    await page.context.set_offline(True)
    await page.get_by_role("link", name="Groups", exact=True).click()
    await expect(page.locator("main")).to_contain_text("Waiting for the service.")
    await page.context.set_offline(False)
    await expect(page.locator("[data-group]").first).to_be_visible()


async def test_a_service_without_its_redis_is_named_and_what_was_there_stays(
    tmp_path_factory: pytest.TempPathFactory, page: Page, watch: Watch, shared: tuple[Page, Watch], look: Look
) -> None:
    watch.expected.append("503")
    place = tmp_path_factory.mktemp("restarted")
    redis = EmbeddedRedis.start(place)
    try:
        async with running_service(redis.url, store_patience_s=0.2) as client:
            watch.allow(httpx.URL(str(client.base_url)).netloc.decode())
            await make_run(client, FULL, 3)
            await show(page, client, path("now"))
            await filled(page)
            redis.stop()
            bar = page.locator("[data-state=disconnected]")
            await expect(bar).to_have_text(re.compile(r"store_unavailable: .+ What you see is \d+ s old\."))
            await expect(page.get_by_role("region", name="Progress")).to_be_visible()
            await look(page, "disconnected-redis")
            redis = EmbeddedRedis.start(place)
            await expect(bar).to_have_count(0)
            await page.goto("about:blank")
    finally:
        redis.stop()


@briefly_in_ci("view", ALL)
async def test_forbidden_names_the_role_that_is_needed(
    services: Services, page: Page, watch: Watch, look: Look, view: str
) -> None:
    watch.expected.append("403")
    role = {"audit": "viewer", "group": "viewer", "tokens": "operator", "about": "metrics"}.get(view, "environment")
    token = await services.tokens.make(role, FULL)
    await show(page, services.closed, path(view), token)
    state = page.locator("[data-state=forbidden]").first
    await expect(state).to_contain_text(re.compile(f"Not allowed.*{role}.*It needs role"))
    await look(page, f"forbidden-{view}")
    watch.expected.append("401")
    await state.get_by_role("button", name="Use another token").click()
    least = "viewer" if view == "group" else LEAST[view]  # without a token, the run is asked for first
    await expect(page.locator("[data-state=token]").first).to_contain_text(f"The role {least} is enough")
    await look(page, f"token-{view}")


@briefly_in_ci("environments", [3, 200])
@pytest.mark.parametrize("is_healthy", [True, False], ids=["healthy", "blocked"])
async def test_runs_fit_on_every_screen(
    services: Services, page: Page, watch: Watch, look: Look, is_healthy: bool, environments: int
) -> None:
    watch.expected.append("404")  # a blocked run has no replay buffer
    name = f"{'healthy' if is_healthy else 'blocked'}-{environments}"
    run = await make_run(services.open, name, environments)
    batch = services.batch
    if is_healthy:
        batch = await train(services.open, run, environments)
    else:
        await submit(services.open, *(group(f"math-{number}", environment=1) for number in range(9)), run=run)
        assert await take(services.open, run=run) is None
    few = (*OF_A_RUN, "members", "group", *(("item", "batch") if is_healthy else ()))
    many = ("now", "shares", "freshness", "batches", "workers")
    for view in few if environments == 3 else many:
        await show(page, services.open, path(view, name, batch))
        await filled(page)
        headline = page.get_by_role("heading", level=1)
        # On a slow machine, the trainer has held its batch for many of its intervals of milliseconds.
        await expect(headline).to_contain_text(re.compile("Training|Overdue" if is_healthy else "math needs"))
        await look(page, f"{name}-{view}")
