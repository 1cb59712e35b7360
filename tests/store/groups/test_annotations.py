"""Annotations of groups are stored all or none, within limits, and end with the history of their group."""

import numpy as np
import pytest
from redis.asyncio import Redis

from app.store.groups import annotations as module
from app.store.groups.annotations import AnnotationStore
from tests.store.conftest import KEYS, LASTING_MS, RUN, Store, encoded

LENGTHS = np.array([2, 1])
ENTROPY = np.array([0.5, 0.25, 1.5], np.float32)


async def put(store: Store, *names: str, group: str = "one", given: str = "given", by: float = 0.0) -> str:
    values = {name: ENTROPY + np.float32(by) for name in names}
    return str(await AnnotationStore(store.connection).put(RUN, given, group, LENGTHS, values))


async def annotation_bytes(redis: Redis) -> int:
    return int(await redis.hget(KEYS.run, "annotation_bytes") or 0)  # type: ignore[misc]


async def test_annotations_are_replaced_by_name_and_read_by_each_id(store: Store) -> None:
    await store.admit(encoded(given="given"), encoded(), ids=["one", "two"])
    for _ in range(2):
        assert await put(store, "entropy", "advantage") == "stored"
        assert await annotation_bytes(store.redis) == 2 * 8 + 2 * 3 * 4
    assert await put(store, "entropy", by=1.0) == "stored"
    assert await put(store, "mismatch", group="two", given="two") == "stored"
    found = await AnnotationStore(store.connection).read(RUN, "given")
    assert found.lengths.tolist() == [2, 1]
    assert {name: values.values.tolist() for name, values in found.values.items()} == {
        "advantage": [0.5, 0.25, 1.5],
        "entropy": [1.5, 1.25, 2.5],
    }
    assert await AnnotationStore(store.connection).names(RUN, "two") == ["mismatch"]
    assert await AnnotationStore(store.connection).names(RUN, "unknown") == []
    assert (await AnnotationStore(store.connection).read(RUN, "unknown")).values == {}
    await store.books()


async def test_too_many_names_or_bytes_store_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    await store.admit(encoded(given="given"), ids=["one"])
    assert await put(store, *(f"a{n}" for n in range(7))) == "stored"
    before = await store.redis.hgetall(KEYS.annotations)  # type: ignore[misc]
    assert await put(store, "a0", "b0", "b1", by=1.0) == "names"
    monkeypatch.setattr(module, "MAX_BYTES", 2 * 8 + 7 * 12 + 11)
    assert await put(store, "a0", "b0", by=1.0) == "bytes"
    assert await put(store, "a", group="other") == "unknown"
    assert await put(store, "a", given="other") == "unknown"
    assert await store.redis.hgetall(KEYS.annotations) == before  # type: ignore[misc]
    assert await put(store, *(f"a{n}" for n in range(7)), by=1.0) == "stored", "what is replaced makes room"
    await store.books()


async def test_annotations_end_with_the_history_of_their_group(store: Store) -> None:
    await store.admit(
        encoded(given="given"), encoded(given="kept"), encoded(given="queued"), ids=["one", "two", "three"]
    )
    for given, group in (("given", "one"), ("kept", "two"), ("queued", "three")):
        assert await put(store, "entropy", group=group, given=given) == "stored"
    await store.acknowledge(await store.take("one"))
    await store.acknowledge(await store.take("two"), keep=True)
    assert await AnnotationStore(store.connection).names(RUN, "given") == ["entropy"], "it has left, and is known"
    await store.pass_time(10 * LASTING_MS)
    await store.known_groups.forget_old(RUN)
    names = [await AnnotationStore(store.connection).names(RUN, given) for given in ("given", "kept", "queued")]
    assert names == [[], ["entropy"], ["entropy"]]
    assert await annotation_bytes(store.redis) == 2 * (2 * 8 + 12)
    assert await store.redis.hlen(KEYS.annotations) == 2 * 3  # type: ignore[misc]
    await store.books()
    assert await store.runs.reset(RUN, "token")
    assert not await store.redis.exists(KEYS.annotations)


async def test_groups_without_annotations_are_forgotten_without_a_count(store: Store) -> None:
    """Redis 7.0 refuses to add -0 to a count. Newer engines store 0."""
    await store.admit(encoded(given="plain"), encoded(given="queued"), ids=["one", "two"])
    assert await put(store, "entropy", group="two", given="queued") == "stored"
    await store.redis.hdel(KEYS.run, "annotation_bytes")  # type: ignore[misc]  # so that any count shows
    await store.acknowledge(await store.take("one"))
    await store.pass_time(10 * LASTING_MS)
    assert await store.known_groups.forget_old(RUN) > 0
    assert not await store.redis.hexists(KEYS.run, "annotation_bytes")  # type: ignore[misc]


async def test_a_new_group_under_a_former_name_has_no_annotations(store: Store) -> None:
    await store.admit(encoded(given="given"), ids=["one"])
    assert await put(store, "entropy", "advantage") == "stored"
    await store.acknowledge(await store.take("one"))
    assert await store.admit(encoded(given="given"), ids=["other"], dedup_ms=0) == [True]
    assert await AnnotationStore(store.connection).names(RUN, "given") == []
    assert (await AnnotationStore(store.connection).read(RUN, "given")).values == {}
    assert await put(store, "mismatch", group="other") == "stored"
    assert await AnnotationStore(store.connection).names(RUN, "given") == ["mismatch"]
    assert await annotation_bytes(store.redis) == 2 * 8 + 12
    await store.books()
