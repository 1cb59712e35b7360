"""Interrupt the main thread while it waits, as Ctrl-C does."""

import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType


@contextlib.contextmanager
def interruption() -> Iterator[Callable[[], None]]:
    """Yield a function for another thread. It waits until the main thread waits, and interrupts it once.

    It repeats the signal until the main thread has noticed: CPython loses a signal that comes just before the system
    call that waits.
    """
    main = threading.main_thread().ident or 0
    noticed = threading.Event()

    def interrupt_once(_: int, __: FrameType | None) -> None:
        if not noticed.is_set():
            noticed.set()
            raise KeyboardInterrupt

    def interrupt() -> None:
        while sys._current_frames()[main].f_code is not threading.Condition.wait.__code__:
            noticed.wait(0.001)
        while not noticed.is_set():
            signal.pthread_kill(main, signal.SIGINT)
            noticed.wait(0.01)

    before = signal.signal(signal.SIGINT, interrupt_once)
    try:
        yield interrupt
    finally:
        signal.signal(signal.SIGINT, before)
