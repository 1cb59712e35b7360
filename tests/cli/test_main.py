"""``python -m app``: what it has beside the commands of the SDK, whose tests are in ``tests/clients/command_line``."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from app.cli.main import cli
from app.store.server.embedded import EmbeddedRedis
from app.version import lachesis_version
from lachesis._cli.commands import COMMANDS
from tests.api.access.conftest import Tokens, tokens
from tests.api.conftest import Start, start
from tests.clients.command_line.terminal import in_terminal
from tests.datasets.writers import write_lines

__all__ = ["start", "tokens"]  # fixtures

RUN = {"name": "math", "batch_size": 8}


async def invoked(*words: str) -> tuple[int, str, str]:
    """Run a command beside a service, which has this event loop; its exit code and what it printed."""
    done = await asyncio.to_thread(CliRunner().invoke, cli, words)
    return done.exit_code, done.stdout, done.stderr


async def invoked_with(settings: dict[str, str], *words: str) -> tuple[int, str, str]:
    """Run a command with settings of the service."""
    done = await asyncio.to_thread(CliRunner().invoke, cli, words, env=settings)
    return done.exit_code, done.stdout, done.stderr


async def status(service: httpx.AsyncClient, *arguments: str) -> tuple[int, str, str]:
    """Run ``status`` for a service."""
    return await invoked("status", *arguments, "--url", str(service.base_url))


@pytest.mark.long
@pytest.mark.parametrize("columns", [80, 200])
async def test_what_only_the_server_has_is_shown_on_a_terminal(tmp_path: Path, columns: int) -> None:
    settings = {"LACHESIS_DATA_DIR": str(tmp_path / "data")}

    async def shown(*words: str) -> list[str]:
        code, lines = await in_terminal(columns, *words, module="app", **settings)
        assert code == 0, lines
        assert [line for line in lines if not line.isprintable()] == []
        return lines

    made = await shown("token", "create", "--role", "viewer", "--run", "*", "--name", "n" * 120)
    assert made[-1].startswith("lch_view_")
    header, row = (await shown("token", "list"))[-2:]
    assert header.split()[:4] == ["id", "name", "role", "runs"]
    assert "n" * 9 in row
    assert header.split()[4:] == ["state", "ends", "last", "used"], "a long name hides no column"
    assert max(map(len, (header, row))) <= columns
    token_id = row.split()[0]
    again = (await shown("token", "rotate", token_id))[-1]
    assert again.startswith("lch_view_")
    rotated = json.loads((await invoked_with(settings, "token", "rotate", token_id, "--json"))[1])
    assert (rotated["id"], rotated["role"], token_id in rotated["token"]) == (token_id, "viewer", True)
    revoked = json.loads((await invoked_with(settings, "token", "revoke", token_id, "--json"))[1])
    assert revoked == {"id": token_id, "state": "revoked"}
    said = (await shown("token", "revoke", token_id))[-1]
    assert said == f"token {token_id} is revoked"
    version = await shown("version")
    dataset = write_lines(tmp_path / "episodes.jsonl", [*range(10, 410, 10)])
    plan = [line for line in await shown("shards", "plan", str(dataset), "--ranks", "40") if str(dataset) not in line]
    assert max(map(len, [again, said, *version, *plan])) <= columns
    assert "backed up" in "".join(await shown("backup", str(tmp_path / "backup")))
    settings["LACHESIS_DATA_DIR"] = str(tmp_path / "again")
    assert "restored" in "".join(await shown("restore", str(tmp_path / "backup")))


@pytest.mark.long
async def test_without_tokens_their_list_in_json_has_no_line(tmp_path: Path) -> None:
    settings = {"LACHESIS_DATA_DIR": str(tmp_path / "data")}
    with EmbeddedRedis.start(tmp_path / "data"):
        pass
    assert (await invoked_with(settings, "token", "list"))[:2] == (0, "there are no tokens\n")
    assert (await invoked_with(settings, "token", "list", "--json"))[:2] == (0, "")


def test_it_has_every_command_of_the_sdk() -> None:
    shown = CliRunner().invoke(cli, ["--help"]).stdout
    assert [name for name in COMMANDS if f"  {name} " not in shown] == []


async def test_the_commands_ask_the_service_of_the_settings(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    service = await start()
    (await service.post("/v1/runs", json=RUN)).raise_for_status()
    monkeypatch.setenv("LACHESIS_HOST", "0.0.0.0")
    monkeypatch.setenv("LACHESIS_PORT", str(service.base_url.port))
    code, out, _ = await invoked("status")
    assert (code, out.splitlines()[1].split()[0]) == (0, "math")
    code, out, _ = await invoked("explain", "math", "--json")
    assert (code, json.loads(out)["ready"]) == (1, False)
    monkeypatch.setenv("LACHESIS_PORT", "many")
    code, out, err = await invoked("status")
    assert (code, out, err.startswith("lachesis: LACHESIS_PORT=many: ")) == (1, "", True)
    monkeypatch.setenv("LACHESIS_URL", str(service.base_url))
    assert (await invoked("status"))[0] == 0


async def test_status_sends_the_token_of_the_variable_or_the_file(
    start: Start, tokens: Tokens, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = await tokens.make("viewer", "*")
    service, file = await start(), tmp_path / "token"
    code, _, err = await status(service)
    assert (code, "set LACHESIS_TOKEN or LACHESIS_TOKEN_FILE" in err) == (4, True)
    monkeypatch.setenv("LACHESIS_TOKEN_FILE", str(file))
    code, _, err = await status(service)
    assert (code, err) == (2, f"lachesis: token_file: cannot read {file}: No such file or directory\n")
    file.write_text(token + "\n")
    assert (await status(service))[0] == 0
    monkeypatch.setenv("LACHESIS_TOKEN", token[:-1] + "~")
    assert (await status(service))[0] == 4
    monkeypatch.setenv("LACHESIS_TOKEN", token)
    file.unlink()
    assert (await status(service))[0] == 0


@pytest.mark.parametrize(
    ("argument", "said"),
    [("--port", "LACHESIS_PORT sets it"), ("--data-dir=x", "LACHESIS_DATA_DIR sets it"), ("x", "variables set all")],
)
def test_an_option_of_serve_is_answered_with_its_variable(argument: str, said: str) -> None:
    done = CliRunner().invoke(cli, ["serve", argument])
    assert (done.exit_code, said in done.stderr) == (2, True), done.stderr


def test_the_version_can_be_asked_for_in_both_ways() -> None:
    option, command = (CliRunner().invoke(cli, [asked]) for asked in ("--version", "version"))
    assert option.stdout == command.stdout == f"lachesis {lachesis_version()}\n"
    assert json.loads(CliRunner().invoke(cli, ["version", "--json"]).stdout) == {"version": lachesis_version()}


def test_a_python_without_dependencies_gets_a_hint() -> None:
    command = [sys.executable, "-S", "-m", "app", "status"]
    done = subprocess.run(
        command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert line.endswith("has no module typer: use .venv/bin/python, which `make run` sets up")
