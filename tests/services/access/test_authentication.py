"""Who a process lets in when the token file changes, and when Redis does not answer."""

import asyncio
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest
from redis.asyncio import Redis

from app.api.http.access.issuer_client import IssuerClient
from app.core.access.identity import OPEN
from app.services.access.admin_token import AdminTokenFile
from app.services.access.credentials import GivenCredentials
from app.services.access.factory import AccessServices
from app.services.access.token_source import TokenSource
from app.services.access.tokens import NewToken, TokenAdministration
from app.settings import ServiceSettings
from app.store.access.audit import AuditStore
from app.store.access.rate_limits import LimitStore
from app.store.access.store import AccessStore
from app.store.redis.client import RedisClient
from app.store.redis.keys import ServiceKeys
from app.store.redis.pipeline import Command
from app.store.server.embedded import EmbeddedRedis
from lachesis.wire.errors import Conflict, StoreMisconfigured, StoreUnavailable, Unauthorized
from tests.waiting import wait_until

FIRST, SECOND = GivenCredentials(b"a" * 32), GivenCredentials(b"b" * 32)


def stores(connection: RedisClient) -> tuple[AccessStore, AuditStore, LimitStore]:
    return AccessStore(connection), AuditStore(connection), LimitStore(connection)


async def test_another_token_in_the_file_takes_the_place_of_the_first(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_bytes(FIRST.secret + b"\n")
    source = AdminTokenFile(file)
    first = await source.identify(FIRST)
    assert first is not None
    assert await source.identify(SECOND) is None
    file.write_bytes(SECOND.secret)

    async def second_is_known() -> bool:
        return await source.identify(SECOND) is not None

    async def second_is_unknown() -> bool:
        return not await second_is_known()

    await wait_until(second_is_known)
    assert await source.identify(FIRST) is None
    assert await source.is_valid(first) is False
    file.unlink()
    await wait_until(second_is_unknown)


@pytest.mark.parametrize("text", [None, b"", b"short", b"a" * 31, b"a" * 32 + b" b", b"\xff" * 40, b"a" * 5000])
def test_a_file_without_a_good_token_is_refused(tmp_path: Path, text: bytes | None) -> None:
    file = tmp_path / "token"
    if text is not None:
        file.write_bytes(text)
    with pytest.raises(StoreMisconfigured) as refused:
        AdminTokenFile(file)
    assert str(file) in str(refused.value)
    assert "aaa" not in str(refused.value)


async def test_without_redis_a_closed_service_lets_nobody_in_and_an_open_one_stays_open(
    own_server: EmbeddedRedis, tmp_path: Path
) -> None:
    """What a process knows is used for 4 s: it could miss a revocation after that."""
    file = tmp_path / "token"
    file.write_bytes(FIRST.secret)
    connection, other = (RedisClient(f"{own_server.url}?db={number}", 0.3) for number in (0, 1))
    closed, still_open = (
        AccessServices.create(
            *stores(one), ServiceSettings(admin_token_file=given), IssuerClient(ServiceSettings())
        ).authenticator
        for one, given in ((connection, file), (other, None))
    )
    for one in (closed, still_open):
        await one.start()
    assert (await closed.identify(FIRST)).role == "operator"
    own_server.stop()

    async def refused() -> bool:
        try:
            await closed.refresh()
        except StoreUnavailable:
            return True
        return False

    await wait_until(refused)  # what is known is too old then
    with pytest.raises(Unauthorized):
        await closed.identify(None)
    await still_open.refresh()
    assert await still_open.identify(None) == OPEN
    for one in (closed, still_open):
        await one.stop()
    for one in (connection, other):
        await one.aclose()


async def test_a_source_that_was_there_once_keeps_the_service_closed(
    redis_url: str, redis_client: Redis, tmp_path: Path
) -> None:
    """A misspelt variable at the next start must not open the service. To open it takes a command and a restart."""
    file = tmp_path / "token"
    file.write_bytes(FIRST.secret)
    connection = RedisClient(redis_url, 5.0)

    def services(given: Path | None) -> AccessServices:
        return AccessServices.create(
            *stores(connection), ServiceSettings(admin_token_file=given), IssuerClient(ServiceSettings())
        )

    async def required(started: AccessServices) -> bool:
        await started.authenticator.start()
        await started.authenticator.stop()
        return started.authenticator.required

    assert [await required(services(given)) for given in (None, file, None, None)] == [False, True, True, True]
    tokens = services(None).tokens
    _, text = await tokens.create(NewToken("trainer", ("*",)), None)
    token_id = text.split("_")[2]
    with pytest.raises(Conflict, match=f"1 tokens have not ended, such as {token_id}: revoke"):
        await tokens.reopen()
    await tokens.revoke(token_id)
    running = services(None)
    await running.authenticator.start()
    await tokens.reopen()
    await running.authenticator.refresh()
    assert running.authenticator.required
    await running.authenticator.stop()
    assert not await required(services(None))
    await connection.aclose()


async def test_a_process_stays_closed_although_redis_lost_its_data(redis_url: str, redis_client: Redis) -> None:
    """Otherwise everybody would be an operator after a crash of Redis."""
    connection = RedisClient(redis_url, 5.0)
    store, _, limits = stores(connection)
    source = TokenSource(store)
    await TokenAdministration(store, limits).create(NewToken("trainer", ("*",)), None)
    await source.refresh(required=True)
    assert source.closes
    await redis_client.flushdb()
    await source.refresh(required=True)
    assert source.closes
    await connection.aclose()


class HeldReplies(RedisClient):
    """A connection that holds the replies to pipelines, and gives them all at once, in the order they came."""

    def __init__(self, url: str, patience_s: float) -> None:
        super().__init__(url, patience_s)
        self.held = 0
        self.given = asyncio.Event()

    async def pipeline(self, commands: Sequence[Command]) -> list[object]:
        replies = await super().pipeline(commands)
        self.held += 1
        await self.given.wait()
        return replies


async def test_a_token_that_is_revoked_while_it_is_read_is_not_remembered(redis_url: str, redis_client: Redis) -> None:
    """It is let in once more, by what was read before. Then the process knows that it was revoked."""
    connection, held = RedisClient(redis_url, 5.0), HeldReplies(redis_url, 5.0)
    store, _, limits = stores(connection)
    source, administration = TokenSource(AccessStore(held)), TokenAdministration(store, limits)
    _, text = await administration.create(NewToken("trainer", ("*",)), None)
    token = GivenCredentials(text.encode())
    identified = asyncio.create_task(source.identify(token))
    await wait_until(lambda: held.held == 1)
    await administration.revoke(text.split("_")[2])
    refreshed = asyncio.create_task(source.refresh(required=True))
    await wait_until(lambda: held.held == 2)
    held.given.set()
    await refreshed
    assert await identified is not None
    with pytest.raises(Unauthorized, match="revoked"):
        await source.identify(token)
    for one in (connection, held):
        await one.aclose()


async def test_wrong_tokens_of_many_senders_share_readings_of_redis(redis_url: str, redis_client: Redis) -> None:
    connection = RedisClient(redis_url, 5.0)
    services = AccessServices.create(*stores(connection), ServiceSettings(), IssuerClient(ServiceSettings()))
    _, text = await services.tokens.create(NewToken("trainer", ("*",)), None)
    authenticator = services.authenticator
    await authenticator.start()
    wrong = [GivenCredentials(f"lch_train_{number:012x}_{'x' * 43}".encode()) for number in range(500)]

    async def reads() -> int:
        return int((await redis_client.info("commandstats"))["cmdstat_hmget"]["calls"])

    before = await reads()
    refused = await asyncio.gather(*map(authenticator.identify, wrong), return_exceptions=True)
    assert [str(error) for error in refused] == [str(Unauthorized("the token is unknown"))] * 500
    assert (await authenticator.identify(GivenCredentials(text.encode()))).role == "trainer"
    assert await reads() - before < 100
    await authenticator.stop()
    await connection.aclose()


async def test_a_wrong_secret_is_looked_up_as_often_as_an_unknown_id(redis_url: str, redis_client: Redis) -> None:
    """Otherwise the time of a refusal would tell which ids there are."""
    connection = RedisClient(redis_url, 5.0)
    store, _, limits = stores(connection)
    source = TokenSource(store)  # not started: it reads nothing in the background
    _, text = await TokenAdministration(store, limits).create(NewToken("trainer", ("*",)), None)
    token_id = text.split("_")[2]
    assert await source.identify(GivenCredentials(text.encode())) is not None

    async def reads() -> int:
        return int((await redis_client.info("commandstats"))["cmdstat_hmget"]["calls"])

    async def reads_of(wrong_id: str) -> int:
        before = await reads()
        with pytest.raises(Unauthorized, match="the token is unknown"):
            await source.identify(GivenCredentials(f"lch_train_{wrong_id}_{'x' * 43}".encode()))
        return await reads() - before

    others = ("0" * 12, "f" * 12, "0" * 12)
    assert {await reads_of(wrong_id) for wrong_id in (token_id, *others, token_id)} == {2}
    await source.identify(GivenCredentials(text.encode()))
    await connection.aclose()


async def test_a_process_that_knows_a_token_asks_redis_for_no_request(redis_url: str, redis_client: Redis) -> None:
    connection = RedisClient(redis_url, 5.0)
    services = AccessServices.create(*stores(connection), ServiceSettings(), IssuerClient(ServiceSettings()))
    _, text = await services.tokens.create(NewToken("trainer", ("*",)), None)
    authenticator, token = services.authenticator, GivenCredentials(text.encode())
    await authenticator.start()
    await authenticator.identify(token)

    async def reads() -> int:
        return int((await redis_client.info("commandstats")).get("cmdstat_hget", {"calls": 0})["calls"])

    before = await reads()
    for _ in range(100):
        await authenticator.refresh()
        await authenticator.identify(token)
    assert await reads() == before
    await authenticator.stop()
    await connection.aclose()


async def test_waiting_requests_of_many_revoked_tokens_end_after_few_readings(
    redis_url: str, redis_client: Redis
) -> None:
    """A change of any token makes a process read all of them again. One by one, they would miss the 5 s."""
    connection = RedisClient(redis_url, 5.0)
    services = AccessServices.create(*stores(connection), ServiceSettings(), IssuerClient(ServiceSettings()))
    texts = [(await services.tokens.create(NewToken("trainer", ("*",)), None))[1] for _ in range(100)]
    authenticator = services.authenticator
    await authenticator.start()
    identities = await asyncio.gather(*(authenticator.identify(GivenCredentials(text.encode())) for text in texts))
    ended = [asyncio.Event() for _ in texts]

    async def reads() -> int:
        return int((await redis_client.info("commandstats"))["cmdstat_hmget"]["calls"])

    with ExitStack() as watched:
        for identity, event in zip(identities, ended, strict=True):
            watched.enter_context(authenticator.watching(identity, event.set))
        for text in texts:
            await services.tokens.revoke(text.split("_")[2])
        before = await reads()
        async with asyncio.timeout(60):
            for event in ended:
                await event.wait()
    assert await reads() - before < 50
    await authenticator.stop()
    await connection.aclose()


async def test_an_error_of_one_waiting_request_keeps_no_other_from_its_end(redis_url: str, redis_client: Redis) -> None:
    connection = RedisClient(redis_url, 5.0)
    services = AccessServices.create(*stores(connection), ServiceSettings(), IssuerClient(ServiceSettings()))
    texts = [(await services.tokens.create(NewToken("trainer", ("*",)), None))[1] for _ in range(2)]
    authenticator = services.authenticator
    await authenticator.start()
    broken, other = [await authenticator.identify(GivenCredentials(text.encode())) for text in texts]
    failed, ended = asyncio.Event(), asyncio.Event()

    def fail() -> None:
        failed.set()
        raise RuntimeError("the request is broken")

    with authenticator.watching(broken, fail), authenticator.watching(other, ended.set):
        for text, event in zip(texts, (failed, ended), strict=True):
            await services.tokens.revoke(text.split("_")[2])
            async with asyncio.timeout(60):
                await event.wait()
    await authenticator.stop()
    await connection.aclose()


async def test_damaged_data_of_access_is_in_the_log(
    redis_url: str, redis_client: Redis, caplog: pytest.LogCaptureFixture
) -> None:
    connection = RedisClient(redis_url, 5.0)
    source = TokenSource(AccessStore(connection))
    await source.start()
    await redis_client.hset(ServiceKeys().access, "generation", "x")  # type: ignore[misc]
    await wait_until(lambda: "reading tokens failed" in caplog.text)
    await source.stop()
    await connection.aclose()
