"""A curriculum takes as many items as it may have, and no more; candidates are its items in one order."""

from struct import Struct

import pytest

from app.core.curriculum.estimates import Evidence
from app.store.curriculum import scripts
from app.store.curriculum.items import ItemStore
from tests.store.conftest import Store
from tests.store.curriculum.moves import a_curriculum

CHANGE = Struct("<18d").pack(*[0.5] * 18)


@pytest.mark.parametrize(("most", "outcome"), [(3, b"full"), (4, b"observed"), (5, b"observed")])
async def test_observations_may_fill_a_curriculum_to_its_limit(store: Store, most: int, outcome: bytes) -> None:
    """The curriculum has three items; the observation brings the fourth."""
    view = await a_curriculum(store.connection)
    command = scripts.observe_items(
        view.keys,
        request_id="another request",
        remembered_ms=1000,
        most_items=most,
        bins=5,
        observations=[scripts.ChangeRow("new", CHANGE)],
    )
    reply = await store.connection.run(command)
    assert reply[0] == outcome
    assert await store.redis.hlen(view.keys.part("items")) == (3 if outcome == b"full" else 4)  # type: ignore[misc]


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
