"""Lachesis: exact, fair, durable batches between rollout workers and trainers.

Environments submit groups (`Environment`, `SyncEnvironment`), trainers take batches (`Trainer`, `AsyncTrainer`).
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lachesis import errors
    from lachesis._settings import Settings
    from lachesis.batch import AsyncBatch
    from lachesis.environment import Environment
    from lachesis.errors import LachesisError, LeaseLost, NoBatch, NotSent, ServiceError, Unreachable
    from lachesis.group import Group
    from lachesis.sync import Batch, SyncEnvironment, Trainer
    from lachesis.trainer import AsyncTrainer
    from lachesis.views import Columns, GroupView

__all__ = [
    "AsyncBatch",
    "AsyncTrainer",
    "Batch",
    "Columns",
    "Environment",
    "Group",
    "GroupView",
    "LachesisError",
    "LeaseLost",
    "NoBatch",
    "NotSent",
    "ServiceError",
    "Settings",
    "SyncEnvironment",
    "Trainer",
    "Unreachable",
    "errors",
]

_HOMES = {
    "_settings": ("Settings",),
    "batch": ("AsyncBatch",),
    "environment": ("Environment",),
    "errors": ("LachesisError", "LeaseLost", "NoBatch", "NotSent", "ServiceError", "Unreachable"),
    "group": ("Group",),
    "sync": ("Batch", "SyncEnvironment", "Trainer"),
    "trainer": ("AsyncTrainer",),
    "views": ("Columns", "GroupView"),
}


def __getattr__(name: str) -> Any:
    """Load public names when they are asked for: the service imports `lachesis.wire`, and needs no HTTP client."""
    if name == "errors":
        return import_module("lachesis.errors")
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"lachesis.{home}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
