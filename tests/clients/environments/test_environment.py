"""An environment against the real service."""

import asyncio
import re
import time
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from lachesis import AsyncEnvironment, AsyncTrainer, Group, NoPermit, NotSent, Settings, Unreachable
from lachesis.errors import (
    BodyTooLarge,
    GroupExists,
    IntakePaused,
    InvalidField,
    QueueFull,
    RunNotFound,
    ServiceError,
)
from tests.api.conftest import running_service
from tests.clients.another_server import gateway
from tests.clients.proxy import CuttingProxy, Direction
from tests.clients.run import counts, group, submitted
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


@pytest.fixture
async def trainer(run: Settings) -> AsyncIterator[AsyncTrainer]:
    """A trainer of the run."""
    async with AsyncTrainer(run) as trainer:
        yield trainer


async def test_an_environment_joins_says_that_it_is_alive_and_leaves(run: Settings, trainer: AsyncTrainer) -> None:
    async with AsyncEnvironment("gsm8k", run, group_size=4, min_share=0.25, heartbeat_s=0.1) as environment:
        before = environment.id
        (shown,) = (await trainer.status()).environments
        assert (shown.id, shown.name, shown.group_size) == (environment.id, "gsm8k", 4)
        assert (shown.share_promised, shown.connected) == (0.25, True)
        joined = asyncio.get_running_loop().time()
        await wait_until(lambda: _sent_a_heartbeat(trainer, asyncio.get_running_loop().time() - joined))
    (shown,) = (await trainer.status()).environments
    assert not shown.connected
    async with AsyncEnvironment("gsm8k", run) as again:
        assert again.id == before


async def _sent_a_heartbeat(trainer: AsyncTrainer, since_joining_s: float) -> bool:
    (shown,) = (await trainer.status()).environments
    return shown.last_seen_age_s < since_joining_s - 0.1


async def test_a_report_names_the_groups_that_run_and_asks_for_no_others(run: Settings, trainer: AsyncTrainer) -> None:
    async with (
        AsyncEnvironment("gsm8k", run, heartbeat_s=600) as environment,
        environment.permit(20),
        environment.permit(20),
    ):
        assert (await environment.credits()).granted_groups == 0
        (shown,) = (await trainer.status()).environments
        assert shown.running_groups == environment.running_groups == 2


async def test_an_environment_that_has_not_joined_says_so(run: Settings) -> None:
    with pytest.raises(RuntimeError, match="has not joined"):
        await AsyncEnvironment("gsm8k", run).submit(group(1))


async def test_an_environment_that_has_left_takes_nothing_more(run: Settings, proxy: CuttingProxy) -> None:
    """Not even what waited for room in its buffer."""
    environment = await AsyncEnvironment("gsm8k", run, buffer_groups=1, drain_s=0.2).__aenter__()
    port, proxy.upstream = proxy.upstream, None
    await proxy.drop_all()
    await environment.submit(group(1))
    waiting = asyncio.create_task(environment.submit(group(2)))
    with pytest.raises(NotSent):
        await environment.__aexit__(None, None, None)
    with pytest.raises(RuntimeError, match="has not joined"):
        await waiting
    with pytest.raises(RuntimeError, match="has not joined"):
        await environment.submit(group(3))
    proxy.upstream = port


async def test_joining_a_run_that_is_not_there_is_an_error(settings: Settings) -> None:
    """It says who makes runs."""
    with pytest.raises(RunNotFound, match=r"there is no run math\. .*Trainer\.create_run"):
        async with AsyncEnvironment("gsm8k", settings):
            raise AssertionError


async def test_a_run_that_is_made_later_is_waited_for(settings: Settings, caplog: pytest.LogCaptureFixture) -> None:
    async def joined() -> int:
        async with AsyncEnvironment("gsm8k", settings, wait_for_run_s=30) as environment:
            return environment.id

    joining = asyncio.create_task(joined())
    await wait_until(lambda: _was_logged(caplog, "^waiting up to 30 s: there is no run math\\. Create the run "))
    async with AsyncTrainer(settings) as trainer:
        await trainer.create_run(batch_size=2)
        assert await joining == 0
    assert len(_warnings(caplog)) == 1


async def test_a_run_that_nobody_makes_is_waited_for_as_long_as_asked(settings: Settings) -> None:
    began_s = time.monotonic()
    with pytest.raises(RunNotFound, match="create_run"):
        await AsyncEnvironment("gsm8k", settings, wait_for_run_s=1.2).__aenter__()
    assert time.monotonic() - began_s >= 1.2


