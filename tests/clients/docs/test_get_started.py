"""The two programs of docs/get-started.md, run as they are written."""

import asyncio
import os
import re
import sys
from pathlib import Path

from lachesis import Settings

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "get-started.md").read_text()
TRAINER, ENVIRONMENT = re.findall(r"^```python\n(.*?)^```$", PAGE, re.M | re.S)
ADDRESS = "http://127.0.0.1:8000"


async def test_the_environment_and_the_trainer_of_the_page_print_what_it_says(settings: Settings) -> None:
    trained, submitted = await asyncio.gather(_run(TRAINER, settings.url), _run(ENVIRONMENT, settings.url))
    assert [line.split(",")[0] for line in trained] == [f"step {step}: tokens (16" for step in range(1, 6)]
    assert submitted == ["{'accepted': 20}"]
    assert all(re.fullmatch(r"step \d: tokens \(16, \d\), mean score \d\.\d\d", line) for line in trained)
    assert f"`{submitted[0]}`" in PAGE


async def test_each_start_of_the_trainer_takes_five_batches(settings: Settings) -> None:
    """Also if it had taken another one in advance, whose step is not used again."""

    async def started_twice() -> list[int]:
        return [len(await _run(TRAINER, settings.url)) for _ in range(2)]

    environments = (_run(ENVIRONMENT, settings.url) for _ in range(2))
    batches, *_ = await asyncio.gather(started_twice(), *environments)
    assert batches == [5, 5]


async def _run(program: str, url: str) -> list[str]:
    """Run a program of the page in a process of its own; return the lines that it prints."""
    assert program.count(ADDRESS) == 1
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        program.replace(ADDRESS, url),
        env={**os.environ, "PYTHONPATH": str(ROOT / "clients")},
        stdout=asyncio.subprocess.PIPE,
    )
    printed, _ = await asyncio.wait_for(process.communicate(), 90)
    assert process.returncode == 0
    return printed.decode().splitlines()
