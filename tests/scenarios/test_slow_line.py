"""Between the service and its Redis there may be a slow line: what moves is waited for, however long it takes."""

from pathlib import Path

import numpy as np
import pytest
from redis.asyncio import Redis

from lachesis import Group
from lachesis.wire.groups import SAFETENSORS
from tests.api.conftest import running_service
from tests.lossy_line import lossy_line
from tests.scenarios.native_calls import RUN, make_run, status

TIMEOUT_S = 1.0
PIECE_BYTES, PAUSE_S = 64 * 1024, 0.1
PIECES = 40  # carried in 4 s at best

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


def large_group() -> bytes:
    noise = np.random.default_rng(1).standard_normal((1, PIECES * PIECE_BYTES // 8))
    return Group([[1]], [[1]], [1.0], tensors={"noise": noise}).packed(None)


async def test_a_large_group_passes_a_slow_line(redis_url: str, redis_client: Redis, tmp_path: Path) -> None:
    """The store does not break off a slow transfer: each attempt would start again, and none would arrive."""
    async with (
        lossy_line(redis_url, tmp_path / "line") as (line, url),
        running_service(url, store_timeout_s=TIMEOUT_S, store_patience_s=2 * TIMEOUT_S) as client,
    ):
        await make_run(client, batch_size=1)
        line.slow_down(PIECE_BYTES, PAUSE_S)
        reply = await client.post(f"{RUN}/groups", content=large_group(), headers={"Content-Type": SAFETENSORS})
        assert reply.status_code == 201, reply.text
        reply = await client.post(f"{RUN}/batches", headers={"Accept": SAFETENSORS})
        assert reply.status_code == 201, reply.text
        assert len(reply.content) > PIECES * PIECE_BYTES * 0.99
        line.heal()
        assert (await status(client))["groups"]["leased"] == 1
