"""What open operators' pages cost the service, and how fast they load, in real headless browsers."""

import asyncio
import itertools
import random
import re
import time
import uuid
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any

from playwright.async_api import Browser, Page, Request, async_playwright

from app.api.codec.group_blob import decode_blobs
from app.core.history.resolution import DAY_S, HOUR_S
from app.core.history.series import HistorySpan, Tally
from app.main import build_services
from app.settings import ServiceSettings
from app.store.history.codec import encode_span
from app.store.redis.client import RedisClient
from benchmarks import native
from benchmarks.growth.effort import Effort
from benchmarks.growth.environments import TINY, State, prepare
from benchmarks.growth.server import Server, Versions
from benchmarks.load import RequestFailed
from benchmarks.native import RUN
from benchmarks.results import Results, Table
from tests.chromium import CHROMIUM

ENVIRONMENTS = 200
GROUPS_PER_S = 16
BATCH_EVERY_S = 2.0
WINDOW_S = 10.0  # the service writes its history each ten seconds
_CALM = 0.9
RECORDED_S = 24.0
_SENT_AT_ONCE = 1000
HISTORY = {10: (HOUR_S, 1), 60: (DAY_S, 3), 900: (DAY_S, 10), 6 * HOUR_S: (DAY_S, 30)}
"""What each resolution has: how long a time, and how many groups of each environment in a span. A resolution without
spans would be added up from finer ones while a page loads, which a service has done long before."""

# Ten readers, who do not all look at the same.
VIEWS = ("now", "now", "now", "shares", "freshness", "rewards", "groups", "workers", "now?range=1d", "rewards?range=1d")
STREAM = "/events?changes=true"
LOADED = ("now", "now?range=1d", "shares?range=1d", "freshness?range=1d", "rewards?range=1d", "groups")

Asked = list[tuple[float, bytes]]
"""Requests of a page, each with its time by the clock of the process, seconds."""

OPEN = Table(
    "growth_pages",
    f"Open operators' pages of a run with {ENVIRONMENTS} environments",
    "%",
    False,
    (),
    f"Percent of a core, beyond what the service takes without a page. {GROUPS_PER_S} groups a second come in, and a "
    f"batch goes out every {BATCH_EVERY_S:.0f} s. What pages in headless Chromium asked for in {RECORDED_S:.0f} s is "
    f"asked for repeatedly, so that browsers take no core from the service. The pages are: {', '.join(VIEWS)}.",
)
LOAD = Table(
    "growth_page_loads",
    "Load an operators' page",
    "ms",
    False,
    (),
    f"From an empty cache until the view has all of its panels. The run has {ENVIRONMENTS} environments and a day of "
    "history. The browser shares the machine with the service.",
)


async def measure(versions: Versions, effort: Effort, results: Results) -> None:
    """Measure each version on its own: browsers take the machine's cores from the others."""
    with versions.running() as servers:
        for server in servers:
            state = prepare(server, ENVIRONMENTS, ENVIRONMENTS)
            await fill(server, effort.queued_groups)
            put_day(server)
            await server.settled()
            async with chromium() as browser, background([live(state)]):
                for _ in range(effort.rounds_of_sweeps):
                    await measure_loads(server, browser, effort, results)
                asked = await record(server, browser, RECORDED_S)
            for _ in range(effort.rounds_of_sweeps):
                await measure_open(state, asked, effort, results)


async def fill(server: Server, groups: int) -> None:
    """Queue groups through the service's own layers but HTTP, which would take too long."""
    (group,) = decode_blobs(native.blob(native.made_up(TINY)[0], "one"))
    connection = RedisClient(f"unix://{server.folder}/data/redis/redis.sock", 60.0)
    submissions = build_services(ServiceSettings(), connection, "").groups.native
    owners = itertools.cycle(range(ENVIRONMENTS))
    named = (group._replace(given_id=uuid.uuid4().hex, environment=next(owners)) for _ in range(groups))
    while some := list(itertools.islice(named, _SENT_AT_ONCE)):
        await submissions.submit(RUN.rpartition("/")[2], some)
    await connection.aclose()