async def test_a_service_that_starts_later_is_waited_for_like_its_run(run: Settings, proxy: CuttingProxy) -> None:
    async def joined() -> int:
        async with AsyncEnvironment("gsm8k", replace(run, retry_budget_s=0), wait_for_run_s=100) as environment:
            return environment.id

    port, proxy.upstream = proxy.upstream, None
    joining = asyncio.create_task(joined())
    await wait_until(lambda: proxy.refused >= 2 or joining.done())
    proxy.upstream = port
    assert await joining == 0


async def test_the_wait_for_a_run_includes_that_for_the_service(
    settings: Settings, proxy: CuttingProxy, caplog: pytest.LogCaptureFixture
) -> None:
    """The run may still be missing when the service answers at last: then no time is left."""
    port, proxy.upstream = proxy.upstream, None
    patient = replace(settings, retry_budget_s=100)
    joining = asyncio.create_task(AsyncEnvironment("gsm8k", patient, wait_for_run_s=0.2).__aenter__())
    await wait_until(lambda: proxy.refused > 0)
    await asyncio.sleep(0.3)
    proxy.upstream = port
    with pytest.raises(RunNotFound):
        await joining
    assert "waiting up to" not in caplog.text


async def test_a_service_that_does_not_start_in_time_is_an_error(settings: Settings, proxy: CuttingProxy) -> None:
    proxy.upstream = None
    with pytest.raises(Unreachable, match=r"no answer in [\d.]+ s, \d+ attempts"):
        await AsyncEnvironment("gsm8k", replace(settings, retry_budget_s=0), wait_for_run_s=0.5).__aenter__()


