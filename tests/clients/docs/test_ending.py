"""With the lines of the page, a program that gets SIGTERM ends as after Ctrl-C."""

import asyncio
import os
import re
import signal
import sys
from pathlib import Path

import pytest

from lachesis import AsyncEnvironment, AsyncTrainer, Settings
from tests.clients.run import group, submitted

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "how-to" / "python-sdk.md").read_text()
LINES = re.search(r"## End a program\n.*?```python\n(.*?)```", PAGE, re.DOTALL)

PROGRAMS = {
    "AsyncEnvironment": """
import asyncio
from lachesis import AsyncEnvironment, Group

async def main():
    async with AsyncEnvironment("gsm8k") as environment:
        await environment.submit(Group([[1]], [[1]], [1.0]))
        print("in the block", flush=True)
        await asyncio.sleep(60)

asyncio.run(main())
""",
    "Environment": """
import time
from lachesis import Environment, Group

with Environment("gsm8k") as environment:
    environment.submit(Group([[1]], [[1]], [1.0]))
    print("in the block", flush=True)
    time.sleep(60)
""",
    "Trainer": """
import time
from lachesis import Trainer

with Trainer() as trainer:
    for batch in trainer.batches():
        print("in the block", flush=True)
        time.sleep(60)
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
async def test_a_program_leaves_in_order_after_sigterm(run: Settings, name: str) -> None:
    assert LINES is not None
    if name == "Trainer":
        async with AsyncEnvironment("gsm8k", run) as environment:
            await submitted(environment, [group(1), group(2)])
    environ = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "clients"),
        "LACHESIS_URL": run.url,
        "LACHESIS_RUN": run.run,
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", LINES[1] + PROGRAMS[name], stdout=asyncio.subprocess.PIPE, env=environ
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"in the block\n"
    process.terminate()
    assert await process.wait() == -signal.SIGINT, "Python ends itself so after Ctrl-C"
    async with AsyncTrainer(run) as trainer:
        status = await trainer.status()
    assert [one.connected for one in status.environments] == [False]
    assert (status.groups.queued, status.leases) == (2 if name == "Trainer" else 1, [])
