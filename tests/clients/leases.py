"""Wait until a lease is extended; also where the server is not installed."""

import re

import httpx

from lachesis import Settings
from tests.e2e.processes import wait_until


def wait_for_an_extension(settings: Settings) -> None:
    """Keep the thread until the SDK has extended a lease by itself. It does so after a third of the lease.

    Leases are long enough to survive a busy machine: a test that outlasts a short one fails if the process stands still
    for as long.
    """

    def extensions() -> float:
        page = httpx.get(f"{settings.url}/metrics", trust_env=False).text
        counted = re.findall(r'^lachesis_http_requests_total\S*/extend"\S*status="2..".* (\S+)$', page, re.M)
        return sum(map(float, counted))

    before = extensions()
    wait_until("a lease is extended", lambda: extensions() > before, 60)
