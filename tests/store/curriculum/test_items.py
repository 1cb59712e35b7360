"""A curriculum takes as many items as it may have, and no more; candidates are its items in one order."""

from struct import Struct
from typing import Any

import pytest

from app.core.curriculum.estimates import Evidence
from app.store.curriculum import scripts
from app.store.curriculum.entries import ItemWrite
from app.store.curriculum.items import ItemStore
from app.store.curriculum.store import CurriculumView
from app.store.redis.keys import RunKeys
from tests.store.conftest import RUN, Store
from tests.store.curriculum.moves import a_curriculum

CHANGE = Struct("<18d").pack(*[0.5] * 18)


async def observe(
    store: Store,
    view: CurriculumView,
    request: str,
    *,
    remembered_ms: int = 120_000,
    most_requests: int = 1000,
    most_items: int = 4,
) -> bytes:
    """Observe an item; return the outcome."""
    command = scripts.observe_items(
        view.keys,
        request_id=request,
        remembered_ms=remembered_ms,
        most_requests=most_requests,
        most_items=most_items,
        bins=5,
        observations=[scripts.ChangeRow("new", CHANGE)],
    )
    outcome: bytes = (await store.connection.run(command))[0]
    return outcome


@pytest.mark.parametrize(("most", "outcome"), [(3, b"full"), (4, b"observed"), (5, b"observed")])
async def test_observations_may_fill_a_curriculum_to_its_limit(store: Store, most: int, outcome: bytes) -> None:
    """The curriculum has three items; the observation brings the fourth."""
    view = await a_curriculum(store.connection)
    assert await observe(store, view, "another request", most_items=most) == outcome
    assert await store.redis.hlen(view.keys.part("items")) == (3 if outcome == b"full" else 4)  # type: ignore[misc]


async def test_only_the_latest_requests_are_remembered(store: Store) -> None:
    """Those that came first are forgotten first, also if the run remembered requests longer when they came."""
    view = await a_curriculum(store.connection)
    for request, remembered_ms in zip("abcd", (900_000, 900_000, 120_000, 120_000), strict=True):
        outcome = await observe(store, view, request, remembered_ms=remembered_ms, most_requests=2)
        assert outcome == b"observed"
        await store.redis.hincrby(RunKeys(RUN).run, "clock_ms", 1)  # type: ignore[misc]
    assert await observe(store, view, "d", most_requests=2) == b"repeated"
    assert await store.redis.zrange(view.keys.part("requests"), 0, -1) == [b"c", b"d"]
    assert await observe(store, view, "a", most_requests=2) == b"observed"


async def test_many_old_requests_are_forgotten_little_by_little_and_count_again(store: Store) -> None:
    view, requests = await a_curriculum(store.connection), 2500
    await store.redis.zadd(view.keys.part("requests"), {f"{n:04d}": 0 for n in range(requests)})
    await store.redis.hincrby(RunKeys(RUN).run, "clock_ms", 130_000)  # type: ignore[misc]
    assert await observe(store, view, "2499") == b"observed"
    assert await observe(store, view, "2499") == b"repeated"
    left = await store.redis.zcount(view.keys.part("requests"), 0, 0)
    assert left == requests - 2001, "a call forgets a thousand at most, and one of them has come again"


@pytest.mark.parametrize(("most", "outcome"), [(3, b"full"), (4, b"registered"), (5, b"registered")])
async def test_registrations_may_fill_a_curriculum_to_its_limit(store: Store, most: int, outcome: bytes) -> None:
    """The curriculum has three items; the registration brings the fourth."""
    view = await a_curriculum(store.connection)
    command = scripts.register_items(
        view.keys,
        most_items=most,
        most_categories=10,
        only_known=False,
        new_items=[scripts.ItemRow("new", "", "", "")],
    )
    reply = await store.connection.run(command)
    assert reply[0] == outcome
    assert await store.redis.hlen(view.keys.part("items")) == (3 if outcome == b"full" else 4)  # type: ignore[misc]


@pytest.mark.parametrize("idle_only", [True, False])
async def test_candidates_are_the_items_in_ranges_by_category_and_key(store: Store, idle_only: bool) -> None:
    """One item was observed and is in flight, one has a prior and a category, and one has neither."""
    view, items = await a_curriculum(store.connection), ItemStore(store.connection)
    found, evidence = await items.candidates(view, [(2, 9), (5, 7), (0, 1)], idle_only=idle_only)
    expected = ["prior_only", "unseen"] if idle_only else ["prior_only", "seen", "unseen"]
    assert found == expected
    stored = await items.look(view, found)
    told = Evidence.of([one.estimate for one in stored if one is not None])
    for name in ("passed", "failed", "prior"):
        assert getattr(evidence, name).tolist() == pytest.approx(getattr(told, name).tolist(), nan_ok=True)
    assert (await items.candidates(view, [], idle_only=idle_only))[0] == []


async def test_redis_compares_as_little_for_a_long_search_as_for_a_short_one(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does so at each place of each key, and nothing else is done in the meantime."""
    view, items = await a_curriculum(store.connection), ItemStore(store.connection)
    await items.register(view, [[ItemWrite("a" * 511 + last) for last in "bc"]])
    matched: list[int] = []
    call = store.connection.call

    async def noting(*command: Any) -> Any:
        matched.append(len(command[command.index("MATCH") + 1]))
        return await call(*command)

    monkeypatch.setattr(store.connection, "call", noting)
    found = {text: await items.search(view, text, 0, 2000) for text in ("aaab", "a" * 400 + "b", "c" + "a" * 400 + "b")}
    assert [keys for _, keys in found.values()] == [["a" * 511 + "b"]] * 2 + [[]]
    assert matched == [matched[0]] * 3
