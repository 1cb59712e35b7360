"""Groups of Atropos that are smaller than their environment declared wait for a set, up to a number."""

from collections.abc import Callable

from redis.asyncio import Redis

from app.core.environments.registration import RegistrationRequest
from tests.services.accounting import books_of
from tests.services.conftest import RUN, Process, config, encoded


async def test_if_more_groups_wait_for_a_set_than_may_all_are_queued(
    process: Callable[..., Process], redis_client: Redis
) -> None:
    services, _ = process()
    await services.runs.atropos.register(RUN, config(4))
    await services.batches.dispatch.take(RUN)
    joined = await services.environments.registry.register_environment(RUN, RegistrationRequest("math", 2000, 512, 1.0))
    assert joined is not None
    environment = joined[0].environment
    groups = [encoded(1, mark, environment) for mark in range(600)]
    receipts = await services.groups.atropos.submit(RUN, groups)
    assert {(receipt.buffered, receipt.waiting_sequences) for receipt in receipts} == {(True, 0)}
    books = await books_of(redis_client, RUN)
    assert (len(books["buffered"]), len(books["queued"])) == (0, 600)