def put_day(server: Server) -> None:
    """Write a day of history. This knows how it is stored, so it fails for a version that stores it otherwise."""
    (found,) = (key.decode() for key in server.redis.scan_iter("*{bench}:environments", count=10_000))
    prefix = found.removesuffix("environments")
    now_s = server.redis.time()[0]
    for step_s, (long_s, groups) in HISTORY.items():
        texts = [encode_span(made_up_span(number, groups)) for number in range(8)]
        end_s = now_s - now_s % step_s - step_s
        with server.redis.pipeline() as all_at_once:  # the service writes there, too
            all_at_once.delete(f"{prefix}series:{step_s}")
            for number, begin_s in enumerate(range(end_s - long_s + step_s, end_s, step_s)):
                all_at_once.xadd(f"{prefix}series:{step_s}", {"facts": texts[number % 8]}, id=f"{begin_s * 1000}-0")
            all_at_once.execute()


def made_up_span(seed: int, groups: int) -> HistorySpan:
    """Return what happened in a span: so many groups of each environment came in and went out."""
    numbers, tally = random.Random(seed), Tally()
    counts = {"groups": 1, "sequences": 8, "tokens": 4000, "bytes": 30000}
    for name in [f"env{number}" for number in range(1, ENVIRONMENTS)] + ["env"]:
        for _ in range(groups):
            values = {"reward": numbers.random(), "length": numbers.lognormvariate(6, 0.5)}
            late = {"staleness_out": [float(numbers.randrange(4))], "waiting_s": [numbers.expovariate(0.1)]}
            for way, more in (("in", {}), ("out", late)):
                counted = {f"{what}_{way}": count for what, count in counts.items()}
                tally.note(name, counted, {f"{what}_{way}": [value] for what, value in values.items()} | more)
    span = tally.close()
    for name in span.environments:
        own = span.of(name)
        own.measure("queued_groups", 3)
        own.lasts["share_promised"] = 0.002
    span.run.count("batches", 5)
    span.run.measure("queued_sequences", 100)
    return span


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """Run a browser at the lowest priority, so that it takes no time from the service."""
    async with async_playwright() as playwright:
        arguments = ["--no-sandbox", "--no-proxy-server", "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1"]
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield browser
        await browser.close()


async def new_page(browser: Browser) -> Page:
    """Open an empty page in a browser profile of its own."""
    context = await browser.new_context(viewport={"width": 1440, "height": 900}, bypass_csp=True)
    return await context.new_page()


async def load(server: Server, page: Page, view: str) -> None:
    """Load a view, and wait until it has its panels."""
    await page.goto(f"{server.service.url}/runs/bench/{view}")
    await page.wait_for_function(
        "document.querySelector('main h1, main .panel') && !document.querySelector('main [aria-busy]')",
        timeout=60_000,
        polling=20,
    )


async def measure_loads(server: Server, browser: Browser, effort: Effort, results: Results) -> None:
    """Load views, one after the other."""
    table = LOAD.saying(f" The queue has {effort.queued_groups:,} groups.")
    for view in LOADED:
        page = await new_page(browser)
        before, began = server.cpu_s(), time.perf_counter()
        await load(server, page, view)
        passed_ms = (time.perf_counter() - began) * 1000
        api_s, store_s = (after - earlier for after, earlier in zip(server.cpu_s(), before, strict=True))
        await page.context.close()
        server.note(results, table, view, {"A": api_s * 1000, "V": store_s * 1000, "wall": passed_ms})


