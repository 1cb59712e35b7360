"""The operators' page: a shell that holds no data, and the files it loads.

Anyone who reaches the service may have these, also without credentials. The page asks the REST API for all that it
shows, with the token that its reader enters. Addresses are relative, so that it works behind a proxy with a prefix.
`vendor/*/manifest.json` names the packages that are not ours, with their checksums.
"""

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from starlette.convertors import Convertor, register_url_convertor
from starlette.routing import Match
from starlette.types import Scope

from app.api.deps import NamedRun, ServicesDep
from app.api.http.compression import compress_if_accepted
from app.api.http.negotiation import prefers_html
from app.api.http.openapi import ATROPOS_IN_A_RUN
from app.api.http.routing import DirectRoute, GuardedRoute, requires
from app.api.pages.warning import warning
from app.core.access.permissions import Permission
from lachesis.wire.access import AccessMode
from lachesis.wire.errors import NotFound

TABS = ("now", "shares", "freshness", "rewards", "groups", "batches", "replay", "curriculum", "workers")
"""The views of a run. `static/app.js` has a panel for each."""

_PAGES = Path(__file__).parent
_STYLES = "styles.css"
_MEDIA_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_ROOTS = ("/", f"{ATROPOS_IN_A_RUN}/")
_OTHERS = ("/about", "/audit", "/tokens")
_IN_A_RUN = rf"/runs/[^/]+(?:/(?:atropos|{'|'.join(TABS)}))?"
_FOR_BROWSERS = re.compile(r"/|/runs/[^/]+/atropos/|/runs/[^/]+/[^/]+")
_ADDRESS = re.compile(rf"{'|'.join(_OTHERS)}|{_IN_A_RUN}|/pages/.+")
_SHELL = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Lachesis</title>
<link rel="icon" href="{files}icon.svg">
<link rel="stylesheet" href="{files}{styles}">
<script src="{files}theme.js"></script>
{modules}
<script type="module" src="{files}app.js"></script>
</head>
<body>
{warning}<div id="app"><header class="bar"><a class="brand" href="{root}">Lachesis</a></header>
<main><noscript><p>This page needs JavaScript. <a href="{root}docs">The HTTP API</a> does not.</p></noscript></main>
</div>
</body>
</html>
"""


def _load() -> Mapping[str, bytes]:
    """Read all files of the page, by the path under which it loads them. All style sheets together are one file."""
    own, vendor = _PAGES / "static", _PAGES / "vendor"
    found = {str(path.relative_to(own)): path for path in own.rglob("*")}
    found |= {str(path.relative_to(_PAGES)): path for name in ("preact", "uplot") for path in (vendor / name).iterdir()}
    files = {name: path.read_bytes() for name, path in sorted(found.items()) if path.suffix in _MEDIA_TYPES}
    sheets = [files.pop(name) for name in list(files) if name.endswith(".css")]
    return MappingProxyType({_STYLES: b"\n".join(sheets), **files})


FILES = _load()
VERSION = hashlib.sha256(b"".join(name.encode() + content for name, content in FILES.items())).hexdigest()[:16]
"""Of all files together. It is a part of their addresses, so that browsers may keep them."""


def _shell(depth: int, access: AccessMode) -> HTMLResponse:
    """Build the page.

    Args:
        depth: How many folders its address is below the root.
        access: Who may use the service.
    """
    root = "../" * depth or "./"
    files = f"{root}pages/{VERSION}/"
    modules = [
        f'<link rel="modulepreload" href="{files}{name}">' for name in FILES if name.endswith(".js") and "/" in name
    ]
    warned = warning(access)
    return HTMLResponse(
        _SHELL.format(root=root, files=files, styles=_STYLES, modules="\n".join(modules), warning=warned)
    )


def is_page(scope: Scope) -> bool:
    """Return whether a request gets the page or one of its files, so that it needs no credentials."""
    path = scope["path"]
    if scope["method"] != "GET":
        return False
    return bool(_ADDRESS.fullmatch(path)) or bool(_FOR_BROWSERS.fullmatch(path) and prefers_html(Request(scope)))


def may_be_linked(scope: Scope) -> bool:
    """Return whether other sites may link to the page of a request: the operators' page and `/docs`."""
    return is_page(scope) or scope["path"] in ("/", "/docs")


class _Tab(Convertor[str]):
    regex = "|".join(TABS)

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("tab", _Tab())


class _BrowserRoute(GuardedRoute):
    """A route for clients that prefer HTML. Others get the route of the same path that comes after it."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        return super().matches(scope) if is_page(scope) else (Match.NONE, {})


roots = APIRouter(include_in_schema=False, route_class=_BrowserRoute)
router = APIRouter(include_in_schema=False, route_class=GuardedRoute)
direct = APIRouter(include_in_schema=False, route_class=DirectRoute)


async def page(request: Request, services: ServicesDep) -> HTMLResponse:
    """Return the page. It reads its address itself."""
    depth = request.scope["path"].count("/") - 1
    reply = _shell(depth, services.access.authenticator.mode)
    reply.headers["Vary"] = "Accept"
    return reply


requires(Permission.OPEN)(page)
for _path in _ROOTS:
    roots.get(_path)(page)
for _path in (*_OTHERS, "/runs/{run}/{tab:tab}"):
    router.get(_path)(page)


@router.get("/runs/{run}")
@requires(Permission.OPEN)
async def run_page(run: NamedRun) -> RedirectResponse:
    """Send a browser to the first view of a run. The address is relative, so that it works behind a proxy."""
    return RedirectResponse(f"{run}/{TABS[0]}")


@router.get(ATROPOS_IN_A_RUN)
@requires(Permission.OPEN)
async def atropos_base() -> RedirectResponse:
    """Send clients that ask for the base URL of Atropos clients to its root, which ends with a slash."""
    return RedirectResponse("atropos/")


async def unknown_view(request: Request, services: ServicesDep) -> HTMLResponse:
    """Return the page for an address that a person typed. It says that there is no such view."""
    reply = await page(request, services)
    reply.status_code = 404
    return reply


requires(Permission.OPEN)(unknown_view)
router.add_api_route("/runs/{run}/{view}", unknown_view, route_class_override=_BrowserRoute)


@direct.get("/pages/{version}/{file:path}")
@requires(Permission.OPEN)
async def page_file(request: Request) -> Response:
    """Return a file that the page loads. While a service is replaced, a page may ask another version for it."""
    version, file = request.path_params["version"], request.path_params["file"]
    if file not in FILES:
        raise NotFound(f"there is no file {file[:200]}")
    kept = "max-age=31536000, immutable" if version == VERSION else "no-store"
    body, headers = compress_if_accepted(FILES[file], request.headers.get("accept-encoding"))
    media_type = _MEDIA_TYPES[Path(file).suffix]
    return Response(body, media_type=media_type, headers={"Cache-Control": kept, **headers})
