"""docs/how-to/dataset-shards.md, carried out: its dataset, its command, and what it says is printed."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.forked import environment

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "dataset-shards.md").read_text()


def blocks(language: str) -> list[str]:
    """The page's blocks of a language."""
    return [text for name, text in re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.M | re.S) if name == language]


@pytest.mark.slow
def test_the_example_prints_what_the_page_says(tmp_path: Path) -> None:
    (program,), (command,), (printed,) = blocks("python"), blocks("sh"), blocks("")
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True, timeout=60)
    python, *arguments = shlex.split(command)
    assert python == ".venv/bin/python"
    ran = subprocess.run(
        [sys.executable, *arguments],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert ran.stdout == printed
    assert (tmp_path / "plot.png").read_bytes()[:4] == (ROOT / "docs" / "how-to" / "dataset-shards.png").read_bytes()[
        :4
    ]
    assert len(list((tmp_path / "plan").iterdir())) == 9
    (row,) = blocks("json")
    written = [json.loads(line) for line in (tmp_path / "plan/rank-00000-of-00008.jsonl").read_text().splitlines()]
    assert json.loads(row) in written
