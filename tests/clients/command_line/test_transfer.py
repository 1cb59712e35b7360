"""``python -m lachesis export | import`` against a real service."""

import asyncio
import hashlib
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import httpx
import ml_dtypes
import numpy as np
import pytest

from lachesis import AsyncEnvironment, AsyncTrainer, Group, Settings
from lachesis._cli.lock import locked
from lachesis._transport.run_calls import RunCalls
from lachesis.wire.blob import Buffer, read_header
from tests.api import atropos_calls
from tests.clients.command_line.terminal import in_terminal, piped
from tests.clients.run import group, submitted
from tests.forked import environment
from tests.waiting import wait_until

pytestmark = [pytest.mark.long, pytest.mark.timeout(200)]

EVERYTHING = Group(
    [[1, 2, 2**40], [4, 5]],
    [[-100, 2, 3], [-100, 5]],
    [0.1, -0.0],
    advantages=[0.1, 1e300],
    inference_logprobs=[[-0.1, -1e-300, 1.0], [-2.5, 1 / 3]],
    distill_token_ids=[[[7, 8], [9, 10], [11, 12]], [[1], [2]]],
    policy_versions=[[0, 0, 0], [0, 0]],
    item="\u202eitem\x1b[2J",
    cost=1 / 3,
    metadata={"nested": {"\x1b": [None, 1.5]}},
    messages=[[{"role": "user", "content": "2 + 2?\n\x00"}], [{"role": "assistant", "content": "4", "extra": []}]],
    overrides=[{"set": 1}, {}],
    images=["base64"],
    tensors={
        "half": np.array([1.5, -2], ml_dtypes.bfloat16),
        "flags": np.array([[True, False]]),
        "annotations.own": np.arange(3),  # named like an annotation
    },
    id="everything",
)


async def contents(run: Settings, ids: list[str]) -> list[dict[str, Any]]:
    """What a run has of these groups, byte for byte, without the annotation and what differs from run to run."""
    async with AsyncTrainer(run) as trainer:
        names = {str(one.id): one.name for one in (await trainer.status()).environments}
        calls = [RunCalls(run.run).read_blob(one) for one in ids]
        return [described(await trainer._sender.send(call), names) for call in calls]


def described(content: Buffer, names: dict[str, str]) -> dict[str, Any]:
    header = read_header(content)
    found: dict[str, Any] = {
        name: (info.dtype, info.shape, bytes(content[info.start : info.end]))
        for name, info in header.tensors.items()
        if name != "annotations.entropy"
    }
    details = json.loads(found.pop("details")[2])
    found["details"] = {name: value for name, value in details.items() if value is not None}
    return found | header.metadata | {"environment": names.get(header.metadata.get("environment", ""))}


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("format_", ["safetensors", "jsonl", "parquet"])
async def test_groups_sent_in_json_and_by_clients_of_atropos_are_imported_once(
    run: Settings, tmp_path: Path, format_: str
) -> None:
    sent = {"tokens": [[1, 2]], "masks": [[-100, 2]], "scores": [1.0]}
    async with AsyncEnvironment("math", run) as environment, httpx.AsyncClient(base_url=run.url) as client:
        native = sent | {"id": "native", "environment": environment.id, "metadata": {"a": 1}}
        (await client.post("/v1/runs/math/groups", json=native)).raise_for_status()
        atropos = sent | {"env_id": environment.id, "messages": [[{"role": "user", "content": "2 + 2?"}]]}
        (await client.post("/runs/math/atropos/scored_data", json=atropos)).raise_for_status()
    where, folder = {"LACHESIS_URL": run.url, "LACHESIS_RUN": "math"}, str(tmp_path / "e")
    assert (await piped("export", folder, "--format", format_, **where))[0] == 0
    copy = Settings(run.url, run="copy")
    async with AsyncTrainer(run) as trainer, AsyncTrainer(copy) as other:
        await other.create_run(batch_size=2)
        ids = [one.id for one in (await trainer.list_groups()).groups]
        for _ in range(2):
            code, _, err = await piped("import", folder, "--run", "copy", LACHESIS_URL=run.url)
            assert code == 0, err
        assert (await other.status()).groups.accepted == 2
        imported, exported = await contents(copy, ids), await contents(run, ids)
    for before, after in zip(exported, imported, strict=True):
        before["details"].pop("env_id", None)
        assert before | {"id": after["id"], "environment": "math"} == after


