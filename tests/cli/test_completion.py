"""The completion of ``python -m app`` that shells get. Each shell runs it itself, if this machine has that shell."""

import asyncio
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.clients.command_line.terminal import environment, piped

pytestmark = pytest.mark.long

ASK = {
    "bash": 'COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _lachesis_app "$1"; printf "%s\\n" "${COMPREPLY[@]}"',
    "zsh": 'words=("$@"); CURRENT=$#; _lachesis_app',
    "fish": 'complete -C "$argv"',
}
BEFORE = {"zsh": 'compdef() {}; compadd() { shift; print -l -- "$@" }; _python() { print zsh }; '}
"""Outside of its line editor, zsh cannot complete: print what it would offer."""


async def completed(shell: str, folder: Path, *words: str) -> list[str]:
    """Let a shell complete the last of the words."""
    code, script, complaint = await piped("completion", shell, module="app")
    assert code == 0, complaint
    (folder / "script").write_text(script)
    asks = f"{BEFORE.get(shell, '')}source {folder / 'script'}; {ASK[shell]}"
    named = [] if shell == "fish" else [shell]  # the first word after -c is $0, but not in fish
    done = await asyncio.to_thread(
        subprocess.run,
        [shell, "-c", asks, *named, sys.executable, *words],
        env=environment(HOME=str(folder)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.stderr
    return [line.split("\t")[0] for line in done.stdout.splitlines() if line]


@pytest.mark.timeout(200)
@pytest.mark.parametrize("shell", ASK)
async def test_a_shell_completes_commands_options_and_values(shell: str, tmp_path: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"this machine has no {shell}")
    assert await completed(shell, tmp_path, "-m", "app", "back") == ["backup"]
    assert await completed(shell, tmp_path, "-m", "app", "token", "revo") == ["revoke"]
    assert await completed(shell, tmp_path, "-m", "app", "groups", "--stale") == ["--staleness-min"]
    assert await completed(shell, tmp_path, "-m", "app", "groups", "--state", "qu") == ["queued"]
    assert "backup" not in await completed(shell, tmp_path, "-m", "another", "back"), "it is of another program"


async def test_an_unknown_shell_is_refused_with_those_that_there_are() -> None:
    code, _, complaint = await piped("completion", "nosh", module="app")
    assert code == 2
    assert "bash" in complaint
