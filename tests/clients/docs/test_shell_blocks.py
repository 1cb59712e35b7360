"""The curl commands of the documents, run as they are written, page by page, against a real service."""

import asyncio
import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from lachesis import AsyncTrainer, Settings

pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="the documents use curl")

HOW_TO = Path(__file__).parents[3] / "docs" / "how-to"
STORIES = [
    ["http-api.md", "many-workers.md"],
    ["replay.md"],
    ["curriculum.md"],
    ["no-batch.md", "filters.md"],
    ["follow-a-run.md"],
]
PLACEHOLDERS = {"ID": "batch", "LEASE": "lease", "SAMPLE": "sample"}


def commands(page: str) -> Iterator[str]:
    """Yield the curl commands and the assignments of a page's shell blocks."""
    for block in re.findall(r"^```sh\n(.*?)^```$", (HOW_TO / page).read_text(), re.M | re.S):
        pending = ""
        for line in block.splitlines(keepends=True):
            pending += line
            try:
                words = shlex.split(pending, comments=True)
            except ValueError:  # a quoted body that continues on the next line
                continue
            if pending.endswith("\\\n"):
                continue
            if words and (words[0] == "curl" or "=" in words[0]):
                yield pending
            pending = ""
        assert not pending


@pytest.mark.parametrize("pages", STORIES, ids="+".join)
async def test_the_commands_of_a_page_succeed(pages: list[str], settings: Settings, tmp_path: Path) -> None:
    async with AsyncTrainer(settings) as trainer:  # the run `math`, which some pages take for granted
        await trainer.create_run(batch_size=128)
    assigned, replied, sent = "", dict[str, str](), 0
    for command in (command for page in pages for command in commands(page)):
        if not command.startswith("curl"):
            assigned += command
            continue
        script = assigned + command
        for placeholder, field in PLACEHOLDERS.items():
            script = re.sub(rf"\b{placeholder}\b", replied.get(field, placeholder), script)
        printed = await asyncio.to_thread(_shell, script.replace("localhost:8000", settings.url), tmp_path)
        sent += 1
        if printed.startswith("{"):
            replied |= {name: value for name, value in json.loads(printed).items() if isinstance(value, str)}
    assert sent >= 2


def _shell(script: str, folder: Path) -> str:
    """Run a script whose curl fails on a 4xx or 5xx; return what it prints."""
    strict = "curl() { command curl -sS --fail-with-body --noproxy '*' \"$@\"; }\n"
    ran = subprocess.run(
        ["bash", "-c", strict + script], cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == 0, f"{script}\n{ran.stdout}\n{ran.stderr}"
    return ran.stdout