async def test_groups_are_imported_into_a_run_whose_environment_a_client_of_atropos_registered(
    run: Settings, tmp_path: Path
) -> None:
    where, folder = {"LACHESIS_URL": run.url}, str(tmp_path / "e")
    async with AsyncEnvironment("math_0", run) as environment:
        await submitted(environment, [group(1)])
    assert (await piped("export", folder, "--run", "math", **where))[0] == 0
    async with httpx.AsyncClient(base_url=f"{run.url}/runs/at/atropos/") as client:
        await atropos_calls.register(client, 2)
        registered = await atropos_calls.register_env(client, "math", 1)
        assert registered["wandb_name"] == "math_0"
    code, _, err = await piped("import", folder, "--run", "at", **where)
    assert (code, err) == (0, "")
    async with AsyncTrainer(run, run="at") as trainer:
        (found,) = (await trainer.list_groups()).groups
        assert (found.environment, found.environment_name) == (registered["env_id"], "math_0")


@pytest.mark.parametrize("format_", ["safetensors", "jsonl", "parquet"])
async def test_an_import_gives_back_what_was_exported(run: Settings, tmp_path: Path, format_: str) -> None:
    async with AsyncEnvironment("math", run) as environment:
        ids = await submitted(environment, [EVERYTHING, group(1, 2), group(3)])
    async with AsyncTrainer(run) as trainer, AsyncTrainer(run, run="copy") as other:
        await other.create_run(batch_size=2)
        await trainer.annotate_group(EVERYTHING.id, {"entropy": [[0.5, 0.5, 0.5], [1, 1]]})
        copy = other.settings
    before = await contents(run, ids)
    assert before[0]["half"][0] == "BF16"
    where = {"LACHESIS_URL": run.url}
    code, out, err = await piped("export", str(tmp_path / "e"), "--run", "math", "--format", format_, **where)
    assert (code, out, err) == (0, "exported 3 groups in 1 part\n", "")
    assert {oct(path.stat().st_mode & 0o777) for path in (tmp_path / "e").iterdir()} == {"0o600"}
    for _ in range(2):  # what is repeated counts once
        code, out, err = await piped("import", str(tmp_path / "e"), "--run", "copy", "--json", **where)
        assert (code, json.loads(out), err) == (0, {"accepted": 3}, "")
    assert await contents(copy, ids) == before
    async with AsyncTrainer(copy) as other:
        assert (await other.status()).groups.accepted == 3


async def test_imported_groups_are_in_the_order_in_which_they_arrived(run: Settings, tmp_path: Path) -> None:
    async with AsyncEnvironment("math", run) as environment:
        ids = [(await submitted(environment, [group(number)]))[0] for number in range(5)]
    where, folder = {"LACHESIS_URL": run.url}, str(tmp_path / "e")
    async with AsyncTrainer(run, run="copy") as other:
        await other.create_run(batch_size=1)
        assert (await piped("export", folder, "--run", "math", "--part-groups", "2", **where))[0] == 0
        assert (await piped("import", folder, "--run", "copy", **where))[0] == 0
        assert [one.id for one in (await other.list_groups()).groups] == ids[::-1]


@pytest.mark.parametrize("columns", [80, 200])
async def test_a_bar_shows_progress_on_a_terminal(run: Settings, tmp_path: Path, columns: int) -> None:
    async with AsyncEnvironment("math", run) as environment:
        await submitted(environment, [group(1), group(2)])
    words = ["export", str(tmp_path / "e"), "--run", "math", "--format", "jsonl", "--part-groups", "1"]
    code, lines = await in_terminal(columns, *words, LACHESIS_URL=run.url)
    assert code == 0
    assert lines[-1] == "exported 2 groups in 2 parts"
    assert any("2/2" in line for line in lines)
    assert max(map(len, lines)) <= columns
    async with AsyncTrainer(run, run="copy") as other:
        await other.create_run(batch_size=2)
    words = ["import", str(tmp_path / "e"), "--run", "copy"]
    code, lines = await in_terminal(columns, *words, LACHESIS_URL=run.url)
    assert (code, lines[-1]) == (0, "submitted to copy: 2 accepted")
    assert any("2/2" in line for line in lines)
    assert max(map(len, lines)) <= columns


