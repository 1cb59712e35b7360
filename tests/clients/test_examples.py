"""The programs in `examples/` run as they are, against a real service."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from lachesis import AsyncTrainer, Settings
from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]


async def start(program: str, settings: Settings, *arguments: str) -> asyncio.subprocess.Process:
    environ = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "clients"),
        "LACHESIS_URL": settings.url,
        "LACHESIS_RUN": settings.run,
    }
    pipe = asyncio.subprocess.PIPE
    command = [sys.executable, str(ROOT / "examples" / program), *arguments]
    return await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=asyncio.subprocess.STDOUT, env=environ)


async def output(process: asyncio.subprocess.Process) -> str:
    async with asyncio.timeout(90):
        out, _ = await process.communicate()
    assert process.returncode == 0, out.decode()
    return out.decode()


@pytest.mark.slow
async def test_the_two_programs_work_together(settings: Settings) -> None:
    trainer = await start("trainer.py", settings, "--steps", "5")
    async with AsyncTrainer(settings) as watching:
        await wait_until(lambda: _is_there(watching))
        environment = await start("environment.py", settings, "--groups", "20")
        lines = (await output(trainer)).splitlines()
        assert [line.split(":")[0] for line in lines] == [f"step {step}" for step in range(1, 6)]
        assert await output(environment) == "addition: {'accepted': 20}\n"
        status = await watching.status()
        assert status.groups.delivered + status.groups.queued + sum(status.dropped.values()) == 20
        assert (await watching.run()).policy_version == 5


async def _is_there(trainer: AsyncTrainer) -> bool:
    from lachesis.errors import RunNotFound

    try:
        await trainer.run()
    except RunNotFound:
        return False
    return True
