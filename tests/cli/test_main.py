"""``python -m app status``, against a real service."""

import asyncio
import re
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from redis.asyncio import Redis
from typer.testing import CliRunner

from app.cli.main import cli
from app.store.redis.keys import RunKeys
from app.version import lachesis_version
from tests.api.access.conftest import Tokens, tokens
from tests.api.conftest import Start, start
from tests.waiting import wait_until

__all__ = ["start", "tokens"]  # fixtures

RUN = {"name": "math", "batch_size": 8}


async def status(service: httpx.AsyncClient, *arguments: str) -> tuple[int, str, str]:
    """Run the command beside the service, which has this event loop; its exit code and what it printed."""
    command = ["status", "--url", str(service.base_url), *arguments]
    done = await asyncio.to_thread(CliRunner().invoke, cli, command)
    return done.exit_code, done.stdout, done.stderr


async def test_status_of_a_missing_run_creates_no_run(start: Start) -> None:
    service = await start()
    code, out, err = await status(service, "--run", "typo")
    assert (code, out) == (1, "")
    assert err == "lachesis: there is no run typo; nobody has made one yet\n"
    (await service.post("/v1/runs", json=RUN)).raise_for_status()
    code, _, err = await status(service, "--run", "typo")
    assert (code, err) == (1, "lachesis: there is no run typo; there are: math\n")
    assert [run["name"] for run in (await service.get("/v1/runs")).json()["runs"]] == ["math"]


@pytest.mark.parametrize("arguments", [["--run", "math"], ["--run", "math", "--json"]])
async def test_a_run_that_is_there_is_described(start: Start, arguments: list[str]) -> None:
    service = await start()
    (await service.post("/v1/runs", json=RUN)).raise_for_status()
    code, out, err = await status(service, *arguments)
    assert (code, err) == (0, "")
    assert "math" in out


async def test_the_cli_reads_the_variables_of_the_sdk(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    service = await start()
    (await service.post("/v1/runs", json=RUN)).raise_for_status()
    monkeypatch.setenv("LACHESIS_URL", str(service.base_url))
    monkeypatch.setenv("LACHESIS_RUN", "math")
    done = await asyncio.to_thread(CliRunner().invoke, cli, ["status"])
    assert (done.exit_code, "run math" in done.stdout) == (0, True)


async def test_status_sends_the_token_of_the_variable_or_the_file(
    start: Start, tokens: Tokens, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = await tokens.make("viewer", "default")
    service, file = await start(), tmp_path / "token"
    code, _, err = await status(service)
    assert (code, "set LACHESIS_TOKEN or LACHESIS_TOKEN_FILE" in err) == (1, True)
    monkeypatch.setenv("LACHESIS_TOKEN_FILE", str(file))
    code, _, err = await status(service)
    assert (code, err) == (1, f"lachesis: LACHESIS_TOKEN_FILE: cannot read {file}: No such file or directory\n")
    file.write_text(token + "\n")
    assert (await status(service))[0] == 0
    monkeypatch.setenv("LACHESIS_TOKEN", token[:-1] + "~")
    assert (await status(service))[0] == 1
    monkeypatch.setenv("LACHESIS_TOKEN", token)
    file.unlink()
    assert (await status(service))[0] == 0


async def test_leased_batches_and_their_imbalance_are_shown(start: Start) -> None:
    service = await start()
    (await service.post("/v1/runs", json={"name": "math", "batch_size": 2})).raise_for_status()
    for length in (1, 3):
        sequence = [[1] * length]
        submitted = await service.post(
            "/v1/runs/math/groups", json={"tokens": sequence, "masks": sequence, "scores": [0]}
        )
        submitted.raise_for_status()
    (await service.post("/v1/runs/math/batches?rank=1&world_size=2")).raise_for_status()
    _, out, _ = await status(service, "--run", "math")
    assert "not acknowledged: step 1 held, delivery 1\n" in out
    assert "ranks: 1 batches for 2, mean imbalance 50.0% (contiguous 50.0%, bound 50.0%)\n" in out


async def test_the_default_run_is_shown_before_a_trainer_registers(start: Start) -> None:
    code, out, _ = await status(await start())
    assert code == 0
    assert "run default" in out


async def test_an_invalid_run_name_is_refused(start: Start) -> None:
    code, _, err = await status(await start(), "--run", "a b")
    assert (code, err.startswith("lachesis: --run: should be the name of a run")) == (1, True)


async def test_a_url_with_a_path_is_refused_with_a_hint(start: Start) -> None:
    service = await start()
    for path, said in (
        ("v1/runs/default", "--url: should name the service alone, without '/v1/runs/default'; give the run as `run`"),
        ("v1", "--url: should name the service alone, without '/v1'"),
        ("metrics", f"{service.base_url}/metrics lists no runs: use the root of the service, such as http"),
    ):
        done = await asyncio.to_thread(CliRunner().invoke, cli, ["status", "--url", f"{service.base_url}/{path}"])
        assert (done.exit_code, said in done.stderr) == (1, True), done.stderr


async def test_a_missing_batch_size_is_shown_in_words(start: Start) -> None:
    _, out, _ = await status(await start())
    assert " · batch size not set · " in out


async def test_one_sequence_is_singular(start: Start) -> None:
    service = await start()
    (await service.post("/v1/runs", json={"name": "math", "batch_size": 1})).raise_for_status()
    _, out, _ = await status(service, "--run", "math")
    assert "blocked: a batch needs 1 sequence, 0 usable ones are queued\n" in out


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


async def test_a_replay_buffer_and_curricula_are_described(start: Start) -> None:
    service = await start()
    (await service.post("/v1/runs", json=RUN)).raise_for_status()
    (await service.put("/v1/runs/math/replay", json={})).raise_for_status()
    curriculum = "/v1/runs/math/curricula/gsm8k"
    (await service.put(curriculum, json={})).raise_for_status()
    (await service.post(f"{curriculum}/items", json={"items": ["a", "b"]})).raise_for_status()
    (await service.post(f"{curriculum}/samples", json={"n": 1})).raise_for_status()
    _, out, _ = await status(service, "--run", "math")
    assert "\nreplay: 0 chunks to sample from, 0 samples held\n" in out
    assert "\nreplay: samples wait: sampling 1 needs 1 sampleable chunks, 0 are there\n" in out
    assert out.endswith("\ncurriculum gsm8k: uniform, 0 of 2 items seen, 1 in flight\n")


async def test_failing_upkeep_is_shown(start: Start, redis_client: Redis) -> None:
    service = await start()
    (await service.post("/v1/runs", json=RUN)).raise_for_status()
    await redis_client.set(RunKeys("math").marked_hashes, "no set")

    async def shown() -> bool:
        _, out, _ = await status(service, "--run", "math")
        return bool(re.search("\nmaintenance fails for [0-9]+ s: Redis refused a command: WRONGTYPE", out))

    await wait_until(shown)


def test_a_python_without_dependencies_gets_a_hint() -> None:
    command = [sys.executable, "-S", "-m", "app", "status"]
    done = subprocess.run(
        command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert line.endswith("has no module httpx: use .venv/bin/python, which `make run` sets up")
