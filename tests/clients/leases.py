"""Outlast a lease; also where the server is not installed."""

import re

import httpx

from lachesis import Settings
from tests.e2e.processes import wait_until


def outlast_a_lease(settings: Settings) -> None:
    """Keep the thread until a lease would be over, had nobody extended it. Each third of a lease extends it."""

    def extensions() -> float:
        page = httpx.get(f"{settings.url}/metrics", trust_env=False).text
        counted = re.findall(r'^lachesis_http_requests_total\S*/extend"\S*status="2..".* (\S+)$', page, re.M)
        return sum(map(float, counted))

    before = extensions()
    wait_until("leases are extended", lambda: extensions() >= before + 8, 60)  # at most two leases are held
