"""Trainers and environments without an event loop, against the real service; each runs in a thread of the test."""

import asyncio
import threading
from collections.abc import Callable

import pytest

from lachesis import Environment, NoBatch, Settings, Trainer
from tests.clients.leases import wait_for_an_extension
from tests.clients.run import group

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


def fail_at_the_first_batch(trainer: Trainer) -> None:
    for _ in trainer.batches(prefetch=2, wait_s=5):
        raise ZeroDivisionError


async def in_thread(story: Callable[[], None]) -> None:
    """Run it beside the service, which has the event loop of the test."""
    await asyncio.to_thread(story)


async def test_what_environments_submit_is_trained_on(run: Settings) -> None:
    def story() -> None:
        with Trainer(run, name="rank 0") as trainer, Environment("math", run) as environment:
            ids = []
            for position in range(1, 9):
                with environment.permit(wait_s=20):
                    ids.append(environment.submit(group(position)))
            environment.flush()
            assert environment.outcomes == {"accepted": 8}
            trained = []
            for step, batch in enumerate(trainer.batches(prefetch=2, wait_s=5), start=1):
                if step == 1:
                    (held, *_) = trainer.leased_batches().batches
                    assert (held.state, held.trainer) == ("held", "rank 0")
                trained += [one.id for one in batch.groups]
                batch.ack()
                assert trainer.set_policy_version(step) == 0
                if step == 4:
                    break
            assert trained == ids
            assert trainer.find_group(ids[0]).state == "delivered"
            assert trainer.checkpoint(4).checkpoint == 4
            assert trainer.run().policy_version == 4

    await in_thread(story)


async def test_leaving_the_loop_gives_back_at_once_what_was_not_acknowledged(run: Settings) -> None:
    def story() -> None:
        with Trainer(run) as trainer, Environment("math", run) as environment:
            for position in range(1, 7):
                environment.submit(group(position))
            environment.flush()
            for _ in trainer.batches(prefetch=2, wait_s=5):
                break
            assert trainer.status().groups.leased == 0
            with pytest.raises(ZeroDivisionError):
                fail_at_the_first_batch(trainer)
            assert trainer.status().groups.leased == 0
            batch = trainer.take()
            assert batch is not None
            with batch:
                assert batch.held
            assert not batch.held
            assert trainer.status().groups.delivered == 2

    await in_thread(story)


async def test_leases_are_extended_while_a_step_keeps_the_thread(run: Settings) -> None:
    def story() -> None:
        with Trainer(run) as trainer, Environment("math", run) as environment:
            for position in range(1, 5):
                environment.submit(group(position))
            environment.flush()
            for step, batch in enumerate(trainer.batches(prefetch=1, wait_s=5, lease_s=12), start=1):
                if step == 1:
                    wait_for_an_extension(run)
                assert batch.extend(12) <= 12
                batch.ack()
                if step == 2:
                    break
            assert trainer.status().groups.delivered == 4
            with pytest.raises(NoBatch):
                next(trainer.batches(wait_s=0.2))
            assert trainer.take() is None

    await in_thread(story)


async def test_a_trainer_can_be_closed_twice_and_leaves_no_thread_behind(run: Settings) -> None:
    def story() -> None:
        before = threading.active_count()
        trainer = Trainer(run)
        assert trainer.run().batch_size == 2
        assert threading.active_count() == before + 1
        trainer.close()
        trainer.close()
        assert threading.active_count() == before
        with pytest.raises(RuntimeError, match="closed"):
            trainer.run()

    await in_thread(story)


async def test_an_environment_that_cannot_join_leaves_no_thread_behind(settings: Settings) -> None:
    def story() -> None:
        before = threading.active_count()
        with pytest.raises(Exception, match="math"), Environment("gsm8k", settings):
            raise AssertionError
        assert threading.active_count() == before

    await in_thread(story)
