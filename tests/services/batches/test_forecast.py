"""A reply that there is no batch says when to expect one, from what environments send now."""

from collections.abc import Callable

from redis.asyncio import Redis

from app.api.deps import Services
from app.core.runs.settings import Policy
from app.services.batches.request import BatchRequest
from app.store.redis.keys import RunKeys
from tests.services.conftest import RUN, Process, config, encoded, join

SECOND_LOOK_MS = 2000


async def expected_s(services: Services) -> float | None:
    """Ask for a batch that cannot form yet. Return when the reply expects one."""
    answer = await services.batches.dispatch.take(RUN, BatchRequest())
    assert answer.not_ready is not None
    return services.batches.diagnostics.expected_s(RUN, answer.not_ready)


async def test_an_environment_that_left_sends_nothing(process: Callable[..., Process], redis_client: Redis) -> None:
    services, _ = process()
    await services.runs.administration.create(RUN, config(64), Policy())
    math, code = [(await join(services, name)).environment for name in ("math", "code")]
    assert await expected_s(services) is None, "nothing came yet"
    for number, sender in enumerate([math, math, math, code]):
        await services.groups.native.submit(RUN, [encoded(2, number, sender)._replace(given_id=f"g{number}")])
    await redis_client.hincrby(RunKeys(RUN).run, "clock_ms", SECOND_LOOK_MS)
    both = await expected_s(services)
    await services.environments.registry.leave(RUN, math, None)
    await redis_client.hincrby(RunKeys(RUN).run, "clock_ms", SECOND_LOOK_MS)
    only_code = await expected_s(services)
    assert both is not None
    assert only_code is not None
    assert only_code > 2 * both
    await services.environments.registry.leave(RUN, code, None)
    await redis_client.hincrby(RunKeys(RUN).run, "clock_ms", SECOND_LOOK_MS)
    assert await expected_s(services) is None


async def test_a_new_run_is_not_forecast_by_a_deleted_one_of_its_name(
    process: Callable[..., Process], redis_client: Redis
) -> None:
    services, _ = process()
    for is_new in (False, True):
        await services.runs.administration.create(RUN, config(64), Policy())
        math = (await join(services)).environment
        assert await expected_s(services) is None, "nothing came yet"
        if not is_new:
            await services.groups.native.submit(RUN, [encoded(2, 1, math)._replace(given_id="g")])
            await redis_client.hincrby(RunKeys(RUN).run, "clock_ms", SECOND_LOOK_MS)
            assert await expected_s(services) is not None
            await services.runs.administration.delete(RUN)


async def test_nothing_is_expected_while_intake_is_paused(process: Callable[..., Process], redis_client: Redis) -> None:
    services, _ = process()
    await services.runs.administration.create(RUN, config(64), Policy())
    math = (await join(services)).environment
    assert await expected_s(services) is None, "nothing came yet"
    await services.groups.native.submit(RUN, [encoded(2, 1, math)._replace(given_id="g")])
    await redis_client.hincrby(RunKeys(RUN).run, "clock_ms", SECOND_LOOK_MS)
    assert await expected_s(services) is not None
    await services.runs.administration.change(RUN, {"intake_paused": True})
    await redis_client.hincrby(RunKeys(RUN).run, "clock_ms", SECOND_LOOK_MS)
    assert await expected_s(services) is None
    assert (await services.batches.diagnostics.of(RUN)).expected_s is None


async def test_an_environment_whose_groups_are_all_dropped_is_not_expected_at_once(
    process: Callable[..., Process], redis_client: Redis
) -> None:
    services, _ = process()
    await services.runs.administration.create(RUN, config(64), Policy())
    math = (await join(services)).environment
    await expected_s(services)
    for number in range(31):
        await services.groups.native.submit(RUN, [encoded(2, number, math)._replace(given_id=f"g{number}")])
    await redis_client.hincrby(RunKeys(RUN).run, "clock_ms", SECOND_LOOK_MS)
    assert (await expected_s(services) or 60) < 1
    await services.runs.administration.change(RUN, {"filter_reward_range": {"below": -1e6}})
    for number in range(31, 41):
        await services.groups.native.submit(RUN, [encoded(2, number, math)._replace(given_id=f"g{number}")])
        await redis_client.hincrby(RunKeys(RUN).run, "clock_ms", SECOND_LOOK_MS)
        expected = await expected_s(services)
    assert expected is not None
    assert expected >= 10 * SECOND_LOOK_MS / 1000
