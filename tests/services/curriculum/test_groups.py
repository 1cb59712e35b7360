"""Scored groups that name an item are observations of it: counted with the group, once, or not at all."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest
from redis.asyncio import Redis

from app.api.deps import Services
from app.core.runs.settings import Policy
from app.services.curriculum.observing import changes_of
from app.store.curriculum.groups import GroupObservations
from app.store.curriculum.store import CurriculumStore
from app.store.groups.encoded_group import EncodedGroup
from app.store.groups.entries import Outcome, PendingGroup, Placement, Preconditions
from app.store.groups.store import GroupStore
from app.store.redis import scripts
from lachesis.wire.errors import QueueFull, RunArchived, StoreUnavailable
from tests.lossy_line import LossyLine
from tests.one_by_one import OneByOne
from tests.services.accounting import books_of
from tests.services.conftest import RUN, Process, config, join
from tests.services.curriculum.runs import NAME, contents, keys_of, register, sample
from tests.waiting import wait_until

Start = Callable[..., Process]
ADMISSION = scripts.load("admit_and_observe").digest.encode()
NAMESAKE, OTHER = 0, 1


def scored(name: str, item: str | None, *rewards: float, environment: int | None = NAMESAKE) -> EncodedGroup:
    given = np.array(rewards or (1.0, 0.0))
    return EncodedGroup(len(given), environment, f"{name}|".encode(), name, 0, item=item, rewards=given)


async def run_with(services: Services, **settings: Any) -> None:
    """Make a run with two environments, and a curriculum that is called as the first."""
    await services.runs.administration.create(RUN, config(4), Policy.model_validate(settings))
    for name in (NAME, "other"):
        await join(services, name)
    await services.curriculum.administration.configure(RUN, NAME, {"ema_alpha": 0.5}, make=True)


async def counts(services: Services) -> tuple[int, int]:
    """How many observations were counted, and left out."""
    census = (await services.curriculum.administration.facts(RUN, NAME)).census
    return census.updates, census.left_out


async def mean_reward(services: Services, item: str) -> float:
    facts, _ = await services.curriculum.items.item(RUN, NAME, item)
    return float(facts.stored.estimate.ema)


async def test_groups_of_one_request_count_in_order_for_the_curriculum_called_as_their_environment(
    process: Start,
) -> None:
    services, _ = process()
    await run_with(services)
    await services.curriculum.administration.configure(RUN, "unrelated", {}, make=True)
    groups = [scored("g1", "a", 1.0), scored("g2", None), scored("g3", "a", 0.0), scored("g4", "b", 1.0, 0.0)]
    elsewhere = [scored("g5", "a", environment=OTHER), scored("g6", "a", environment=None)]
    await services.groups.native.submit(RUN, groups + elsewhere)
    assert await counts(services) == (3, 0)
    facts, _ = await services.curriculum.items.item(RUN, NAME, "a")
    assert (facts.stored.history, facts.stored.estimate.ema) == ((1.0, 0.0), 0.5)
    assert (await services.curriculum.administration.facts(RUN, "unrelated")).census.updates == 0


async def test_a_group_takes_its_item_out_of_flight(process: Start) -> None:
    services, _ = process()
    await run_with(services)
    await register(services, "a", "b")
    assert sorted(keys_of(await sample(services, 2))) == ["a", "b"]
    await services.groups.native.submit(RUN, [scored("g1", "b")])
    assert keys_of(await sample(services, 2)) == ["b"]


async def test_what_is_dropped_counts_and_what_is_refused_does_not(process: Start, redis_client: Redis) -> None:
    services, _ = process()
    await run_with(services, filter_zero_variance={}, max_staleness=0)
    await services.runs.administration.set_policy_version(RUN, 1)
    dropped = [scored("same", "a", 1.0, 1.0), scored("old", "b")]
    outcomes = await services.groups.native.submit(RUN, dropped)
    assert [outcome.dropped for outcome in outcomes] == ["stale", "stale"]
    await services.runs.administration.change(RUN, {"max_staleness": None})
    assert await services.groups.native.submit(RUN, [scored("flat", "a", 1.0, 1.0), scored("good", "a")]) == [
        Outcome("zero_variance"),
        Outcome(),
    ]
    assert await counts(services) == (4, 0)
    await services.runs.administration.change(RUN, {"max_queued_groups": 1, "batch_size": 2})  # a batch is there
    with pytest.raises(QueueFull):
        await services.groups.native.submit(RUN, [scored("more", "a")])
    await services.runs.administration.change(RUN, {"archived": True})
    with pytest.raises(RunArchived):
        await services.groups.native.submit(RUN, [scored("later", "a")])
    assert await counts(services) == (4, 0)
    assert (await books_of(redis_client, RUN))["dropped"] == {"stale": 2, "zero_variance": 1}


@pytest.mark.parametrize("transacts", [True, False])
async def test_a_submission_whose_answer_is_lost_counts_once(
    process: Start, redis_client: Redis, lossy: tuple[LossyLine, str], *, transacts: bool
) -> None:
    """The connection repeats it; then its sender does, to another process, after that gave up."""
    line, url = lossy
    (here, _), (hasty, _), (there, _) = process(url), process(url, store_patience_s=1.0), process()
    for services in (here, hasty, there):
        services.connection.transacts = transacts
    await run_with(there)
    line.lose_replies_to(ADMISSION)
    task = asyncio.create_task(here.groups.native.submit(RUN, [scored("g1", "a"), scored("g2", "b")]))
    await wait_until(lambda: line.lost > 0)
    line.heal()
    line.cut()
    assert await task == [Outcome(), Outcome()], "its own repetition"
    line.lose_replies_to(ADMISSION)
    with pytest.raises(StoreUnavailable):
        await hasty.groups.native.submit(RUN, [scored("g3", "a")])
    line.heal()
    for services in (there, here):
        again = await services.groups.native.submit(RUN, [scored("g3", "a"), scored("g1", "a")])
        assert again == [Outcome(repeated=True)] * 2
    assert await counts(there) == (3, 0)
    assert len((await books_of(redis_client, RUN))["queued"]) == 3


@pytest.mark.parametrize("before", range(5))
async def test_who_is_killed_before_the_group_is_indexed_has_counted_nothing(
    process: Start, redis_url: str, redis_client: Redis, before: int
) -> None:
    """Where the payload is reserved first, then written, then indexed: the commands up to one of them are sent."""

    class Killed(Exception):
        pass

    async def die() -> None:
        raise Killed

    services, _ = process()
    await run_with(services)
    view = await CurriculumStore(services.connection).existing(RUN, NAME)
    epoch = (await services.runs.atropos.view(RUN)).epoch
    (observation,) = changes_of(view.settings, [("a", [1.0])])
    told = [GroupObservations(view.curriculum_id, view.settings.n_bins, [(0, "a", observation)])]
    torn = OneByOne(redis_url, 5.0)
    torn.before, torn.between = before, die
    group = scored("g1", "a", 1.0)
    admitting = GroupStore(torn).admit(
        RUN, [[PendingGroup("one", group, Placement(NAMESAKE))]], Preconditions(epoch, dedup_ms=10**6), told
    )
    if before == 4:
        assert await admitting is not None
    else:
        with pytest.raises(Killed):
            await admitting
    await torn.aclose()
    assert await counts(services) == (int(before == 4), 0)
    await services.groups.native.submit(RUN, [group])
    assert await counts(services) == (1, 0)
    assert len((await books_of(redis_client, RUN))["queued"]) == 1


Act = Callable[[Services], Awaitable[object]]


async def _restored(services: Services) -> None:
    states = services.curriculum.states
    await states.load(RUN, NAME, await states.save(RUN, NAME))


@pytest.mark.parametrize(
    ("act", "expected"),
    [
        (lambda services: services.curriculum.administration.configure(RUN, NAME, {"ema_alpha": 1.0}, make=False), 0.0),
        (_restored, 0.5),
    ],
    ids=["changed", "restored"],
)
async def test_what_one_process_does_to_a_curriculum_holds_for_groups_that_any_other_admits(
    process: Start, act: Act, expected: float
) -> None:
    (here, _), (there, _) = process(), process()
    await run_with(here)
    await there.groups.native.submit(RUN, [scored("g1", "a", 1.0)])
    await act(here)
    await there.groups.native.submit(RUN, [scored("g2", "a", 0.0)])
    assert (await mean_reward(here, "a"), await counts(here)) == (expected, (2, 0))


async def test_an_item_without_a_curriculum_is_only_shown_to_readers_of_the_group(
    process: Start, redis_client: Redis
) -> None:
    """So it is before one is made and after it was removed, whichever process did that."""
    (here, _), (there, _) = process(), process()
    await run_with(here)
    await there.groups.native.submit(RUN, [scored("g1", "a")])
    await here.curriculum.administration.delete(RUN, NAME)
    assert await there.groups.native.submit(RUN, [scored("g2", "a")]) == [Outcome()]
    assert await redis_client.keys("*:curriculum:*") == []
    await here.curriculum.administration.configure(RUN, NAME, {}, make=True)
    await there.groups.native.submit(RUN, [scored("g3", "a"), scored("g1", "a")])
    assert await counts(here) == (1, 0)


@pytest.mark.parametrize("reward", [1.001e6, -1e15, 1e300])
async def test_rewards_too_large_to_count_leave_the_observation_out_and_say_so(process: Start, reward: float) -> None:
    """What requests may not observe: their sum would not be counted, and no state with them be restored."""
    services, _ = process()
    await run_with(services)
    outcomes = await services.groups.native.submit(RUN, [scored("g1", "a", reward), scored("g2", "b", 1.0)])
    assert outcomes == [Outcome(), Outcome()]
    assert await counts(services) == (1, 1)
    assert (await services.curriculum.administration.metrics(RUN, NAME, 0, None))["curriculum/left_out"] == 1


async def test_a_curriculum_that_is_full_leaves_out_what_it_has_no_room_for(
    process: Start, redis_client: Redis
) -> None:
    """Items that are there, or came earlier in the same request, count."""
    services, _ = process()
    await run_with(services)
    await register(services, "there")
    view, run = await CurriculumStore(services.connection).existing(RUN, NAME), await services.runs.atropos.view(RUN)
    items = ["new", "there", "new", "beyond", "there", "beyond"]
    changes = changes_of(view.settings, [(item, [1.0]) for item in items])
    observations = [(position, change.key, change) for position, change in enumerate(changes)]
    told = GroupObservations(view.curriculum_id, view.settings.n_bins, observations, most_items=2)
    submission = [
        PendingGroup(f"id{position}", scored(f"g{position}", item), Placement(NAMESAKE))
        for position, item in enumerate(items)
    ]
    assert await GroupStore(services.connection).admit(RUN, [submission], Preconditions(run.epoch), [told])
    assert await counts(services) == (4, 2)
    assert set((await contents(redis_client, view.curriculum_id))["items"]) == {b"new", b"there"}