async def test_an_export_that_was_killed_goes_on_and_ends_with_the_same_files(run: Settings, tmp_path: Path) -> None:
    async with AsyncEnvironment("math", run) as sending:
        await submitted(sending, [group(*range(1, 2 + number)) for number in range(30)])
    options = ["--run", "math", "--format", "jsonl", "--part-groups", "1"]
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "lachesis", "export", str(killed), *options, env=environment(LACHESIS_URL=run.url)
    )
    await wait_until((killed / "part-00003.jsonl").exists, pause_s=0.001)
    process.kill()
    await process.wait()
    assert ".lock" in files_of(killed), "it stays behind, and does not keep the next export out"
    assert len(files_of(killed)) < 30
    code, _, err = await piped("import", str(killed), "--run", "math", LACHESIS_URL=run.url)
    assert (code, "no complete export" in err) == (2, True)
    for folder in (killed, whole):
        assert (await piped("export", str(folder), *options, LACHESIS_URL=run.url))[0] == 0
    assert files_of(killed) == files_of(whole)
    assert len(files_of(whole)) == 32


async def test_an_interrupted_export_does_not_exit_as_a_complete_one(tmp_path: Path) -> None:
    asked = asyncio.Event()

    async def never_answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        asked.set()
        await reader.read()
        writer.close()

    async with asyncio.timeout(100), await asyncio.start_server(never_answer, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        words = ["export", str(tmp_path / "e"), "--run", "math"]
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "lachesis", *words, env=environment(LACHESIS_URL=url)
        )
        await asked.wait()
        process.send_signal(signal.SIGINT)
        assert await process.wait() == 130


async def test_a_second_export_into_the_same_directory_is_refused_while_the_first_runs(
    run: Settings, tmp_path: Path
) -> None:
    folder, where = tmp_path / "e", {"LACHESIS_URL": run.url, "LACHESIS_RUN": "math"}
    async with AsyncEnvironment("math", run) as environment:
        await submitted(environment, [group(1)])
    with locked(folder):
        code, out, err = await piped("export", str(folder), **where)
        said = f"lachesis: another export writes into {folder}: wait until it ends, or use another DIR\n"
        assert (code, out, err) == (1, "", said)
        assert files_of(folder).keys() == {".lock"}
    assert files_of(folder).keys() == set()
    assert (await piped("export", str(folder), **where))[0] == 0
    assert files_of(folder).keys() == {"listing.jsonl", "manifest.json", "part-00000.safetensors"}


