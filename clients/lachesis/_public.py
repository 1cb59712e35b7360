"""The part that public classes share: their `repr`, and errors for `with` on the wrong kind or an unclosed object."""

import asyncio
import warnings
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

T = TypeVar("T")


class Shown:
    """Shows its class and its state: ``<Trainer run=math url=http://lachesis:8000>``."""

    _shown_as: str | None = None
    """The class that users see, if this is the asyncio side of a synchronous object."""

    def _facts(self) -> dict[str, object]:
        """Return its identity and state; None is left out."""
        raise NotImplementedError

    def _must_close(self) -> bool:
        """Whether it has open connections."""
        return False

    def __repr__(self) -> str:
        facts = (f"{name}={value}" for name, value in self._facts().items() if value is not None)
        return f"<{' '.join((self._shown_as or type(self).__name__, *facts))}>"


class ShownAsync:
    """Has the `repr` of its asyncio side."""

    _async: Any

    def __repr__(self) -> str:
        return repr(self._async)

    def __del__(self, _warn: Callable[..., None] = warnings.warn) -> None:
        if hasattr(self, "_async") and self._async._must_close():  # missing if the constructor raised
            _warn(f"unclosed {self!r}: end it with `with` or close()", ResourceWarning, source=self)


class ForAsyncio:
    """An asyncio context manager: use ``async with``."""

    _twin: ClassVar[str]
    """Its synchronous twin."""

    if not TYPE_CHECKING:  # type checkers reject the wrong statement themselves

        def __enter__(self) -> None:
            name = type(self).__name__
            raise TypeError(f"{name} is for asyncio: use `async with`, or the synchronous {self._twin} with `with`")

        def __exit__(self, *_: object) -> None:
            """Exist: `with` looks up both methods before it calls one."""


class ForThreads:
    """A synchronous context manager: use ``with``."""

    _twin: ClassVar[str]
    """Its asyncio twin."""

    if not TYPE_CHECKING:

        def __aenter__(self) -> None:
            name = type(self).__name__
            raise TypeError(f"{name} is synchronous: use `with`, or {self._twin} with `async with`")

        def __aexit__(self, *_: object) -> None:
            """Exist: `async with` looks up both methods before it calls one."""


def in_background(coroutine: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
    """Start a task that may end with its event loop, without a warning of asyncio that it was pending."""
    task = asyncio.create_task(coroutine)
    task._log_destroy_pending = False  # type: ignore[attr-defined]  # as asyncio.gather does
    return task
