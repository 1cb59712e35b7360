"""``python -m app backup`` and ``restore``, of a service that goes on."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from redis import Redis
from redis.asyncio import Redis as AsyncRedis

from app.store.groups.entries import group_name, parse_known
from app.store.redis.keys import FORMAT, RunKeys
from app.store.server.embedded import EmbeddedRedis
from tests.api.conftest import running_service
from tests.clients.command_line.terminal import piped
from tests.services.accounting import books_of
from tests.waiting import wait_until

pytestmark = [pytest.mark.long, pytest.mark.timeout(200)]


async def command(data_dir: Path, *words: str, **variables: str) -> tuple[int | None, str, str]:
    """Run a command of the server on a data directory; its exit code and what it printed."""
    return await piped(*words, module="app", LACHESIS_DATA_DIR=str(data_dir), **variables)


@asynccontextmanager
async def written_all_the_time(url: str) -> AsyncIterator[list[str]]:
    """Submit groups without a break, and list the ids of those that the service has acknowledged."""
    acknowledged: list[str] = []
    async with running_service(url) as service:
        (await service.post("/v1/runs", json={"name": "math", "batch_size": 4})).raise_for_status()

        async def write() -> None:
            row = [[1] * 200]
            while True:
                group = {"id": f"g-{len(acknowledged)}", "tokens": row, "masks": row, "scores": [1]}
                (await service.post("/v1/runs/math/groups", json=group)).raise_for_status()
                acknowledged.append(group["id"])

        writing = asyncio.create_task(write())
        try:
            yield acknowledged
        finally:
            writing.cancel()


async def test_a_backup_under_load_has_every_group_that_was_acknowledged_before(tmp_path: Path) -> None:
    kept, copied, elsewhere = tmp_path / "data", tmp_path / "backup", tmp_path / "elsewhere"
    with EmbeddedRedis.start(kept) as server:
        async with written_all_the_time(server.url) as acknowledged:
            await wait_until(lambda: len(acknowledged) >= 50)
            before = list(acknowledged)
            code, out, err = await command(kept, "backup", str(copied), "--json")
            assert (code, err) == (0, "")
            assert len(acknowledged) > len(before), "the service went on"
        manifest = json.loads(out)
        assert (manifest["store_format"], manifest["bytes"]) == (FORMAT, (copied / "data.rdb").stat().st_size)
        assert not (kept / "redis" / "dump.rdb").exists()
        assert [oct(path.stat().st_mode & 0o777) for path in (copied, copied / "data.rdb")] == ["0o700", "0o600"]
    code, out, err = await command(elsewhere, "restore", str(copied))
    assert (code, err) == (0, "")
    for _ in range(2):  # the second start reads what the first has written
        with EmbeddedRedis.start(elsewhere) as restored:
            async with AsyncRedis.from_url(restored.url) as redis:
                books = await books_of(redis, "math")  # every index agrees with every payload
                known = await redis.hgetall(RunKeys("math").known)
            ids = {parse_known(text.decode()).group_id: name.decode() for name, text in known.items()}
            queued = {ids[group] for group in books["queued"]}
            assert set(map(group_name, before)) <= queued
            assert queued <= {group_name(f"g-{number}") for number in range(len(acknowledged) + 1)}
            async with running_service(restored.url) as service:
                group = (await service.get(f"/v1/runs/math/groups/{before[0]}/content")).json()
                assert group["tokens"] == [[1] * 200]
                batch = (await service.post("/v1/runs/math/batches")).raise_for_status().json()
                given_back = f"/v1/runs/math/batches/{batch['batch']}/nack"
                (await service.post(given_back, json={"lease": batch["lease"]})).raise_for_status()


async def test_without_a_service_the_data_is_backed_up_too(tmp_path: Path) -> None:
    kept, copied = tmp_path / "data", tmp_path / "backup"
    code, _, err = await command(kept, "backup", str(copied))
    assert (code, "there is no data in" in err) == (1, True)
    with EmbeddedRedis.start(kept) as server, Redis.from_url(server.url) as redis:
        redis.set("lachesis:test", "1")
    assert (await command(kept, "backup", str(copied)))[0] == 0
    code, _, err = await command(kept, "backup", str(copied))
    assert (code, "is not empty" in err) == (1, True), err
    code, _, err = await command(kept, "restore", str(copied))
    assert (code, "already has data" in err) == (1, True), err
    code, _, err = await command(kept, "backup", str(tmp_path / "b"), LACHESIS_REDIS_URL="redis://127.0.0.1:1")
    assert (code, "your own Redis" in err) == (1, True), err
    no_folder = tmp_path / "odd"
    no_folder.mkdir()
    (no_folder / "redis").touch()
    code, _, err = await command(no_folder, "restore", str(copied))
    assert (code, f"cannot look into {no_folder}/redis" in err) == (1, True), err
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "redis" / "appendonlydir.part").mkdir(parents=True)  # of a restore that was killed
    (elsewhere / "redis" / "engine.json").write_bytes((kept / "redis" / "engine.json").read_bytes())
    assert (await command(elsewhere, "restore", str(copied)))[0] == 0
    with EmbeddedRedis.start(elsewhere) as server, Redis.from_url(server.url) as redis:
        assert redis.get("lachesis:test") == b"1"


@pytest.mark.parametrize("words", [("backup", "copy"), ("token", "list"), ("token", "revoke", "0f3a5c7e9b1d")])
async def test_a_directory_that_a_command_may_not_look_into_is_named_in_one_line(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    unusable = tmp_path / ("d" * 300)  # no user may look into it: root may look into those of all others
    code, out, err = await command(unusable, *words)
    assert (code, out) == (1, "")
    (line,) = err.splitlines()
    assert line.startswith(f"lachesis: cannot look into LACHESIS_DATA_DIR={unusable}: File name too long. ")


async def test_a_damaged_incomplete_or_foreign_backup_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    kept, copied, elsewhere = tmp_path / "data", tmp_path / "backup", tmp_path / "elsewhere"
    with EmbeddedRedis.start(kept):
        assert (await command(kept, "backup", str(copied)))[0] == 0
    manifest, data = (copied / "manifest.json").read_text(), (copied / "data.rdb").read_bytes()

    async def refusal() -> str:
        code, out, err = await command(elsewhere, "restore", str(copied))
        assert (code, out) == (1, "")
        assert not elsewhere.exists()
        return err

    (copied / "data.rdb").write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    assert "is damaged" in await refusal()
    (copied / "data.rdb").write_bytes(data)
    (copied / "manifest.json").write_text(json.dumps(json.loads(manifest) | {"store_format": FORMAT - 1}))
    assert f"this version reads format {FORMAT}" in await refusal()
    (copied / "manifest.json").write_text(json.dumps(json.loads(manifest) | {"engine_version": "99.0.0"}))
    assert "was written by Valkey 99.0.0" in await refusal()
    for hostile in (json.dumps(json.loads(manifest) | {"engine_version": "../../x"}), "[" * 200_000, "{"):
        (copied / "manifest.json").write_text(hostile)
        assert "cannot be read as a backup" in await refusal()
    (copied / "manifest.json").unlink()
    assert "is not a complete backup" in await refusal()
