"""The operators' page: what browsers get, from where, and what programs get at the same address."""

import posixpath
import re
from collections.abc import Collection
from html.parser import HTMLParser
from itertools import chain
from pathlib import Path
from typing import cast, get_args
from urllib.parse import urlsplit

import httpx
import pytest
from fastapi.routing import APIRoute

from app.api.pages import api_docs, operators
from app.api.pages.operators import FILES, TABS, VERSION
from app.core.batches.leases import WITH_A_TRAINER
from app.core.curriculum.strategies.table import needs_progress
from app.core.environments.granting import NO_ENVIRONMENT, NONE_ALIVE
from lachesis.wire.access import Role
from lachesis.wire.batches import BatchState
from lachesis.wire.curricula import CurriculumSettings, CurriculumStrategy
from lachesis.wire.history import CAUSES
from lachesis.wire.states import DROP_REASONS, FILTERS, GroupState
from tests.api.access.conftest import Tokens, bearer, tokens
from tests.api.conftest import Start

__all__ = ["tokens"]  # the fixture

API = Path(operators.__file__).parents[1]
BY_STEP = [each for each in get_args(CurriculumStrategy) if needs_progress(CurriculumSettings(strategy=each))]
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


PAGES = ("/", "/runs/mine/atropos/", "/about", "/audit", "/tokens", *(f"/runs/mine/{tab}" for tab in TABS))


@pytest.mark.parametrize("path", PAGES)
async def test_a_browser_gets_a_page_that_loads_only_files_of_the_service(client: httpx.AsyncClient, path: str) -> None:
    reply = await client.get(path, headers={"accept": BROWSER})
    assert reply.status_code == 200
    assert reply.headers["content-type"] == "text/html; charset=utf-8"
    assert reply.headers["vary"] == "Accept"
    page = Page(reply.text)
    assert not {"style", "img", "iframe"} & set(page.tags)
    assert not {"style", "onclick"} & set(page.attributes)
    assert re.findall(r"<script[^>]*>([^<]*)", reply.text) == [""] * page.tags.count("script")
    assert len(page.loaded) == len(FILES) == len(set(page.loaded))
    for address in page.loaded:
        assert urlsplit(address).netloc == "", "nothing from outside"
        file = await client.get(httpx.URL(f"{client.base_url}{path}").join(address))
        assert (file.status_code, file.headers["cache-control"]) == (200, "max-age=31536000, immutable")
        media_type = file.headers["content-type"].partition(";")[0]
        assert media_type in ("text/css", "text/javascript", "image/svg+xml")


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


async def test_other_files_are_not_served(client: httpx.AsyncClient) -> None:
    for name in ("operators.py", "vendor/preact/manifest.json", "..%2Foperators.py", "lib"):
        assert (await client.get(f"/pages/{VERSION}/{name}")).status_code == 404


async def test_the_address_of_a_run_leads_to_its_first_view(client: httpx.AsyncClient) -> None:
    reply = await client.get("/runs/math-1")
    assert (reply.status_code, reply.url.join(reply.headers["location"]).path) == (307, "/runs/math-1/now")
    assert (await client.get("/runs/%5C%5Cother.example")).status_code == 422


async def test_a_browser_gets_the_page_for_a_view_that_does_not_exist(client: httpx.AsyncClient) -> None:
    reply = await client.get("/runs/mine/unknown", headers={"accept": BROWSER})
    assert (reply.status_code, reply.headers["vary"]) == (404, "Accept")
    assert Page(reply.text).loaded == Page((await client.get("/runs/mine/now")).text).loaded
    for path in ("/runs/mine/unknown", "/runs/mine/unknown/"):
        program = await client.get(path)
        assert (program.status_code, program.json()["status"]) == (404, 404)
    assert (await client.get("/runs/mine/unknown/", headers={"accept": BROWSER})).json()["status"] == 404


async def test_files_are_compressed_for_clients_that_accept_it(client: httpx.AsyncClient) -> None:
    for name in ("styles.css", "vendor/uplot/uPlot.esm.js"):
        request = client.build_request("GET", f"/pages/{VERSION}/{name}")
        compressed = await client.send(request)
        request.headers["accept-encoding"] = "identity"
        plain = await client.send(request)
        assert compressed.content == plain.content == FILES[name]
        assert compressed.headers["content-encoding"] == "gzip"
        assert 2 * int(compressed.headers["content-length"]) < int(plain.headers["content-length"])
        assert plain.headers["vary"] == compressed.headers["vary"] == "Accept-Encoding"


async def test_browsers_do_not_keep_a_file_under_the_address_of_another_version(client: httpx.AsyncClient) -> None:
    reply = await client.get("/pages/older/app.js")
    assert (reply.status_code, reply.headers["cache-control"]) == (200, "no-store")


async def test_every_page_says_that_there_is_no_access_control(start: Start) -> None:
    closed, insecure = await start(), await start(insecure=True)
    values = {"run": "mine", "tab": "now", "view": "unknown", "file": "docs.js"}
    seen = set()
    for route in (*operators.roots.routes, *operators.router.routes, *api_docs.router.routes):
        path = re.sub(r"{(\w+)[^}]*}", lambda part: values[part[1]], cast(APIRoute, route).path)
        reply = await insecure.get(path, headers={"accept": BROWSER})
        if reply.headers.get("content-type", "").startswith("text/html"):
            seen.add(path)
            assert Page(reply.text).attributes.count("role") == 1
            assert "LACHESIS_INSECURE" in reply.text
            assert "LACHESIS_INSECURE" not in (await closed.get(path, headers={"accept": BROWSER})).text
    of_run = {f"/runs/mine/{view}" for view in ("now", "unknown", "atropos/")}
    assert seen == {"/", "/about", "/audit", "/tokens", "/docs", *of_run}
    pages = {file.name for file in API.rglob("*.py") if "HTMLResponse(" in file.read_text()}
    assert pages == {"operators.py", "api_docs.py"}, "no page is elsewhere"


