"""The page `/docs` shows the OpenAPI document, and everything it loads comes from the service."""

import asyncio
import hashlib
import json
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from tests.api.pages.test_operators_page import Page
from tests.chromium import CHROMIUM

ROOT = Path(__file__).parents[3]
VENDORED = [*(ROOT / "app/api/pages/vendor").iterdir(), *(ROOT / "tests/browser/vendor").iterdir()]

needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine")


@pytest.mark.parametrize("folder", VENDORED, ids=lambda folder: folder.name)
def test_the_vendored_files_are_those_of_the_manifest(folder: Path) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest.keys() == {"package", "version", "licence", "sha256"}
    assert any(name.startswith("LICENSE") for name in manifest["sha256"])
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}
    del found["manifest.json"]
    assert found == manifest["sha256"]


async def test_the_page_loads_nothing_from_another_host(client: httpx.AsyncClient) -> None:
    reply = await client.get("/docs")
    page = Page(reply.text)
    assert len(page.loaded) == 4
    for address in page.loaded:
        assert urlsplit(address).netloc == ""
        file = await client.get(f"/{address}")
        assert file.status_code == 200
        assert file.headers["content-type"].partition(";")[0] in ("text/css", "text/javascript")
        assert file.headers["cache-control"] == "max-age=3600"


async def test_other_files_are_not_served(client: httpx.AsyncClient) -> None:
    for name in ("manifest.json", "api_docs.py", "..%2Fapi_docs.py"):
        assert (await client.get(f"/docs/{name}")).status_code in (404, 422)


async def browse(client: httpx.AsyncClient, path: str, tmp_path: Path) -> str:
    """Open a page in a browser without the internet, and return what it shows. The page must keep its policy."""
    assert CHROMIUM is not None
    browser = await asyncio.create_subprocess_exec(
        *(CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}"),
        *("--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1", "--no-proxy-server"),
        *("--virtual-time-budget=60000", "--enable-logging=stderr", "--dump-dom", f"{client.base_url}{path}"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    shown, log = await browser.communicate()
    assert "Content Security Policy" not in log.decode(errors="replace")
    return shown.decode()


@pytest.mark.slow
@needs_chromium
async def test_a_browser_without_the_internet_shows_every_endpoint(client: httpx.AsyncClient, tmp_path: Path) -> None:
    shown = await browse(client, "/docs", tmp_path)
    document = (await client.get("/openapi.json")).json()
    for path in document["paths"]:
        assert f'data-path="{path}"' in shown, path
