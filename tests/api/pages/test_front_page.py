"""What `/` answers: a page to browsers, the contract's JSON to all others."""

from html.parser import HTMLParser
from urllib.parse import urlsplit

import httpx
import pytest

from app.version import lachesis_version
from tests.api.conftest import Start

BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"


class Page(HTMLParser):
    """What a page links to, loads and runs."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [name for name, _ in attrs]
        addresses = [value or "" for name, value in attrs if name in ("href", "src")]
        (self.links if tag == "a" else self.loaded).extend(addresses)

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.parametrize("path", ["/", "/runs/mine/atropos/"])
async def test_a_browser_gets_a_page_that_loads_nothing(client: httpx.AsyncClient, path: str) -> None:
    reply = await client.get(path, headers={"accept": BROWSER})
    assert reply.status_code == 200
    assert reply.headers["content-type"] == "text/html; charset=utf-8"
    assert reply.headers["content-security-policy"].startswith("default-src 'none'")
    assert reply.headers["vary"] == "Accept"
    page = Page(reply.text)
    assert f"Lachesis {lachesis_version()}" in page.text
    assert f"http://{httpx.URL(str(client.base_url)).netloc.decode()}" in page.text
    assert not {"script", "link", "img", "iframe"} & set(page.tags)
    assert not {"src", "style", "onclick"} & set(page.attributes)
    assert "/v1/runs" in page.links
    for link in page.links:
        assert urlsplit(link).netloc == "", "nothing from outside"
        assert (await client.get(link)).status_code == 200, link


@pytest.mark.parametrize(
    "accept",
    [
        None,
        "",
        "*/*",
        "application/json",
        "text/html;q=0",
        "text/html;q=0.5, application/json",
        "application/json, text/html",
        "text/*",
    ],
)
async def test_programs_get_the_reply_of_the_contract(client: httpx.AsyncClient, accept: str | None) -> None:
    request = client.build_request("GET", "/")
    del request.headers["accept"]
    if accept is not None:
        request.headers["accept"] = accept
    reply = await client.send(request)
    assert reply.json() == {"message": "AtroposLib API"}
    assert reply.headers["content-type"] == "application/json"
    assert reply.headers["vary"] == "Accept"


async def test_the_host_is_escaped_in_the_page(start: Start) -> None:
    client = await start(allowed_hosts="*")
    host = 'a"><script>alert(1)</script>&lt;'
    reply = await client.get("/", headers={"accept": BROWSER, "host": host})
    page = Page(reply.text)
    assert "script" not in page.tags
    assert f"http://{host}" in page.text
