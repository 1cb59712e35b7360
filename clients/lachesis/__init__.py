"""Lachesis: exact, fair, durable batches between rollout workers and trainers.

A trainer makes a run and takes batches of it; `AsyncTrainer` is the same for asyncio:

    with Trainer("http://lachesis:8000", run="math") as trainer:
        trainer.create_run(batch_size=128)
        for batch in trainer.batches(prefetch=2):
            train(batch.tokens_padded(pad_id), batch.padded("masks", -100), batch.scores)
            batch.ack()

An environment submits groups of sequences; `SyncEnvironment` is the same without asyncio:

    async with Environment("gsm8k", "http://lachesis:8000", run="math", group_size=8) as environment:
        async with environment.permit() as permit:
            await environment.submit(Group(tokens, masks, scores, policy_version=permit.policy_version))

A replay buffer takes fragments of long episodes from workers, and hands out samples of them; `SyncReplay` likewise:

    async with Replay("http://lachesis:8000", run="robots") as replay, replay.worker("worker-0", steps=32) as worker:
        await worker.insert({"obs": observations, "action": actions}, policy_version=3)

A curriculum hands out items to try, and learns from their rewards; `SyncCurriculum` likewise, and environments have
theirs with ``environment.curriculum()``:

    async with Curriculum("gsm8k", "http://lachesis:8000", run="math") as curriculum:
        async for item in curriculum.items(prefetch=64):
            await curriculum.observe(item, await rollout(item.key))

What is not given is read from variables such as ``LACHESIS_URL`` and ``LACHESIS_RUN``; see `Settings`. What goes wrong
is a `LachesisError`; `lachesis.errors` has them all. The logger ``lachesis`` tells of long waits and of repetitions.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lachesis import errors
    from lachesis._rank import Rank
    from lachesis._settings import Settings
    from lachesis.batch import AsyncBatch
    from lachesis.curriculum import Curriculum
    from lachesis.environment import Environment
    from lachesis.errors import LachesisError, LeaseLost, NoBatch, NoItem, NoPermit, NotSent, ServiceError, Unreachable
    from lachesis.group import Group
    from lachesis.group_view import GroupView, SequenceView
    from lachesis.replay import Replay
    from lachesis.sample import AsyncSample
    from lachesis.sync import Batch, Trainer
    from lachesis.sync_curriculum import SyncCurriculum
    from lachesis.sync_environment import SyncEnvironment
    from lachesis.sync_replay import Sample, SyncReplay
    from lachesis.trainer import AsyncTrainer
    from lachesis.views import Columns

__all__ = [
    "AsyncBatch",
    "AsyncSample",
    "AsyncTrainer",
    "Batch",
    "Columns",
    "Curriculum",
    "Environment",
    "Group",
    "GroupView",
    "LachesisError",
    "LeaseLost",
    "NoBatch",
    "NoItem",
    "NoPermit",
    "NotSent",
    "Rank",
    "Replay",
    "Sample",
    "SequenceView",
    "ServiceError",
    "Settings",
    "SyncCurriculum",
    "SyncEnvironment",
    "SyncReplay",
    "Trainer",
    "Unreachable",
    "errors",
]

_HOMES = {
    "_rank": ("Rank",),
    "_settings": ("Settings",),
    "batch": ("AsyncBatch",),
    "curriculum": ("Curriculum",),
    "environment": ("Environment",),
    "errors": ("LachesisError", "LeaseLost", "NoBatch", "NoItem", "NoPermit", "NotSent", "ServiceError", "Unreachable"),
    "group": ("Group",),
    "group_view": ("GroupView", "SequenceView"),
    "replay": ("Replay",),
    "sample": ("AsyncSample",),
    "sync": ("Batch", "Trainer"),
    "sync_curriculum": ("SyncCurriculum",),
    "sync_environment": ("SyncEnvironment",),
    "sync_replay": ("Sample", "SyncReplay"),
    "trainer": ("AsyncTrainer",),
    "views": ("Columns",),
}


def __getattr__(name: str) -> Any:
    """Load public names when they are asked for: the service imports `lachesis.wire`, and needs no HTTP client."""
    if name == "errors":
        return import_module("lachesis.errors")
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"lachesis.{home}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
