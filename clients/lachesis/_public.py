"""What the public classes share: how they are shown, and what they say when they are entered or left the wrong way."""

import asyncio
import warnings
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

T = TypeVar("T")


class Shown:
    """Shows its class and its facts: ``<Trainer run=math url=http://lachesis:8000>``."""

    _shown_as: str | None = None
    """The class that users know it by, where it is the asyncio side of a synchronous object."""

    def _facts(self) -> dict[str, object]:
        """Return what tells it from others, and its state; None is left out."""
        raise NotImplementedError

    def _must_close(self) -> bool:
        """Whether it has open connections."""
        return False

    def __repr__(self) -> str:
        facts = (f"{name}={value}" for name, value in self._facts().items() if value is not None)
        return f"<{' '.join((self._shown_as or type(self).__name__, *facts))}>"


class ShownAsync:
    """Is shown as its asyncio side, which knows its name."""

    _async: Any

    def __repr__(self) -> str:
        return repr(self._async)

    def __del__(self, _warn: Callable[..., None] = warnings.warn) -> None:
        if hasattr(self, "_async") and self._async._must_close():  # there is none where the constructor raised
            _warn(f"unclosed {self!r}: end it with `with` or close()", ResourceWarning, source=self)


class ForAsyncio:
    """Is entered with ``async with``."""

    _twin: ClassVar[str]
    """Its synchronous twin."""

    if not TYPE_CHECKING:  # type checkers refuse the wrong statement themselves

        def __enter__(self) -> None:
            name = type(self).__name__
            raise TypeError(f"{name} is for asyncio: use `async with`, or the synchronous {self._twin} with `with`")

        def __exit__(self, *_: object) -> None:
            """Be there: `with` looks for both methods before it calls one."""


class ForThreads:
    """Is entered with ``with``."""

    _twin: ClassVar[str]
    """Its twin for asyncio."""

    if not TYPE_CHECKING:

        def __aenter__(self) -> None:
            name = type(self).__name__
            raise TypeError(f"{name} is synchronous: use `with`, or {self._twin} with `async with`")

        def __aexit__(self, *_: object) -> None:
            """Be there: `async with` looks for both methods before it calls one."""


def in_background(coroutine: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
    """Start a task that may end with its event loop: asyncio does not complain that it was pending."""
    task = asyncio.create_task(coroutine)
    task._log_destroy_pending = False  # type: ignore[attr-defined]  # as asyncio.gather does
    return task