async def test_a_directory_that_cannot_be_made_is_refused_in_one_line(run: Settings, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    code, _, err = await piped("export", str(tmp_path / "file" / "e"), "--run", "math", LACHESIS_URL=run.url)
    assert (code, err) == (1, f"lachesis: {tmp_path / 'file' / 'e'} cannot be written to: Not a directory\n")


async def test_damage_and_other_directories_are_refused(run: Settings, tmp_path: Path) -> None:
    async with AsyncEnvironment("math", run) as environment:
        await submitted(environment, [group(1)])
    where, folder = {"LACHESIS_URL": run.url, "LACHESIS_RUN": "math"}, tmp_path / "e"
    assert (await piped("export", str(folder), **where))[0] == 0
    code, _, err = await piped("export", str(folder), "--format", "jsonl", **where)
    assert (code, "use another DIR" in err) == (2, True)
    part = folder / "part-00000.safetensors"
    part.write_bytes(part.read_bytes() + b"x")
    for command in ("export", "import"):
        code, _, err = await piped(command, str(folder), **where)
        assert (code, "is damaged" in err) == (1, True), err
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("…")
    remedy = "name the directory of an export, or an empty one to export into"
    for command in ("export", "import"):
        code, _, err = await piped(command, str(tmp_path / "mine"), **where)
        assert (code, "holds no export" in err, remedy in err) == (1, True, True), err
    assert files_of(tmp_path / "mine").keys() == {"thesis.tex"}


async def test_a_hostile_export_is_refused_and_no_file_outside_is_read(run: Settings, tmp_path: Path) -> None:
    where, folder = {"LACHESIS_URL": run.url, "LACHESIS_RUN": "math"}, tmp_path / "e"
    async with AsyncEnvironment("math", run) as environment:
        await submitted(environment, [group(1)])
    assert (await piped("export", str(folder), "--format", "jsonl", **where))[0] == 0
    manifest, part = json.loads((folder / "manifest.json").read_text()), folder / "part-00000.jsonl"
    (tmp_path / "outside.jsonl").write_bytes(part.read_bytes())

    async def refusal(**changed: Any) -> str:
        hostile = manifest | {"parts": [manifest["parts"][0] | changed]}
        (folder / "manifest.json").write_text(json.dumps(hostile))
        code, out, err = await piped("import", str(folder), **where)
        assert (code, out, "Traceback" in err) == (1, "", False), err
        return err

    twice = manifest | {"parts": manifest["parts"] * 2}
    for lying in (twice, twice | {"groups": 2}, manifest | {"groups": 2}):
        (folder / "manifest.json").write_text(json.dumps(lying))
        code, out, err = await piped("import", str(folder), **where)
        assert (code, out) == (1, ""), err
        assert ("a part is listed twice" if lying != manifest | {"groups": 2} else "its parts have 1 group") in err
    for name in (
        "../outside.jsonl",
        str(tmp_path / "outside.jsonl"),
        "/dev/zero",
        "part-00000.jsonl\0",
        "listing.jsonl",
    ):
        assert "cannot be read as an export" in await refusal(name=name)
    for line in (b"null", b"[1]", b'{"tokens": [[1]], "tensors": [1]}', b"[" * 200_000):
        part.write_bytes(line)
        assert "line 1" in await refusal(bytes=len(line), sha256=hashlib.sha256(line).hexdigest())
    part.unlink()
    part.symlink_to(tmp_path / "outside.jsonl")
    assert "is damaged" in await refusal()
    part.unlink()
    os.mkfifo(part)
    assert "is damaged" in await refusal()


async def test_groups_that_have_left_are_named_and_versions_can_be_left_out(run: Settings, tmp_path: Path) -> None:
    async with AsyncEnvironment("math", run) as environment, AsyncTrainer(run) as trainer:
        await trainer.change_run(keep_batches=0)
        await trainer.set_policy_version(3)
        gone = await submitted(environment, [group(1, policy_version=3), group(2, policy_version=3)])
        batch = await trainer.take()
        assert batch is not None
        await batch.ack()
        versions = Group([[1]], [[1]], [1.0], policy_versions=[[3]], policy_version=3)
        (left,) = await submitted(environment, [versions])
    words = ["--run", "math", "--json"]
    code, out, err = await piped("export", str(tmp_path / "e"), *words, LACHESIS_URL=run.url)
    assert (code, json.loads(out)["parts"][0]["groups"], err) == (0, 1, "")
    code, out, err = await piped("export", str(tmp_path / "d"), *words, "--state", "delivered", LACHESIS_URL=run.url)
    (part,) = json.loads(out)["parts"]
    assert (code, part["groups"], len(part["missing"])) == (0, 0, len(gone))
    assert "2 groups had left" in err
    async with AsyncTrainer(run, run="copy") as other:
        await other.create_run(batch_size=2, future_versions="refuse")
        words = ["import", str(tmp_path / "e"), "--run", "copy"]
        code, out, _ = await piped(*words, LACHESIS_URL=run.url)
        assert (code, out) == (1, "submitted to copy: 1 refused\n")
        await other.delete_run()
        await other.create_run(batch_size=2, future_versions="refuse")
        code, out, _ = await piped(*words, "--no-versions", LACHESIS_URL=run.url)
        assert (code, out) == (0, "submitted to copy: 1 accepted\n")
        assert (await other.read_group(left)).policy_version is None


async def test_an_import_that_a_run_refuses_is_no_wrong_use(run: Settings, tmp_path: Path) -> None:
    async with AsyncEnvironment("math", run) as environment, AsyncTrainer(run, run="short") as other:
        await submitted(environment, [group(1, 2)])
        await other.create_run(batch_size=2, max_sequence_tokens=1, long_sequences="refuse")
    assert (await piped("export", str(tmp_path / "e"), "--run", "math", LACHESIS_URL=run.url))[0] == 0
    code, out, err = await piped("import", str(tmp_path / "e"), "--run", "short", LACHESIS_URL=run.url)
    assert (code, out) == (1, "")
    assert "has 2 tokens; the run takes 1 at most" in err
