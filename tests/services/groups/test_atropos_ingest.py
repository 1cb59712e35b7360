"""Groups of Atropos that are smaller than their environment declared wait for a set, up to a number."""

from collections.abc import Callable

from redis.asyncio import Redis

from app.api.deps import Services
from app.core.environments.registration import RegistrationRequest
from app.store.redis import scripts
from tests.lossy_line import LossyLine
from tests.services.accounting import books_of
from tests.services.conftest import RUN, Process, config, encoded


async def joined_in_sets_of(services: Services, group_size: int) -> int:
    await services.runs.atropos.register(RUN, config(4))
    await services.batches.dispatch.take(RUN)
    request = RegistrationRequest("math", group_size, 512, 1.0)
    joined = await services.environments.registry.register_environment(RUN, request)
    assert joined is not None
    return joined[0].environment


async def test_if_more_groups_wait_for_a_set_than_may_all_are_queued(
    process: Callable[..., Process], redis_client: Redis
) -> None:
    services, _ = process()
    environment = await joined_in_sets_of(services, 2000)
    groups = [encoded(1, mark, environment) for mark in range(600)]
    receipts = await services.groups.atropos.submit(RUN, groups)
    assert {(receipt.buffered, receipt.waiting_sequences) for receipt in receipts} == {(True, 0)}
    books = await books_of(redis_client, RUN)
    assert (len(books["buffered"]), len(books["queued"])) == (0, 600)


async def test_groups_that_are_stored_are_confirmed_although_their_sets_cannot_be_completed(
    process: Callable[..., Process], lossy: tuple[LossyLine, str], redis_client: Redis
) -> None:
    """An environment repeats a request that failed, and its groups have no ids: they would be in the queue twice."""
    line, url = lossy
    services, _ = process(url, store_patience_s=1.0)
    environment = await joined_in_sets_of(services, 4)
    await services.groups.atropos.submit(RUN, [encoded(2, 1, environment)])
    line.hold(scripts.load("release_buffered").digest.encode())
    (receipt,) = await services.groups.atropos.submit(RUN, [encoded(2, 2, environment)])
    line.heal()
    assert receipt.buffered
    assert len((await books_of(redis_client, RUN))["buffered"]) == 2
    await services.groups.atropos.submit(RUN, [encoded(2, 3, environment)])
    books = await books_of(redis_client, RUN)
    assert (len(books["queued"]), len(books["buffered"])) == (2, 1)
