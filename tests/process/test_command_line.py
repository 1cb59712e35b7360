"""Commands as processes, without a service."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def lachesis(*arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith("LACHESIS_")}
    command = [sys.executable, "-m", "app", *arguments]
    env = own | {"PYTHONPATH": "clients", "COLUMNS": "200"} | settings
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False, timeout=60)


def test_without_a_command_it_shows_help() -> None:
    done = lachesis()
    assert done.returncode == 0
    assert all(command in done.stdout for command in ("serve", "status", "version"))


def test_wrong_settings_are_named_one_line_each() -> None:
    done = lachesis("serve", LACHESIS_PORT="high", LACHESIS_WORKERS="0")
    assert done.returncode == 1
    assert [line.split(": ")[:2] for line in done.stderr.splitlines()] == [
        ["lachesis", "LACHESIS_PORT=high"],
        ["lachesis", "LACHESIS_WORKERS=0"],
    ]


def test_the_status_of_a_service_that_is_not_there_is_one_line() -> None:
    done = lachesis("status", LACHESIS_URL="http://me:pa55word@127.0.0.1:1")
    assert done.returncode == 3
    (line,) = done.stderr.splitlines()
    assert "GET http://127.0.0.1:1/v1/runs" in line
