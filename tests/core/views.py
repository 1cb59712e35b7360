"""A run's view for tests of rules: what matters given, the rest empty."""

from typing import Any

from app.core.environments.record import EnvironmentRecord
from app.core.runs.counters import RunTotals
from app.core.runs.settings import RunConfig
from app.core.runs.view import RunView

TTL_MS = 120_000
"""Silence after which an environment no longer counts as alive."""

EMPTY = RunView(
    environment_ttl_ms=TTL_MS,
    config=RunConfig(batch_size=8, max_token_len=512, num_steps=100),
    epoch=0,
    step=0,
    started=True,
    clock_ms=0,
    environments={},
    lanes={},
    buffers={},
    leases=(),
    workers={},
    served={},
    dropped={},
    totals=RunTotals(),
    debts={},
    conflict_since_ms=None,
    last_batch_ms=None,
    relaxed_batches=0,
    latest=None,
)


def environment(number: int, group_size: int = 4, min_share: float | None = None, **changes: Any) -> EnvironmentRecord:
    fields: dict[str, Any] = {
        "environment": number,
        "desired_name": f"env{number}",
        "name": f"env{number}_0",
        "group_size": group_size,
        "max_token_length": 512,
        "weight": 1.0,
        "min_share": min_share,
        "max_share": None,
        "registered_ms": 0,
        "heard_ms": 0,
    }
    return EnvironmentRecord(**(fields | changes))
