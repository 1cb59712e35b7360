"""Refuse requests of web pages. A page can send requests to any address that its browser can reach.

There are three ways in. A header reveals each:

    a page of another site           Sec-Fetch-Site. Browsers send it to loopback addresses and over HTTPS.
    the same without Sec-Fetch-Site  Origin, on requests that may change something. For GETs: `refuse_browsers`.
    DNS rebinding: the page's name   Host. It has the page's name, which the page's server has resolved to our address.
    resolves to our address          Only names can be rebound, so addresses are safe.

Programs send neither Sec-Fetch-Site nor Origin, and their host names can be listed.
"""

import ipaddress
import logging
import re
import socket
from collections.abc import Awaitable, Callable, Collection

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from app.api.http.caller import MOST_SHOWN, described_caller, shown_path
from app.api.http.headers import header_of
from app.logs import LogBackoff
from lachesis.wire.errors import CrossSiteRequest, Forbidden, ForeignHost

_OWN_SITES = (b"same-origin", b"none")  # our own pages; an address that a person typed
_MOST_KNOWN = 1000
_HOST = re.compile(r"(?:\[(?P<address>[^\[\]]+)\]|(?P<name>[^\[\]:@/\s]+))(?::\d+)?")

log = logging.getLogger("lachesis.api")


class HostNames:
    """The host names that clients may use for this service."""

    def __init__(self, listed: Collection[str], bound: str) -> None:
        own = socket.gethostname().lower()
        names = {"localhost", own, own.partition(".")[0], bound.lower(), *listed}
        self._any = "*" in listed
        self._suffixes = (".localhost", *(name[1:] for name in listed if name.startswith("*.")))
        self._names = {name.rstrip(".") for name in names}
        self._known: set[bytes] = set()
        self._has_list = bool(listed)

    def check(self, host: bytes) -> None:
        """Check the ``Host`` of a request.

        Raises:
            ForeignHost: The name is unknown. The message says how to list it.
        """
        if host in self._known:
            return
        shown = host.decode("latin-1")
        match = _HOST.fullmatch(shown)
        name = "" if match is None else (match["address"] or match["name"]).lower().rstrip(".")
        if not (self._any or name in self._names or name.endswith(self._suffixes) or _is_address(name)):
            raise ForeignHost(self._refusal(name or shown))
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        self._known.add(host)

    def _refusal(self, name: str) -> str:
        name = name[:MOST_SHOWN]
        listing = f"add {name} to LACHESIS_ALLOWED_HOSTS" if self._has_list else f"set LACHESIS_ALLOWED_HOSTS={name}"
        return f"{name!r} is not a known host name of this service (a web page may have sent it); if it is, {listing}"


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


class BrowserGuard:
    """ASGI middleware that refuses requests of web pages of other sites.

    Args:
        app: The application.
        hosts: The names of the service.
        may_be_linked: Whether a request is for a page to which other pages may link.
    """

    def __init__(self, app: ASGIApp, hosts: HostNames, may_be_linked: Callable[[Scope], bool]) -> None:
        self._app = app
        self._hosts = hosts
        self._may_be_linked = may_be_linked
        self._refusals = LogBackoff()

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["type"] == "http":
            try:
                self._check(scope)
            except Forbidden as refused:
                self._log(scope, refused)
                raise
        return self._app(scope, receive, send)

    def _check(self, scope: Scope) -> None:
        host, origin = b"", None
        for name, value in scope["headers"]:
            if name == b"host":
                host = value
                self._hosts.check(value)
            elif name == b"origin":
                origin = value
            elif name == b"sec-fetch-site" and value not in _OWN_SITES and not self._follows_a_link(scope):
                raise CrossSiteRequest(
                    "a web page of another site sent this request; open the service's own page instead"
                )
        if origin is not None and origin.lower().partition(b"://")[2] != host.lower():
            shown = origin.decode("latin-1")[:MOST_SHOWN]
            raise CrossSiteRequest(f"a web page of {shown!r} sent this request; open a page of this service instead")

    def _follows_a_link(self, scope: Scope) -> bool:
        """Return whether a person follows a link to one of our pages. The linking page cannot read the answer."""
        navigates = header_of(scope, b"sec-fetch-mode") == b"navigate"
        is_opened = navigates and header_of(scope, b"sec-fetch-dest") == b"document"
        return is_opened and scope["method"] == "GET" and self._may_be_linked(scope)

    def _log(self, scope: Scope, refused: Forbidden) -> None:
        if self._refusals.is_due(refused.code):
            request = {"method": scope["method"], "path": shown_path(scope), "reason": refused.detail}
            log.warning("request refused", extra={"fields": request | described_caller(scope)})


def refuse_browsers(request: Request) -> None:
    """Refuse a GET that changes something if a browser sent it, unless a script of our page did.

    A navigation is always refused.

    A link in a mail counts as typed (`Sec-Fetch-Site: none`), and the browser adds a password that it knows. Over plain
    HTTP to another machine, browsers omit `Sec-Fetch-Site`, and requests for images have no `Origin`.

    Raises:
        CrossSiteRequest: A browser sent it.
    """
    scope = request.scope
    site, agent = header_of(scope, b"sec-fetch-site"), header_of(scope, b"user-agent") or b""
    # The guard has checked the origin.
    of_our_page = site == b"same-origin" or (site is None and header_of(scope, b"origin") is not None)
    navigates = header_of(scope, b"sec-fetch-mode") == b"navigate"
    if navigates or (not of_our_page and (site is not None or agent.startswith(b"Mozilla/"))):
        raise CrossSiteRequest("a browser sent this request, which changes something; use a program such as curl")
