"""A real Chromium, headless, without the internet, in front of a real service.

A page fails its test if it logs an error, throws, or asks another host for anything.
"""

import contextlib
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from anyio.from_thread import start_blocking_portal
from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Page, Request, async_playwright, expect

from tests.api.access.conftest import Tokens, tokens
from tests.api.conftest import Start, start
from tests.ports import free_port
from tests.waiting import wait_until

__all__ = ["start", "tokens"]  # fixtures

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
PATIENCE_MS = 60_000  # until a state is there; a page that works needs a second or two
OFFLINE = "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1"

expect.set_options(timeout=PATIENCE_MS)
Open = Callable[..., Awaitable[Page]]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all tests of this folder: they need a browser."""
    for item in items:
        if item.path.is_relative_to(__file__.rpartition("/")[0]):
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="session")
def chromium() -> str:
    """Where Chromium is. Without it these tests fail, because nothing else shows that the page works."""
    found = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if found is None:
        pytest.fail("there is no Chromium on this machine: run `tools/chromium`, or `apt-get install chromium` as root")
    return found


@pytest.fixture
async def client(start: Start) -> httpx.AsyncClient:
    """A client of a service that lets one address bring many environments."""
    return await start(max_new_environments_per_minute=10_000)


@contextlib.asynccontextmanager
async def launched(chromium: str, *arguments: str) -> AsyncIterator[Browser]:
    """Run a browser."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--no-proxy-server", "--disable-gpu", OFFLINE, *arguments]
        )
        yield browser
        await browser.close()


@pytest.fixture(scope="session")
def running_chromium(chromium: str) -> Iterator[str]:
    """The address of a browser that all tests share: to start one takes longer than most tests."""
    port = free_port()
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(launched(chromium, f"--remote-debugging-port={port}")),
    ):
        yield f"http://127.0.0.1:{port}"


@pytest.fixture
async def browser(running_chromium: str) -> AsyncIterator[Browser]:
    """The browser. Its contexts share nothing, and end with the test."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.connect_over_cdp(running_chromium)
        yield browser
        await browser.close()


@pytest.fixture
async def operator(client: httpx.AsyncClient, tokens: Tokens) -> str:
    """The token of an operator; without one, the service answers nobody from now on."""
    token = await tokens.make("operator")

    async def is_closed() -> bool:
        return (await client.get("/v1/runs")).status_code == 401

    await wait_until(is_closed)
    return token


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


@pytest.fixture
async def watch(client: httpx.AsyncClient) -> AsyncIterator[Watch]:
    """Watch the pages that the test opens."""
    watch = Watch(httpx.URL(str(client.base_url)).netloc.decode())
    yield watch
    watch.check()


@pytest.fixture
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
        await context.close()
