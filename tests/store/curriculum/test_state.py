"""A curriculum is loaded under a name that another load may take in the meantime."""

from app.core.curriculum.state import CurriculumHeader
from app.store.curriculum.state import CurriculumStateStore
from app.store.redis.keys import RunKeys
from tests.store.conftest import RUN, Store


async def test_of_two_loads_under_one_name_the_later_one_has_to_look_again(store: Store) -> None:
    """Else it dropped a curriculum that it had not seen, and left the keys of that one behind."""
    states, named = CurriculumStateStore(store.connection), RunKeys(RUN).curricula
    for own in ("first", "second"):
        assert await states.begin(RUN, own, CurriculumHeader(), [], "1")
    assert await states.finish(RUN, "gsm8k", "first", None) == "loaded"
    assert await states.finish(RUN, "gsm8k", "second", None) == "outdated"
    assert await store.redis.hget(named, "gsm8k") == b"first"  # type: ignore[misc]
    assert await states.finish(RUN, "gsm8k", "second", "first") == "loaded"
    assert await store.redis.hget(named, "gsm8k") == b"second"  # type: ignore[misc]
