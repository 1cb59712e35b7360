"""The script ``lachesis`` that the wheel installs, and its completion in shells."""

import asyncio
import os
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

from lachesis.__main__ import WITH_EXTRA
from lachesis._cli.commands import cli
from tests.forked import ROOT, environment

_SCRIPT = "import sys; sys.argv[0] = '/usr/bin/lachesis'; from lachesis.__main__ import main; sys.exit(main())"


_FROM_BASH = ["bash", "-c", '"$0" "$@"; exit $?']  # bash stays: the script looks for the shell that started it


async def run_script(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run what pip writes into the script, with its name, from bash."""
    command = [*_FROM_BASH, sys.executable, "-c", _SCRIPT, *words]
    done = await asyncio.to_thread(
        subprocess.run, command, env=environment(**variables), capture_output=True, text=True, check=False
    )
    assert isinstance(done, subprocess.CompletedProcess)
    return done


def test_the_script_calls_what_the_module_calls() -> None:
    written = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]["scripts"]
    module, _, name = written["lachesis"].partition(":")
    assert getattr(import_module(module), name) is import_module("lachesis.__main__").main


def test_every_command_of_the_extra_is_found_without_it() -> None:
    names = {command.name or getattr(command.callback, "__name__", "") for command in cli.registered_commands}
    assert names == set(WITH_EXTRA)


async def test_a_shell_completes_commands_options_and_values() -> None:
    async def completed(*words: str) -> list[str]:
        asked = {"COMP_WORDS": " ".join(["lachesis", *words]), "COMP_CWORD": str(len(words))}
        return (await run_script(_LACHESIS_COMPLETE="complete_bash", **asked)).stdout.split()

    assert await completed("gr") == ["groups"]
    assert await completed("groups", "--stale") == ["--staleness-min"]
    assert await completed("groups", "--state", "qu") == ["queued"]
    shown = await run_script("--show-completion")
    assert "_LACHESIS_COMPLETE=complete_bash" in shown.stdout, shown


@pytest.mark.parametrize("option", ["--install-completion", "--show-completion"])
def test_only_the_script_is_completed(option: str, tmp_path: Path) -> None:
    """A shell completes by the first word, and `python` has a completion of its own."""
    asked = environment(HOME=str(tmp_path), PYTHONPATH=str(ROOT / "clients"))
    command = [*_FROM_BASH, sys.executable, "-m", "lachesis", option]
    done = subprocess.run(command, env=asked, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"run lachesis {option}" in done.stderr
    assert list(tmp_path.iterdir()) == []


async def test_help_names_the_script() -> None:
    assert (await run_script("groups", "--help")).stdout.split()[:3] == ["Usage:", "lachesis", "groups"]
    shown = (await run_script("--help")).stdout
    assert shown.startswith("usage: lachesis ")
    assert "--install-completion" in shown.partition("\noptions:")[2]


async def test_the_version_is_that_of_the_installed_sdk(tmp_path: Path) -> None:
    assert (await run_script("--version")).stdout == "lachesis unknown\n", "in a clone nothing is installed"
    (tmp_path / "lachesis-7.8.9.dist-info").mkdir()
    (tmp_path / "lachesis-7.8.9.dist-info" / "METADATA").write_text("Name: lachesis\nVersion: 7.8.9\n")
    path = os.pathsep.join((str(ROOT / "clients"), str(tmp_path)))
    assert (await run_script("--version", PYTHONPATH=path)).stdout == "lachesis 7.8.9\n"


async def test_help_names_the_extra_only_where_it_is_missing() -> None:
    assert "(extra `cli`)" not in (await run_script("--help")).stdout
    without = "import sys, lachesis.__main__ as m; m.find_spec = lambda _: None; sys.exit(m.main(['--help']))"
    command = [sys.executable, "-c", without]
    done = await asyncio.to_thread(
        subprocess.run, command, env=environment(), capture_output=True, text=True, check=True
    )
    assert "show the runs, or the status of one (extra `cli`)" in " ".join(done.stdout.split())
