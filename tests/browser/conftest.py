"""A real Chromium, headless, without the internet, in front of a real service.

A page fails its test if it logs an error, throws, or asks another host for anything.
"""

import contextlib
import functools
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from email.utils import formatdate
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Page, Request, Route, async_playwright, expect
from redis.asyncio import Redis

from tests.api.access.conftest import Tokens
from tests.api.conftest import Start, starting
from tests.chromium import CHROMIUM
from tests.conftest import emptied
from tests.waiting import wait_until

PATIENCE_MS = 60_000  # until a state is there; a page that works needs a second or two
OFFLINE = "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1"

expect.set_options(timeout=PATIENCE_MS)
Open = Callable[..., Awaitable[Page]]
fixture = functools.partial(pytest_asyncio.fixture, loop_scope="session")  # of the loop that runs the browser


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all tests of this folder: they need a browser, and share the event loop that it belongs to."""
    for item in items:
        if item.path.is_relative_to(__file__.rpartition("/")[0]):
            item.add_marker(pytest.mark.browser)
            if pytest_asyncio.is_async_test(item) and not any(mark.kwargs for mark in item.iter_markers("asyncio")):
                item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


@pytest.fixture(scope="session")
def chromium() -> str:
    """Where Chromium is. Without it these tests fail, because nothing else shows that the page works."""
    if CHROMIUM is None:
        pytest.fail("there is no Chromium on this machine: run `tools/chromium`, or `apt-get install chromium` as root")
    return CHROMIUM


@fixture()
async def client(start: Start) -> httpx.AsyncClient:
    """A client of a service with the usual settings."""
    return await start()


@contextlib.asynccontextmanager
async def launched(chromium: str) -> AsyncIterator[Browser]:
    """Run a browser."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--no-proxy-server", "--disable-gpu", OFFLINE]
        )
        yield browser
        await browser.close()


@fixture(scope="session")
async def browser(chromium: str) -> AsyncIterator[Browser]:
    """The browser of all tests: to start one takes longer than most tests. They share no context of it."""
    async with launched(chromium) as browser:
        yield browser


@fixture()
async def redis_client(redis_url: str) -> AsyncIterator[Redis]:
    """A client of the emptied server, who may do everything."""
    async with emptied(redis_url) as client:
        yield client


@fixture()
async def start(redis_url: str, redis_client: Redis) -> AsyncIterator[Start]:
    """Start a service with settings of the test's own: ``client = await start(relax_after_s=0)``."""
    async with starting(redis_url) as start:
        yield start


@fixture()
async def tokens(redis_url: str, redis_client: Redis) -> AsyncIterator[Tokens]:
    made = Tokens(redis_url)
    yield made
    await made.connection.aclose()


@fixture()
async def operator(client: httpx.AsyncClient, tokens: Tokens) -> str:
    """The token of an operator; without one, the service answers nobody from now on."""
    token = await tokens.make("operator")

    async def is_closed() -> bool:
        return (await client.get("/v1/runs")).status_code == 401

    await wait_until(is_closed)
    return token


async def answer_as_of(page: Page, time_s: float, but: str = "events") -> None:
    """Let answers of the service say that they are of another time. A page corrects its clock by what they say.

    Args:
        page: The page that gets them.
        time_s: The time, seconds since 1970.
        but: Which ends of paths are left alone, as a regular expression.
    """

    async def answer(route: Route) -> None:
        reply = await route.fetch()
        await route.fulfill(response=reply, headers={**reply.headers, "date": formatdate(time_s, usegmt=True)})

    await page.route(re.compile(f"/v1/(?!.*/({but}))"), answer)


class Watch:
    """What a page does that it must not do.

    Attributes:
        expected: Parts of errors that the test provokes.
    """

    def __init__(self, *hosts: str) -> None:
        self.expected: list[str] = []
        self.asked: list[str] = []
        self._hosts = set(hosts)
        self._errors: list[str] = []

    def follow(self, page: Page) -> None:
        page.on("console", self._on_console)
        page.on("pageerror", lambda error: self._errors.append(str(error)))
        page.on("request", self._on_request)

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self._errors.append(f"{message.text} at {message.location['url']}")

    def _on_request(self, request: Request) -> None:
        self.asked.append(request.url)
        if urlsplit(request.url).netloc not in self._hosts:
            self._errors.append(f"it asked {request.url}")

    def allow(self, host: str) -> None:
        """Let pages ask this host, too."""
        self._hosts.add(host)

    def begin(self, *expected: str) -> None:
        """Forget what was there, and expect these errors."""
        self.expected[:] = expected
        self._errors.clear()

    def check(self) -> None:
        wrong = [error for error in self._errors if not any(part in error for part in self.expected)]
        assert wrong == []


@fixture()
async def watch(client: httpx.AsyncClient) -> AsyncIterator[Watch]:
    """Watch the pages that the test opens."""
    watch = Watch(httpx.URL(str(client.base_url)).netloc.decode())
    yield watch
    watch.check()


@fixture()
async def show(browser: Browser, client: httpx.AsyncClient, watch: Watch) -> AsyncIterator[Open]:
    """Open a page of the service: ``page = await show("/runs/run/now", width=360, color_scheme="dark")``."""

    opened: list[BrowserContext] = []

    async def show(path: str, width: int = 1280, height: int = 800, **options: Any) -> Page:
        context = await browser.new_context(
            base_url=str(client.base_url), viewport={"width": width, "height": height}, **options
        )
        opened.append(context)
        context.set_default_timeout(PATIENCE_MS)
        page = await context.new_page()
        watch.follow(page)
        await page.goto(path)
        return page

    yield show
    for context in opened:
        for page in context.pages:  # a handler may hold a request of a page that asks all the time
            await page.unroute_all(behavior="ignoreErrors")
        await context.close()