async def record(server: Server, browser: Browser, seconds: float) -> dict[str, Asked]:
    """Open each view in a real page, and note what it asks for, and when, once it is there."""
    found: dict[str, Asked] = {view: [] for view in VIEWS}
    pages = [await new_page(browser) for _ in found]
    for page, view in zip(pages, found, strict=True):
        await load(server, page, view)
    for page, asked in zip(pages, found.values(), strict=True):

        def note(request: Request, asked: Asked = asked) -> None:
            if STREAM in request.url:
                return
            path = request.url.removeprefix(server.service.url)
            headers = "".join(f"{name}: {value}\r\n" for name, value in request.headers.items())
            text = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept-Encoding: gzip\r\n{headers}\r\n"
            asked.append((time.perf_counter(), text.encode()))

        page.on("request", note)
    await asyncio.sleep(seconds)
    for page in pages:
        await page.context.close()
    return found


def later(request: bytes, by_s: float) -> bytes:
    """Return what a page asks for later: the begin of what it asks for moves on by whole spans."""
    if not (step := re.search(rb"[?&]step_s=(\d+)", request)):
        return request
    later_s = int(by_s) - int(by_s) % int(step[1])
    return re.sub(rb"(?<=[?&]from=)\d+", lambda found: b"%d" % (int(found[0]) + later_s), request)


async def replay(server: Server, asked: Asked, seconds: float) -> None:
    """Ask what a page has asked, again and again, and hold a stream of changes as it does."""
    async with background([follow(server)]):
        await ask_again(server, asked, seconds)


async def follow(server: Server) -> None:
    """Read the stream of changes that a page holds."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.service.port)
    writer.write(f"GET {RUN}{STREAM} HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\n\r\n".encode())
    try:
        while await reader.read(65536):
            pass
    finally:
        writer.close()
    raise RequestFailed("the stream of changes ended")


async def ask_again(server: Server, asked: Asked, seconds: float) -> None:
    """Ask for the same, at the same intervals."""
    caller = await server.dial()
    try:
        for later_s in itertools.count(time.perf_counter() - asked[0][0], seconds):
            for at_s, request in asked:
                await asyncio.sleep(max(0.0, at_s + later_s - time.perf_counter()))
                assert (await caller.call(later(request, later_s))).status == 200
    finally:
        caller.close()


async def measure_open(state: State, asked: dict[str, Asked], effort: Effort, results: Results) -> None:
    """Watch the service without a page, with one and with ten, while the run lives."""
    server = state.server
    async with background([live(state)]):
        await calm(server)
        idle = await percent(server, effort.watched_s)
        for views in (VIEWS[:1], VIEWS):
            async with background([replay(server, asked[view], RECORDED_S) for view in views]):
                api, store = await percent(server, effort.watched_s)
            case = "1 page" if len(views) == 1 else f"{len(views)} pages"
            columns = {"A": api - idle[0], "V": store - idle[1], "both": api + store - sum(idle)}
            server.note(results, OPEN, case, columns)


@asynccontextmanager
async def background(work: Sequence[Coroutine[Any, Any, None]]) -> AsyncIterator[None]:
    """Do something beside what is measured. What fails there fails here."""
    tasks = [asyncio.create_task(one) for one in work]
    try:
        yield
        for task in tasks:
            if task.done():
                task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def live(state: State) -> None:
    """Send groups and take batches at a steady rate."""
    began, sent, taken = time.perf_counter(), 0, 0
    while True:
        passed_s = time.perf_counter() - began
        while sent < passed_s * GROUPS_PER_S:
            await state.send_one()
            sent += 1
        if taken < passed_s // BATCH_EVERY_S:
            await state.take()
            taken += 1
        await asyncio.sleep(0.02)


async def calm(server: Server) -> None:
    """Wait until the service no longer takes less and less: it adds up the history that it was given."""
    before, now = float("inf"), sum(await percent(server, WINDOW_S))
    while now < _CALM * before:
        before, now = now, sum(await percent(server, WINDOW_S))


async def percent(server: Server, seconds: float) -> tuple[float, float]:
    """Return what the API and Valkey take of a core, percent."""
    before, began = server.cpu_s(), time.perf_counter()
    await asyncio.sleep(seconds)
    passed_s = time.perf_counter() - began
    api, store = (100 * (after - then) / passed_s for after, then in zip(server.cpu_s(), before, strict=True))
    return api, store
