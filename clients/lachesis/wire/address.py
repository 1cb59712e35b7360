"""Read and check the URL of a service and the name of a run."""

import re
from ipaddress import ip_address
from typing import Any
from urllib.parse import unquote, urlsplit

from lachesis.wire.runs import RUN_NAME

_ATROPOS = re.compile(r"(?P<url>.+?)(/runs/(?P<run>[^/]+)/atropos)?/*")
_OF_THE_SERVICE = re.compile(r"/v1(/runs(/.*)?)?/?$")


def split_run(url: str) -> tuple[str, str | None]:
    """Split the URL of an Atropos client, ``http://HOST:PORT/runs/NAME/atropos``, into the service's URL and the run.

    Returns:
        The URL without trailing slashes, and the run, or None if the URL names none.
    """
    found = _ATROPOS.fullmatch(url)
    if found is None:
        return url, None
    return found["url"], None if found["run"] is None else unquote(found["run"])


def wrong_run(name: Any) -> str | None:
    """Return why ``name`` cannot be the name of a run; None if it can."""
    if isinstance(name, str) and re.fullmatch(RUN_NAME, name):
        return None
    return f"should be the name of a run, up to 64 letters, digits, '.', '_' and '-', not {name!r}"


def wrong_url(url: Any) -> str | None:
    """Return why ``url`` cannot be the URL of a service; None if it can. It may have the path prefix of a proxy."""
    shown = without_password(url) if isinstance(url, str) else url
    if not isinstance(url, str) or not url.startswith(("http://", "https://")):
        meant = (
            f"; did you mean 'http://{url}'?" if isinstance(url, str) and re.fullmatch(r"[\w.-]+:\d+/?", url) else ""
        )
        return f"should start with http:// or https://, not {shown!r}{meant}"
    try:
        parts = urlsplit(url)
        whole = bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        whole = False
    if not whole:
        return f"should name a host, and may name a port, such as http://lachesis:8000, not {shown!r}"
    if own := _OF_THE_SERVICE.search(parts.path):
        return f"should name the service alone, without {own[0]!r}; give the run as `run`"
    return None


def is_readable_by_others(url: str) -> bool:
    """Return whether requests to ``url`` leave this machine without encryption."""
    if url.startswith("https:"):
        return False
    host = urlsplit(url).hostname or ""
    try:
        return not ip_address(host).is_loopback
    except ValueError:
        return host != "localhost" and not host.endswith(".localhost")


def without_password(url: str) -> str:
    """Return ``url`` without user and password, to show it."""
    scheme, between, rest = url.partition("://") if "://" in url else ("", "", url)
    host = re.split("[/?#]", rest, maxsplit=1)[0]
    return f"{scheme}{between}{host.rpartition('@')[2]}{rest[len(host) :]}"