def _warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The service that the test runs logs what happens to its runs, too."""
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


async def _was_logged(caplog: pytest.LogCaptureFixture, pattern: str) -> bool:
    return any(re.search(pattern, message) for message in _warnings(caplog))


async def test_what_is_wrong_is_said_at_once_and_nothing_else_suffers(run: Settings, trainer: AsyncTrainer) -> None:
    async with AsyncEnvironment("gsm8k", run) as environment:
        with pytest.raises(InvalidField, match=r"masks\[0\]: has 1 values where tokens has 2"):
            await environment.submit(Group([[1, 2]], [[1]], [1.0]))
        await environment.submit(group(1))
    assert (await counts(trainer))["queued"] == 1


async def test_small_groups_go_together(run: Settings, proxy: CuttingProxy, trainer: AsyncTrainer) -> None:
    async with AsyncEnvironment("gsm8k", run) as environment:
        await submitted(environment, [group(1)])
        one = proxy.passed["reply"]
        await submitted(environment, [group(1)])
        one = proxy.passed["reply"] - one
        before = proxy.passed["reply"]
        await submitted(environment, [group(position) for position in range(1, 51)])
        assert proxy.passed["reply"] - before < 25 * one
        assert environment.outcomes == {"accepted": 52}
    assert (await counts(trainer))["queued"] == 52


@pytest.mark.parametrize("direction", ["request", "reply"])
async def test_a_submission_that_is_cut_anywhere_is_stored_once(
    run: Settings, proxy: CuttingProxy, trainer: AsyncTrainer, direction: Direction
) -> None:
    async with AsyncEnvironment("gsm8k", run) as environment:
        before = proxy.passed[direction]
        await submitted(environment, [group(*range(100))])
        whole = proxy.passed[direction] - before
        cuts = sorted({0, 1, 50, whole // 3, whole // 2, whole - 20, whole - 1})
        for done, after_bytes in enumerate(cuts, start=1):
            proxy.cut(direction, after_bytes)
            await submitted(environment, [group(*range(100))])
            assert proxy.cuts == done, f"nothing was cut after {after_bytes} of {whole} bytes"
        assert environment.outcomes == {"accepted": 1 + len(cuts)}
        assert (await counts(trainer))["queued"] == 1 + len(cuts)


async def test_the_buffer_outlives_a_restart_of_the_service(redis_url: str, run: Settings, proxy: CuttingProxy) -> None:
    """The service goes away with groups on their way; another one comes up, and each group is there once."""
    async with running_service(redis_url) as another, AsyncEnvironment("gsm8k", run, buffer_groups=16) as environment:
        await submitted(environment, [group(1)])
        proxy.upstream = None
        await proxy.drop_all()
        ids = [await environment.submit(group(position)) for position in range(2, 12)]
        await wait_until(lambda: _in_trouble(environment))
        assert environment.running_groups == 10
        proxy.upstream = another.base_url.port
        await environment.flush()
        assert environment.trouble is None
        async with AsyncTrainer(run) as trainer:
            assert (await counts(trainer))["queued"] == 11
            assert (await trainer.find_group(ids[0])).state == "queued"


async def _in_trouble(environment: AsyncEnvironment) -> bool:
    return isinstance(environment.trouble, Unreachable)


async def test_a_full_buffer_holds_submissions_up(run: Settings, proxy: CuttingProxy) -> None:
    async with AsyncEnvironment("gsm8k", run, buffer_groups=2) as environment:
        port, proxy.upstream = proxy.upstream, None
        await proxy.drop_all()
        for position in (1, 2):
            await environment.submit(group(position))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await environment.submit(group(3))
        assert environment.running_groups == 2
        proxy.upstream = port
        async with asyncio.timeout(60):
            await environment.submit(group(3))
            await environment.flush()
        assert environment.outcomes == {"accepted": 3}


async def test_a_full_queue_is_waited_for(run: Settings, trainer: AsyncTrainer) -> None:
    await trainer.change_run(max_queued_groups=2)
    async with AsyncEnvironment("gsm8k", run) as environment:
        await submitted(environment, [group(1), group(2)])
        await environment.submit(group(3))
        await wait_until(lambda: _queue_is_full(environment))
        batch = await trainer.take()
        assert batch is not None
        await batch.ack()
        await environment.flush()
        assert environment.outcomes == {"accepted": 3}


async def _queue_is_full(environment: AsyncEnvironment) -> bool:
    return isinstance(environment.trouble, QueueFull)


async def test_what_could_not_be_sent_is_said_when_leaving(run: Settings, proxy: CuttingProxy) -> None:
    port = proxy.upstream
    environment = await AsyncEnvironment("gsm8k", run, drain_s=0.5).__aenter__()
    proxy.upstream = None
    await proxy.drop_all()
    ids = [await environment.submit(group(position)) for position in (1, 2)]
    with pytest.raises(NotSent) as raised:
        await environment.__aexit__(None, None, None)
    assert list(raised.value.failures) == ids
    assert all(isinstance(failure, Unreachable) for failure in raised.value.failures.values())
    proxy.upstream = port


async def test_what_could_not_be_sent_does_not_hide_why_the_block_ended(run: Settings, proxy: CuttingProxy) -> None:
    port = proxy.upstream

    async def story() -> None:
        async with AsyncEnvironment("gsm8k", run, drain_s=0.2) as environment:
            proxy.upstream = None
            await proxy.drop_all()
            await environment.submit(group(1))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as raised:
        await story()
    assert "was not sent" in raised.value.__notes__[0]
    proxy.upstream = port


async def test_a_group_that_was_not_sent_has_the_error_that_ended_the_environment(
    run: Settings, trainer: AsyncTrainer
) -> None:
    environment = await AsyncEnvironment("gsm8k", run, heartbeat_s=0.1).__aenter__()
    await trainer.change_run(intake_paused=True)
    waiting = await environment.submit(group(1))
    await wait_until(lambda: isinstance(environment.trouble, IntakePaused))
    await trainer.delete_run()
    await wait_until(lambda: environment._ended)
    with pytest.raises(NotSent) as raised:
        await environment.__aexit__(None, None, None)
    assert {name: type(error) for name, error in raised.value.failures.items()} == {waiting: RunNotFound}


async def test_a_refused_group_is_named_and_the_others_arrive(run: Settings, trainer: AsyncTrainer) -> None:
    """It was submitted before with other contents; the service refuses the request that it is in as a whole."""
    async with AsyncEnvironment("gsm8k", run) as environment:
        await submitted(environment, [group(1, id="a")])
        for one in (group(2, id="b"), group(3, id="a"), group(4, id="c")):
            await environment.submit(one)
        with pytest.raises(NotSent, match="group a was not sent") as raised:
            await environment.flush()
        assert {name: type(error) for name, error in raised.value.failures.items()} == {"a": GroupExists}
        await environment.flush()
    assert (await counts(trainer))["queued"] == 3


async def test_groups_are_submitted_as_groups(run: Settings) -> None:
    said = re.escape("group: should be Group(tokens=..., masks=..., scores=...), not {'tokens': [[1]]}")
    async with AsyncEnvironment("gsm8k", run) as environment:
        with pytest.raises(TypeError, match=said):
            await environment.submit({"tokens": [[1]]})  # type: ignore[arg-type]


async def test_a_group_beyond_the_services_limit_is_named(run: Settings, redis_url: str) -> None:
    async with running_service(redis_url, max_body_bytes=100_000) as small:
        settings = Settings(url=str(small.base_url), run="math")
        async with AsyncEnvironment("gsm8k", settings) as environment:
            await environment.submit(group(*range(100_000)))
            with pytest.raises(NotSent) as raised:
                await environment.flush()
            assert {type(error) for error in raised.value.failures.values()} == {BodyTooLarge}


async def test_stale_groups_are_counted(run: Settings, trainer: AsyncTrainer) -> None:
    await trainer.change_run(max_staleness=1)
    await trainer.set_policy_version(9)
    async with AsyncEnvironment("gsm8k", run) as environment:
        await submitted(environment, [group(1, policy_version=9), group(2, policy_version=7)])
        assert environment.outcomes == {"accepted": 1, "stale": 1}


async def test_an_environment_that_was_removed_notices(run: Settings, trainer: AsyncTrainer) -> None:
    async with AsyncEnvironment("gsm8k", run, heartbeat_s=0.1) as environment:
        await trainer.delete_run()
        await wait_until(lambda: _was_cast_out(environment))
        with pytest.raises(RunNotFound):
            await environment.submit(group(1))


async def _was_cast_out(environment: AsyncEnvironment) -> bool:
    """Submit nothing: leaving would raise the error of an unsent group again."""
    try:
        await environment.flush()
    except RunNotFound:
        return True
    return False


async def test_heartbeats_continue_after_answers_of_a_gateway(
    run: Settings, proxy: CuttingProxy, trainer: AsyncTrainer
) -> None:
    async with AsyncEnvironment("gsm8k", run, heartbeat_s=0.1) as environment:
        async with gateway(proxy, "404 Not Found") as asked:
            await wait_until(lambda: len(asked) >= 3)
        assert {path.rpartition("/")[2] for path in asked} == {"heartbeat?name=gsm8k"}
        mended = asyncio.get_running_loop().time()
        await wait_until(lambda: _sent_a_heartbeat(trainer, asyncio.get_running_loop().time() - mended))
        await submitted(environment, [group(1)])


async def test_groups_wait_while_a_gateway_answers_in_place_of_the_service(run: Settings, proxy: CuttingProxy) -> None:
    async with AsyncEnvironment("gsm8k", run) as environment:
        async with gateway(proxy, "404 Not Found"):
            await environment.submit(group(1))
            await wait_until(lambda: _is_answered_by_a_gateway(environment))
        await environment.flush()
        assert environment.trouble is None
        assert environment.outcomes == {"accepted": 1}


async def test_leaving_does_not_wait_longer_for_a_gateway_than_it_may(run: Settings, proxy: CuttingProxy) -> None:
    environment = await AsyncEnvironment("gsm8k", run, drain_s=0.2).__aenter__()
    async with gateway(proxy, "404 Not Found"):
        waiting = await environment.submit(group(1))
        await wait_until(lambda: _is_answered_by_a_gateway(environment))
        with pytest.raises(NotSent, match="was not sent: status 404: no such page") as raised:
            await environment.__aexit__(None, None, None)
    assert list(raised.value.failures) == [waiting]


async def _is_answered_by_a_gateway(environment: AsyncEnvironment) -> bool:
    return isinstance(environment.trouble, ServiceError) and environment.trouble.code == "http_404"


async def test_permits_pace_the_environment(run: Settings, trainer: AsyncTrainer) -> None:
    """Groups that would be too old when their turn comes are not started."""
    await trainer.change_run(max_staleness=1)
    await trainer.set_policy_version(3)
    async with AsyncEnvironment("gsm8k", run) as environment, asyncio.TaskGroup() as workers:
        running, most = 0, 0

        async def work() -> None:
            nonlocal running, most
            async with environment.permit() as permit:
                assert permit.policy_version >= 3
                running += 1
                most = max(most, running)
                await asyncio.sleep(0.05)
                await environment.submit(group(1, policy_version=permit.policy_version))
                running -= 1

        async def train() -> None:
            batches = trainer.batches(prefetch=0, wait_s=20)
            for step in range(10):
                batch = await anext(batches)
                await batch.ack()
                await trainer.set_policy_version(4 + step)
            await batches.aclose()

        granted = (await environment.credits()).credits_groups
        assert 0 < granted < 20
        for _ in range(20):
            workers.create_task(work())
        workers.create_task(train())
    assert environment.running_groups == 0
    assert most <= granted
    assert environment.outcomes == {"accepted": 20}


async def test_a_permit_that_does_not_come_is_said_and_given_up(
    run: Settings, trainer: AsyncTrainer, caplog: pytest.LogCaptureFixture
) -> None:
    """The error contains the reason that the service gives. Tasks that wait behind the first one get the same error."""
    await trainer.change_run(max_staleness=0)
    async with AsyncEnvironment("gsm8k", run) as environment:
        await submitted(environment, [group(1), group(2)])

        given_up = []

        async def refused(wait_s: float) -> None:
            when = "there is room again when a trainer acknowledges batches"
            full = f"the run wants 2 .*; 2 are queued, leased or running; {when}"
            with pytest.raises(NoPermit, match=rf"no permit for environment gsm8k in {wait_s:g} s: {full}"):
                async with environment.permit(wait_s=wait_s):
                    raise AssertionError
            given_up.append(wait_s)

        async with asyncio.TaskGroup() as tasks:
            for wait_s in (7, 0.7):
                tasks.create_task(refused(wait_s))
        assert given_up == [0.7, 7], "each waits as long as it may"
        assert await _was_logged(
            caplog, r"environment gsm8k has waited for a permit for \d s: the run wants 2 .*; there is room"
        )
        assert len(_warnings(caplog)) == 1
        assert environment.running_groups == 0
        with pytest.raises(ValueError, match="wait_s: should be above 0, not 0"):
            async with environment.permit(wait_s=0):
                raise AssertionError
        batch = await trainer.take()
        assert batch is not None
        await batch.ack()
        async with environment.permit(wait_s=20):
            assert environment.running_groups == 1


async def test_a_permit_is_waited_for_without_a_service_for_as_long_as_it_may(
    run: Settings, proxy: CuttingProxy
) -> None:
    """A refused token or the answer of a gateway also may be mended. The retry budget is that of other requests."""
    async with AsyncEnvironment("gsm8k", replace(run, retry_budget_s=0), heartbeat_s=600) as environment:
        async with gateway(proxy, "404 Not Found"):
            waiting = asyncio.create_task(environment.permit().__aenter__())
            await wait_until(lambda: waiting.done() or _is_answered_by_a_gateway(environment))
        await waiting
        assert (environment.trouble, environment.running_groups) == (None, 1)
        async with gateway(proxy, "404 Not Found") as asked:
            with pytest.raises(NoPermit, match="no permit for environment gsm8k in 2 s: status 404: no such page"):
                await environment.permit(wait_s=2).__aenter__()
            assert asked
        assert (environment.trouble, environment.running_groups) == (None, 1)


async def test_groups_that_name_an_item_are_observed_by_the_curriculum_called_like_their_environment(
    run: Settings,
) -> None:
    async with AsyncEnvironment("gsm8k", run) as environment:
        curriculum = environment.curriculum()
        await curriculum.set_up()
        await curriculum.register(["a", "b"])
        assert len((await curriculum.sample(2)).items) == 2
        await submitted(environment, [group(1, 2, item="a"), group(1, item="a"), group(1)])
        assert sorted((await curriculum.item("a")).history) == [1.0, 2.0]
        assert [item.key for item in (await curriculum.sample(2)).items] == ["a"]


async def test_a_flush_waits_for_earlier_groups_and_not_for_later_ones(run: Settings) -> None:
    """Others go on submitting: the outbox is never empty."""
    async with asyncio.timeout(60), AsyncEnvironment("gsm8k", run, buffer_groups=2) as environment:

        async def keep_submitting() -> None:
            while True:
                await environment.submit(group(1))

        await environment.submit(group(1))
        submitting = asyncio.create_task(keep_submitting())
        await environment.flush()
        assert environment.outcomes["accepted"] >= 1
        submitting.cancel()
