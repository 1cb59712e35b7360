"""A pytest plugin for the library's own tests: after each one, the service they talked to must be ours.

They start Atropos's server on port 8000 themselves. Ours has the port already, so that theirs cannot bind; this proves
it, over the same address and name lookup that the tests use. Atropos's server has no `/version`.
"""

import pytest
import requests


def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Ask who answers."""
    reply = requests.get("http://localhost:8000/version", timeout=5)
    assert reply.status_code == 200, f"{item.name} did not talk to Lachesis: /version answered {reply.status_code}"