async def test_the_page_needs_no_token_and_what_it_shows_does(start: Start, tokens: Tokens) -> None:
    await tokens.make("operator")
    client = await start()
    for path in (*PAGES, f"/pages/{VERSION}/app.js"):
        assert (await client.get(path, headers={"accept": BROWSER})).status_code == 200
        assert (await client.get(path, headers={"accept": BROWSER} | bearer("wrong"))).status_code == 200
    for path in ("/v1/runs", "/version", "/v1/audit", "/runs/mine/atropos/status"):
        assert (await client.get(path, headers={"accept": BROWSER})).status_code == 401
    assert (await client.get("/")).status_code == 401, "programs"
    assert (await client.post("/", headers={"accept": BROWSER})).status_code == 401


STATIC = API / "pages" / "static"
OWN = {str(path.relative_to(STATIC)): path.read_text() for path in STATIC.rglob("*.*")}
SCRIPTS = {name: text for name, text in OWN.items() if name.endswith(".js")}


def test_every_module_imports_files_that_are_served() -> None:
    imported = {"app.js", "theme.js"}
    for name, text in SCRIPTS.items():
        for address in re.findall(r'^(?:import|export|\})[^;]*?from "([^"]+)";$', text, re.M):
            assert address.startswith("."), f"{name} imports {address}"
            imported.add(posixpath.normpath(posixpath.join(posixpath.dirname(name), address)))
    assert imported == {name for name in FILES if name.endswith(".js")}


def test_no_module_turns_text_into_markup_or_code() -> None:
    """Names and contents of others are shown as text. Only Preact, which escapes it, makes elements."""
    unsafe = re.compile(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|srcdoc|javascript:"
    )
    assert {name: found for name, text in SCRIPTS.items() if (found := unsafe.findall(text))} == {}


def test_modules_are_short_and_have_the_house_format() -> None:
    faults = [
        f"{name}:{number}"
        for name, text in OWN.items()
        if not name.endswith(".svg")
        for number, line in enumerate(text.splitlines(), 1)
        if len(line) > 120 or number > 500 or line != line.rstrip() or "\t" in line
    ]
    assert faults == []
    assert [name for name, text in SCRIPTS.items() if not text.startswith("// ")] == [], "each says what it is"


def test_every_view_of_the_address_has_a_panel() -> None:
    (views,) = re.findall(r"const OF_A_RUN = \{(.*?)\};", SCRIPTS["app.js"], re.S)
    assert tuple(re.findall(r"(\w+): \[", views)) == TABS


def test_the_page_knows_every_reason_for_a_drop_and_which_of_them_are_filters() -> None:
    (kinds,) = re.findall(r"const REASONS = \{(.*?)\n\};", SCRIPTS["parts/drop_reasons.js"], re.S)
    named = {kind: re.findall(r'"(\w+)"', names) for kind, names in re.findall(r"(\w+): \[(.*?)\]", kinds)}
    assert tuple(named["filter"]) == FILTERS
    assert sorted(chain.from_iterable(named.values())) == sorted(DROP_REASONS)


@pytest.mark.parametrize("cut", [f"{NO_ENVIRONMENT}.*", NONE_ALIVE])
def test_the_page_cuts_off_the_sentence_that_asks_for_an_environment(cut: str) -> None:
    """The headline begins with it."""
    assert f"/; {cut}/" in SCRIPTS["lib/health.js"]


@pytest.mark.parametrize(
    ("file", "name", "words"),
    [
        ("lib/health.js", "HELD", WITH_A_TRAINER),
        ("parts/filters.js", "STATES", get_args(GroupState)),
        ("parts/batch.js", "KINDS", [state for part in get_args(BatchState) for state in get_args(part)]),
        ("panels/tokens.js", "ROLES", get_args(Role)),
        ("panels/what_if.js", "USED", get_args(CurriculumStrategy)),
        ("panels/what_if.js", "BY_STEP", BY_STEP),
    ],
)
def test_a_list_of_the_page_has_the_words_of_the_service(file: str, name: str, words: Collection[str]) -> None:
    (listed,) = re.findall(rf"^const {name} = [\[{{](.*?)[\]}}];$", SCRIPTS[file], re.S | re.M)
    found = re.findall(r"^  (\w+):", listed, re.M) or re.findall(r'"(\w+)"', listed)
    assert sorted(found) == sorted(words)


def test_the_page_has_a_lane_for_every_cause_of_a_stall() -> None:
    (lanes,) = re.findall(r"const CAUSES = \[(.*?)\n\];", SCRIPTS["parts/stalls.js"], re.S)
    assert re.findall(r'^  \["(\w+)"', lanes, re.M) == list(CAUSES)
    assert re.findall(r'^\[data-cause="(\w+)"\]', OWN["css/charts.css"], re.M) == list(CAUSES)
