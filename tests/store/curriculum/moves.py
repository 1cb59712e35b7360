"""A curriculum with something under each of its keys."""

from app.core.curriculum.estimates import observed
from app.core.curriculum.state import CurriculumHeader
from app.core.curriculum.strategies.bandit import arm_step
from app.store.curriculum.entries import ItemWrite
from app.store.curriculum.items import ItemObservation, ItemStore, SampleId
from app.store.curriculum.state import CurriculumStateStore
from app.store.curriculum.store import CurriculumStore, CurriculumView
from app.store.redis.client import RedisClient
from lachesis.wire.curricula import CurriculumSettings
from tests.store.conftest import RUN

NAME = "gsm8k"


async def a_curriculum(connection: RedisClient) -> CurriculumView:
    """Make one in the run: items unseen with and without a prior, one seen and in flight; another one is loading."""
    store, items, settings = CurriculumStore(connection), ItemStore(connection), CurriculumSettings()
    assert await store.put(RUN, NAME, "id", settings, "", "1") == "put"
    view = await store.view(RUN, NAME)
    assert view is not None
    new = [ItemWrite("prior_only", "algebra", 0.5, "{}"), ItemWrite("unseen")]
    assert await items.register(view, [new]) == [("registered", 2)]
    change = observed(settings, [1.0, 0.0])
    observation = ItemObservation("seen", change, arm_step(settings, change))
    assert not isinstance(await items.observe(view, "request", [observation], 5), str)
    taken = await items.take(view, SampleId(1, "sample"), 1, ["seen"], (), "request")
    assert taken is not None
    assert taken.in_flight == 1
    assert await CurriculumStateStore(connection).begin(RUN, "other", CurriculumHeader(), ["algebra"], "1")
    return view
