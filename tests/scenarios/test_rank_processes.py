"""Four rank processes share each batch; one is killed; all restart from the checkpoint."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.e2e.service import Service
from tests.scenarios.native_calls import make_run, status, submit
from tests.scenarios.rank_process import ALONE

pytestmark = [pytest.mark.long, pytest.mark.timeout(180)]

ROOT = Path(__file__).parents[2]
WORLD, STEPS, DIES_AT = 4, 8, 5
GROUPS = [f"g{number:02}" for number in range(4 * STEPS)]


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    started = Service(tmp_path, workers=2)
    yield started
    started.stop()


async def test_after_crashes_of_ranks_each_group_is_trained_on_once(service: Service, tmp_path: Path) -> None:
    async with httpx.AsyncClient(base_url=service.url, timeout=60, trust_env=False) as client:
        await make_run(client, batch_size=8)
        await submit(client, *GROUPS)
        killed = await attempt(service.url, tmp_path, 0, DIES_AT)
        assert killed == [ALONE, ALONE, ALONE, -signal.SIGKILL]
        assert await attempt(service.url, tmp_path, 1, 0) == [0] * WORLD

        before, after = history(tmp_path, 0), history(tmp_path, 1)
        assert sorted(before) == [1, 2, 3, 4, DIES_AT], "each step is of all ranks; the last lacks the one that died"
        assert sorted(after) == [4, 5, 6, 7, 8], "from the state that was saved after step 3"
        assert after[4] == before[4], "the same shards again"
        assert after[5][:-1] == before[5][:-1]
        survived = {step: before[step] for step in (1, 2, 3)} | after
        assert [sorted(group for shard in shards for group in shard) for shards in survived.values()] == [
            GROUPS[4 * step : 4 * step + 4] for step in range(STEPS)
        ]
        assert all(len(shard) == 1 for shards in survived.values() for shard in shards)
        groups = (await status(client))["groups"]
        assert (groups["delivered"], groups["queued"], groups["leased"]) == (4 * STEPS, 0, 0)


async def attempt(url: str, directory: Path, number: int, dies_at: int) -> list[int]:
    """Run all ranks until they end; return their exit codes."""
    ranks = []
    for rank in range(WORLD):
        environ = {
            **os.environ,
            "PYTHONPATH": f"{ROOT / 'clients'}{os.pathsep}{ROOT}",
            "LACHESIS_URL": url,
            "LACHESIS_RUN": "run",
            "RANK": str(rank),
            "WORLD_SIZE": str(WORLD),
        }
        command = [
            sys.executable,
            "-m",
            "tests.scenarios.rank_process",
            directory,
            str(number),
            str(STEPS),
            str(dies_at),
        ]
        ranks.append(await asyncio.create_subprocess_exec(*command, env=environ, cwd=ROOT))
    async with asyncio.timeout(90):
        return [await rank.wait() for rank in ranks]


def history(directory: Path, attempt: int) -> dict[int, list[list[str]]]:
    """Return what each rank got, by step, in one attempt."""
    steps: dict[int, list[list[str]]] = {}
    for rank in range(WORLD):
        for line in (directory / f"trained-{rank}").read_text().splitlines():
            number, step, groups = json.loads(line)
            if number == attempt:
                steps.setdefault(step, [[] for _ in range(WORLD)])[rank] = groups
    return steps
