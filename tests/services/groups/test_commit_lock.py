"""One process at a time holds the lock, and none keeps what it does not want. Each lock here stands for a process."""

import asyncio
import fcntl
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from app.services.groups.commit_lock import PATH_VARIABLE, CommitLock, shared_lock

_FOREVER_S = 3600.0
_HOLD = """
import fcntl, sys, time
file = open(sys.argv[1], "w")
fcntl.flock(file, fcntl.LOCK_EX)
print("held", flush=True)
time.sleep(3600)
"""


def is_free(path: Path) -> bool:
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


async def until_free(path: Path) -> None:
    another = CommitLock(str(path))
    await asyncio.wait_for(another.acquire(_FOREVER_S), 60)
    another.release()


def hold_in_a_process(path: Path) -> "subprocess.Popen[str]":
    holder = subprocess.Popen([sys.executable, "-c", _HOLD, str(path)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    return holder


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "lock"


async def test_each_process_gets_the_lock_when_another_releases_it(path: Path) -> None:
    locks = [CommitLock(str(path)) for _ in range(4)]
    holders, held = 0, 0

    async def hold(lock: CommitLock) -> None:
        nonlocal holders, held
        for _ in range(20):
            await lock.acquire(_FOREVER_S)
            holders, held = holders + 1, held + 1
            assert holders == 1
            await asyncio.sleep(0)
            holders -= 1
            lock.release()
            await asyncio.sleep(0)

    await asyncio.wait_for(asyncio.gather(*map(hold, locks)), 60)
    assert held == 80
    assert is_free(path)


async def test_who_has_waited_long_enough_goes_on_and_gives_the_lock_back_once_it_comes(path: Path) -> None:
    holder, impatient = CommitLock(str(path)), CommitLock(str(path))
    await holder.acquire(0)
    await asyncio.wait_for(impatient.acquire(0.01), 60)
    impatient.release()
    assert not is_free(path)
    holder.release()
    await until_free(path)


async def test_who_asks_again_gets_what_it_asked_for_before(path: Path) -> None:
    holder, impatient = CommitLock(str(path)), CommitLock(str(path))
    await holder.acquire(0)
    await impatient.acquire(0)
    again = asyncio.create_task(impatient.acquire(_FOREVER_S))
    await asyncio.sleep(0)
    holder.release()
    await asyncio.wait_for(again, 60)
    assert not is_free(path)
    impatient.release()
    assert is_free(path)


async def test_a_task_that_is_cancelled_keeps_nothing(path: Path) -> None:
    holder, cancelled = CommitLock(str(path)), CommitLock(str(path))
    await holder.acquire(0)
    waiting = asyncio.create_task(cancelled.acquire(_FOREVER_S))
    await asyncio.sleep(0)
    waiting.cancel()
    with suppress(asyncio.CancelledError):
        await waiting
    holder.release()
    await until_free(path)


async def test_the_lock_of_a_process_that_is_killed_is_free(path: Path) -> None:
    with hold_in_a_process(path) as holder:
        waiting = asyncio.create_task(CommitLock(str(path)).acquire(_FOREVER_S))
        await asyncio.sleep(0)
        holder.kill()
        await asyncio.wait_for(waiting, 60)


async def test_a_lock_that_the_system_refuses_delays_nobody(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = os.dup(0)
    os.close(file)  # the next file that is opened gets this number
    lock = CommitLock(str(path))
    os.close(file)
    for _ in range(2):
        await asyncio.wait_for(lock.acquire(_FOREVER_S), 60)
        lock.release()
    assert [record.message.partition(": API")[0] for record in caplog.records] == [
        "the system refuses the lock for commits"
    ]


async def test_a_lock_that_is_refused_after_others_held_it_delays_nobody(path: Path) -> None:
    holder = CommitLock(str(path))
    await holder.acquire(0)
    file = os.dup(0)
    os.close(file)
    lock = CommitLock(str(path))
    waiting = asyncio.create_task(lock.acquire(_FOREVER_S))
    await asyncio.sleep(0)
    holder.release()
    await asyncio.wait_for(waiting, 60)
    os.close(file)
    lock.release()
    await asyncio.wait_for(lock.acquire(_FOREVER_S), 60)


def test_processes_find_the_lock_until_their_supervisor_ends() -> None:
    assert CommitLock.of_service() is None
    with shared_lock():
        file = Path(os.environ[PATH_VARIABLE])
        lock = CommitLock.of_service()
        assert lock is not None
        asyncio.run(lock.acquire(0))
        assert not is_free(file)
    assert not file.exists()
    assert CommitLock.of_service() is None


def test_the_service_ends_well_if_a_cleaner_has_removed_the_lock() -> None:
    with shared_lock():
        Path(os.environ[PATH_VARIABLE]).unlink()
    assert CommitLock.of_service() is None
