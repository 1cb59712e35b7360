"""The thread in which synchronous code has its event loop."""

import asyncio
import gc
import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from lachesis._transport.bridge import Portal
from tests.interrupts import interruption


async def loop_thread() -> threading.Thread:
    return threading.current_thread()


def test_coroutines_run_in_a_thread_of_their_own_and_return_to_their_caller() -> None:
    portal = Portal()
    thread = portal.run(loop_thread())
    assert thread is not threading.current_thread()
    assert portal.run(loop_thread()) is thread
    portal.close()
    assert not thread.is_alive()


def test_what_was_left_running_is_cancelled_when_the_portal_closes() -> None:
    cancelled = threading.Event()

    async def leave_running() -> None:
        async def forever() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()

        tasks.append(asyncio.create_task(forever()))
        await asyncio.sleep(0)

    tasks: list[asyncio.Task[None]] = []
    portal = Portal()
    portal.run(leave_running())
    portal.close()
    assert cancelled.is_set()


def test_a_call_that_waits_when_the_portal_closes_raises_an_error_that_says_so() -> None:
    """Such as the wait of a thread for a permit, when the main thread leaves the block of the environment."""

    async def forever() -> None:
        waits.set()
        await asyncio.Event().wait()

    waits = threading.Event()
    portal = Portal()
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(lambda: portal.run(forever()))
        waits.wait()
        portal.close()
        with pytest.raises(RuntimeError, match="this object was closed in another thread while the call waited"):
            waiting.result()


def test_a_closed_portal_says_so_and_closing_twice_is_harmless() -> None:
    portal = Portal()
    portal.close()
    portal.close()
    with pytest.raises(RuntimeError, match="this object is closed: create another one"):
        portal.run(loop_thread())


def test_a_callback_that_would_wait_for_the_portal_it_runs_in_is_refused() -> None:
    """Such as the function that gives the step of `Curriculum.items`, with a call of `Trainer.run` in it."""

    async def call_back() -> None:
        portal.run(loop_thread())

    portal = Portal()
    with pytest.raises(RuntimeError, match="called from a callback of the SDK"):
        portal.run(call_back())
    portal.close()


def test_a_portal_that_nobody_has_any_more_ends_its_thread() -> None:
    portal = Portal()
    thread = portal.run(loop_thread())
    del portal
    gc.collect()
    thread.join(10)
    assert not thread.is_alive()


def test_an_interrupted_caller_cancels_its_coroutine_and_waits_for_its_end() -> None:
    """As Ctrl-C does in a trainer that waits for a batch."""
    steps: list[str] = []

    async def interrupted() -> None:
        try:
            threading.Thread(target=interrupt).start()
            await asyncio.Event().wait()
        finally:
            await asyncio.to_thread(steps.append, "cleaned up")

    portal = Portal()
    with interruption() as interrupt, pytest.raises(KeyboardInterrupt):
        portal.run(interrupted())
    assert steps == ["cleaned up"]
    portal.close()


def test_clean_up_asked_for_in_the_portals_own_thread_does_not_wait_for_itself() -> None:
    """The garbage collector runs in whichever thread it likes."""
    done = threading.Event()

    async def clean_up() -> None:
        done.set()

    async def ask() -> None:
        portal.finish(clean_up())

    portal = Portal()
    portal.run(ask())
    assert done.wait(10)
    portal.close()
    portal.finish(clean_up())  # closed: nothing to do


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_portal_from_before_a_fork_says_so_instead_of_hanging() -> None:
    portal = Portal()
    if not (child := os.fork()):
        try:
            portal.run(loop_thread())
        except RuntimeError as error:
            os._exit(7 if "fork" in str(error) else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    portal.close()
