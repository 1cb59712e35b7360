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
    from lachesis._transport.settings import Settings
    from lachesis.batches.batch import AsyncBatch
    from lachesis.batches.columns import Columns
    from lachesis.curriculum.curriculum import Curriculum
    from lachesis.environments.environment import Environment
    from lachesis.errors import LachesisError, LeaseLost, NoBatch, NoItem, NoPermit, NotSent, ServiceError, Unreachable
    from lachesis.groups.group import Group
    from lachesis.groups.views import GroupView, SequenceView
    from lachesis.rank import Rank
    from lachesis.replay.buffer import Replay
    from lachesis.replay.sample import AsyncSample
    from lachesis.runs.trainer import AsyncTrainer
    from lachesis.sync.curriculum import SyncCurriculum
    from lachesis.sync.environment import SyncEnvironment
    from lachesis.sync.replay import Sample, SyncReplay
    from lachesis.sync.trainer import Batch, Trainer

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
    "_transport.settings": ("Settings",),
    "batches.batch": ("AsyncBatch",),
    "batches.columns": ("Columns",),
    "curriculum.curriculum": ("Curriculum",),
    "environments.environment": ("Environment",),
    "errors": ("LachesisError", "LeaseLost", "NoBatch", "NoItem", "NoPermit", "NotSent", "ServiceError", "Unreachable"),
    "groups.group": ("Group",),
    "groups.views": ("GroupView", "SequenceView"),
    "rank": ("Rank",),
    "replay.buffer": ("Replay",),
    "replay.sample": ("AsyncSample",),
    "runs.trainer": ("AsyncTrainer",),
    "sync.curriculum": ("SyncCurriculum",),
    "sync.environment": ("SyncEnvironment",),
    "sync.replay": ("Sample", "SyncReplay"),
    "sync.trainer": ("Batch", "Trainer"),
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
