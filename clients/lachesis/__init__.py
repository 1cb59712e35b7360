"""Lachesis: exact, fair, durable batches between rollout workers and trainers.

Each class that sends requests exists twice: ``X`` is synchronous, ``AsyncX`` is for asyncio. Both have the same
methods.

A trainer creates a run and takes batches of it:

    with Trainer("http://lachesis:8000", run="math") as trainer:
        trainer.create_run(batch_size=128)
        for batch in trainer.batches(prefetch=2):
            train(batch.tokens_padded(pad_id), batch.padded("masks", -100), batch.scores)
            batch.ack()

An environment submits groups of sequences:

    async with AsyncEnvironment("gsm8k", "http://lachesis:8000", run="math", group_size=8) as environment:
        async with environment.permit() as permit:
            await environment.submit(Group(tokens, masks, scores, policy_version=permit.policy_version))

A replay buffer takes fragments of long episodes from workers, and hands out samples of fragments:

    with Replay("http://lachesis:8000", run="robots") as replay, replay.worker("worker-0", steps=32) as worker:
        worker.insert({"obs": observations, "action": actions}, policy_version=3)

A curriculum hands out items to try, and learns from their rewards. Trainers and environments have a method
``curriculum()`` that returns one:

    async with AsyncCurriculum("gsm8k", "http://lachesis:8000", run="math") as curriculum:
        async for item in curriculum.items(prefetch=64):
            await curriculum.observe(item, await rollout(item.key))

Settings that you leave out are read from variables such as ``LACHESIS_URL`` and ``LACHESIS_RUN``; see `Settings`. All
errors are `LachesisError`; see `lachesis.errors`. The logger ``lachesis`` reports long waits and repeated requests.

Import from here, and from `lachesis.loader`, `lachesis.wire`, `lachesis.errors` and `lachesis.atropos`. All other
modules are private.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lachesis import errors
    from lachesis._prefetch.items import AsyncItemStream
    from lachesis._transport.settings import Settings
    from lachesis.batches.batch import AsyncBatch
    from lachesis.batches.columns import Columns
    from lachesis.curriculum.curriculum import AsyncCurriculum
    from lachesis.environments.environment import AsyncEnvironment
    from lachesis.environments.permits import AsyncPermit
    from lachesis.errors import (
        LachesisError,
        LeaseLost,
        NoBatch,
        NoItem,
        NoPermit,
        NotSent,
        ServiceError,
        Unreachable,
        UntrustedCertificate,
    )
    from lachesis.groups.group import Group
    from lachesis.groups.views import GroupView, SequenceView
    from lachesis.rank import Rank
    from lachesis.replay.buffer import AsyncReplay
    from lachesis.replay.sample import AsyncSample
    from lachesis.replay.worker import AsyncWorker
    from lachesis.runs.trainer import AsyncTrainer
    from lachesis.sync.curriculum import Curriculum, ItemStream
    from lachesis.sync.environment import Environment, Permit
    from lachesis.sync.replay import Replay, Sample, Worker
    from lachesis.sync.trainer import Batch, Trainer

_HOMES = {
    "_prefetch.items": ("AsyncItemStream",),
    "_transport.settings": ("Settings",),
    "batches.batch": ("AsyncBatch",),
    "batches.columns": ("Columns",),
    "curriculum.curriculum": ("AsyncCurriculum",),
    "environments.environment": ("AsyncEnvironment",),
    "environments.permits": ("AsyncPermit",),
    "errors": (
        "LachesisError",
        "LeaseLost",
        "NoBatch",
        "NoItem",
        "NoPermit",
        "NotSent",
        "ServiceError",
        "Unreachable",
        "UntrustedCertificate",
    ),
    "groups.group": ("Group",),
    "groups.views": ("GroupView", "SequenceView"),
    "rank": ("Rank",),
    "replay.buffer": ("AsyncReplay",),
    "replay.sample": ("AsyncSample",),
    "replay.worker": ("AsyncWorker",),
    "runs.trainer": ("AsyncTrainer",),
    "sync.curriculum": ("Curriculum", "ItemStream"),
    "sync.environment": ("Environment", "Permit"),
    "sync.replay": ("Replay", "Sample", "Worker"),
    "sync.trainer": ("Batch", "Trainer"),
}

__all__ = [
    "AsyncBatch",
    "AsyncCurriculum",
    "AsyncEnvironment",
    "AsyncItemStream",
    "AsyncPermit",
    "AsyncReplay",
    "AsyncSample",
    "AsyncTrainer",
    "AsyncWorker",
    "Batch",
    "Columns",
    "Curriculum",
    "Environment",
    "Group",
    "GroupView",
    "ItemStream",
    "LachesisError",
    "LeaseLost",
    "NoBatch",
    "NoItem",
    "NoPermit",
    "NotSent",
    "Permit",
    "Rank",
    "Replay",
    "Sample",
    "SequenceView",
    "ServiceError",
    "Settings",
    "Trainer",
    "Unreachable",
    "UntrustedCertificate",
    "Worker",
    "errors",
]


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
