"""The table in `app/store/redis/keys.py` is what is in Redis, key by key, with its types."""

import re

import numpy as np
import pytest
from redis.asyncio import Redis

from app.core.access.queue_limits import LimitedAccount
from app.core.access.rate_limits import LimitCost
from app.core.access.tokens import TokenRecord, TokenSecret
from app.core.batches.leases import LeasedGroup, Replayed
from app.core.history.series import HistorySpan
from app.core.runs.settings import Policy
from app.store.access.audit import AuditStore
from app.store.access.rate_limits import LimitStore, of_run
from app.store.access.store import AccessStore
from app.store.groups.annotations import AnnotationStore
from app.store.groups.entries import Placement
from app.store.history.store import Growth, HistoryStore
from app.store.redis import keys
from app.store.redis.client import RedisClient
from app.store.replay.entries import chunk_key
from app.store.runs.processes import ProcessStore
from app.store.runs.store import RunStore
from app.store.runs.tick import PendingHeartbeats
from app.store.runs.turns import TurnStore
from app.store.traces.store import TraceStore
from lachesis.wire.limits import QueueLimitSettings
from lachesis.wire.states import ARCHIVED
from tests.core.views import TTL_MS
from tests.services.replay.moves import fragment
from tests.store.conftest import CONFIG, RUN, Store, encoded
from tests.store.curriculum.moves import a_curriculum
from tests.store.replay.moves import keys_of, replay_moves

TOKEN = TokenRecord("0" * 12, "", "viewer", ("*",), None, False, 0, None, (TokenSecret("0" * 64),))
LIMITED = LimitedAccount("0" * 12, "token", None, QueueLimitSettings(max_queued_groups=1))


def table() -> dict[str, str]:
    """The type of each key, by a pattern of its name."""
    rows = re.findall(r"^\| `(\S+)` \| (\w+) \|", keys.__doc__ or "", re.M)
    assert rows
    return {
        re.sub(r"\{\w+\}|RUN|GROUP", "[^:]+", name).replace("…", rf"{keys.PREFIX}:\{{[^:]+\}}"): kind
        for name, kind in rows
    }


async def test_the_table_lists_every_key_and_nothing_else(store: Store) -> None:
    seen: dict[str, str] = {}

    async def look() -> None:
        async for key in store.redis.scan_iter("*"):
            seen[key.decode()] = str(await store.redis.type(key), "ascii")  # type: ignore[arg-type]

    await ProcessStore(store.connection).beat("host/1/x")
    await AuditStore(store.connection).add({"path": "/v1/runs"}, most=10, own=1, sender="a", action="b")
    assert [await TurnStore(store.connection).ask(RUN, worker) for worker in "ab"] == [(True, False), (False, False)]
    await store.members.put(RUN, 0, "one")
    await store.members.note_running(RUN, 0, "one", running=3, start=0, allowed=0, after=0)
    await store.tick(PendingHeartbeats({0: 1}, {(0, "one")}))
    own = [encoded(given="given", version=0), encoded(), encoded(), encoded()]
    await store.admit(*own, ids=["kept", "taken", "lost", "entered"])
    await store.admit(encoded(), place=Placement(0, buffered=True), accounts=[LIMITED])
    await store.acknowledge(await store.take("kept"), keep=True)
    await store.take("taken")
    lengths, entropy = np.array([1, 1]), {"entropy": np.zeros(2, np.float32)}
    assert await AnnotationStore(store.connection).put(RUN, "given", "kept", lengths, entropy) == "stored"
    moves = await replay_moves(store, max_reuse=1, groups=True)
    await store.acknowledge(await store.take("entered"))
    await moves.insert(fragment(0), fragment(1), fragment(2), fragment(3), fragment(5))
    assert len(keys_of(await moves.take(0))) == 1
    assert len(keys_of(await moves.take(1, sample_id="batch4"))) == 1
    replayed = LeasedGroup("replayed", 0, None, 2, 1, "checksum", 0, replayed=Replayed(2, 0, 1.0, 1.0))
    assert (await store.take(groups=[replayed])).batch_id == "batch4"
    assert len(keys_of(await moves.take(0, sample_id="named", request_id="named"))) == 1
    assert await moves.replay.retire(RUN, ARCHIVED, [chunk_key(2)]) == 1
    await moves.snapshot("a")
    await a_curriculum(store.connection)
    await look()
    assert await store.groups.drop(RUN, [("lost", (0, 2))], "payload_lost") == 1
    await store.admit(encoded(version=1))
    await store.admit(encoded(), place=Placement(0, dropped="zero_variance"))
    await store.tick()
    await look()
    assert await HistoryStore(store.connection).append(RUN, HistorySpan(), Growth(b"", {}))
    await HistoryStore(store.connection).watch(RUN)
    await TraceStore(store.connection).keep(RUN, ["batch:1"], "context")
    await look()
    await store.runs.reset(RUN, "token")
    await look()
    assert await AccessStore(store.connection).put(None, TOKEN)
    cost = LimitCost("max_requests_per_s", 1.0, 1_000_000)
    assert await LimitStore(store.connection).count([(of_run(RUN), cost)]) == [0]
    limited = Policy(max_requests_per_s=1)
    assert await store.runs.put(RUN, CONFIG, limited, (await store.view()).epoch)
    await look()

    expected = table()

    def kind_of(key: str) -> str:
        (kind,) = [declared for pattern, declared in expected.items() if re.fullmatch(pattern, key)]
        own = re.sub(r":snapshot:\d+:(replay$)?", lambda found: ":replay" if found[1] else ":replay:", key)
        return kind_of(own) if kind == "copy" else kind

    assert {key: kind_of(key) for key in seen} == seen
    assert [pattern for pattern in expected if not any(re.fullmatch(pattern, key) for key in seen)] == []


@pytest.mark.parametrize("passed_ms", [-3_600_000, 3_600_000])
async def test_the_clock_that_a_view_shows_is_clamped_as_the_scripts_clamp_it(
    connection: RedisClient, redis_client: Redis, passed_ms: int
) -> None:
    """The rule is written down twice: a view must not write, so it works the clock out by itself."""
    runs = RunStore(connection, TTL_MS)
    seconds, _ = await redis_client.time()
    clock = {"clock_ms": 1_000_000, "time_ms": seconds * 1000 - passed_ms}
    await redis_client.hset(keys.RunKeys(RUN).run, mapping=clock)  # type: ignore[arg-type]
    shown_ms = (await runs.view(RUN)).clock_ms
    assert shown_ms == (await runs.tick(RUN)).clock_ms
    assert shown_ms == 1_000_000 + (3000 if passed_ms > 0 else 0)
