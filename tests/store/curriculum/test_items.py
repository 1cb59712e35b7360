"""A curriculum takes as many items as it may have, and no more."""

from struct import Struct

import pytest

from app.store.redis.scripts import positional
from tests.store.conftest import Store
from tests.store.curriculum.moves import a_curriculum

CHANGE = Struct("<18d").pack(*[0.5] * 18)


@pytest.mark.parametrize(("most", "outcome"), [(3, b"full"), (4, b"observed"), (5, b"observed")])
async def test_observations_may_fill_a_curriculum_to_its_limit(store: Store, most: int, outcome: bytes) -> None:
    """The curriculum has three items; the observation brings the fourth."""
    view = await a_curriculum(store.connection)
    reply = await store.connection.run(
        positional("observe_items", view.keys, ["another request", 1000, most, 5, "new", CHANGE])
    )
    assert reply[0] == outcome
    assert await store.redis.hlen(view.keys[2]) == (3 if outcome == b"full" else 4)  # type: ignore[misc]
