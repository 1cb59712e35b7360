"""The programs in `examples/` run as they are, against a real service."""

import asyncio
import os
import re
import sys
from pathlib import Path

import pytest

from lachesis import AsyncTrainer, Settings

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


async def output(process: asyncio.subprocess.Process, code: int = 0) -> str:
    async with asyncio.timeout(90):
        out, _ = await process.communicate()
    assert process.returncode == code, out.decode()
    return out.decode()


async def round_of_both(settings: Settings, first: str, second: str) -> dict[str, list[str]]:
    """Start one program and then the other, as a reader would; the lines of each."""
    running = {first: await start(first, settings)}
    await asyncio.sleep(0.5)
    running[second] = await start(second, settings)
    return {program: (await output(process)).splitlines() for program, process in running.items()}


@pytest.mark.slow
async def test_the_two_programs_work_together_as_often_as_they_are_run(settings: Settings) -> None:
    async with AsyncTrainer(settings) as watching:
        orders = [("environment.py", "trainer.py"), ("trainer.py", "environment.py"), ("environment.py", "trainer.py")]
        for done, order in enumerate(orders):
            lines = await round_of_both(settings, *order)
            steps = range(5 * done + 1, 5 * done + 6)
            assert [line.split(":")[0] for line in lines["trainer.py"]] == [f"step {step}" for step in steps]
            assert lines["environment.py"][-1] == "addition: {'accepted': 20}"
            status = await watching.status()
            assert (status.groups.delivered, status.queue_size) == (20 * (done + 1), 0)
            assert status.policy_version == 5 * (done + 1)


@pytest.mark.slow
async def test_a_program_that_waits_in_vain_ends_with_the_reason(settings: Settings) -> None:
    for program, said in (
        ("environment.py", "WARNING there is no run math; .*create_run.* Waiting for it, 1 s at most\n.*no run math"),
        ("trainer.py", "trainer: no batch in 1 s: too_few_sequences: "),
    ):
        assert re.search(said, await output(await start(program, settings, "--wait-s", "1"), code=1), re.S)
    assert await output(await start("environment.py", settings))
    said = "addition: no permit for environment addition in 1 s: all 80 .* in hand: 80; .* when a trainer takes"
    assert re.search(said, await output(await start("environment.py", settings, "--wait-s", "1"), code=1))
