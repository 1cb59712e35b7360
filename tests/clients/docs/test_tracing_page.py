"""The Python of docs/how-to/tracing.md runs as it is written, and its spans reach the service."""

import asyncio
from typing import Any

import numpy as np
import pytest
from opentelemetry.sdk.trace import TracerProvider

from lachesis import AsyncTrainer, Group, Settings
from tests.clients.docs.test_snippets import reader, snippets

__all__ = ["reader"]  # a fixture
pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


async def test_the_page_runs_as_it_is_written(reader: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opentelemetry.trace.get_tracer", TracerProvider().get_tracer)
    trained: list[Any] = []
    rows = np.ones((8, 3), np.int64)

    def rollout(_: str, policy_version: int) -> Group:
        return Group(tokens=rows, masks=rows, scores=[0.0, 1.0] * 4, policy_version=policy_version)

    async with AsyncTrainer(reader) as trainer:
        await trainer.create_run(batch_size=8)
    names: dict[str, Any] = {"tasks": ["a task"], "rollout": rollout, "train_on": trained.append}
    for snippet in snippets("docs/how-to/tracing.md"):
        await asyncio.to_thread(exec, snippet, names)
    assert len(trained) == 1
