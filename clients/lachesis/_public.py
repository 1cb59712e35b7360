"""What public classes share: their `repr`, a warning if they are not closed, and errors of wrong use."""

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

CLOSED = "this object is closed: create another one"
"""The message of a `RuntimeError` for a call of a closed object."""


class Shown:
    """Show the class and its state: ``<Trainer run=math url=http://lachesis:8000>``."""

    def _facts(self) -> dict[str, object]:
        """Return identity and state; None is left out."""
        raise NotImplementedError

    def __repr__(self) -> str:
        facts = (f"{name}={value}" for name, value in self._facts().items() if value is not None)
        return f"<{' '.join((type(self).__name__, *facts))}>"


class MustClose(Shown):
    """Warn if the object is collected with open connections."""

    _closed_by: ClassVar[str]
    """How to close it, for the warning."""

    _is_wrapped = False
    """Whether a synchronous object closes it, and warns."""

    def _is_open(self) -> bool:
        """Return whether it has open connections. It must also answer if its constructor raised."""
        raise NotImplementedError

    def __del__(self, _warn: Callable[..., None] = warnings.warn) -> None:
        if not self._is_wrapped and self._is_open():
            _warn(f"unclosed {self!r}: end it with {self._closed_by}", ResourceWarning, source=self)


class ForAsyncio:
    """An asyncio context manager. ``AsyncX`` and ``X`` are the two kinds of one class."""

    if not TYPE_CHECKING:  # type checkers reject the wrong statement themselves

        def __enter__(self) -> None:
            name = _public_name(self)
            raise TypeError(f"{name} is for asyncio: use `async with`, or the synchronous {name[5:]} with `with`")

        def __exit__(self, *_: object) -> None:
            """Exist: `with` looks up both methods before it calls one."""


class ForThreads:
    """A synchronous context manager."""

    if not TYPE_CHECKING:

        def __aenter__(self) -> None:
            name = _public_name(self)
            raise TypeError(f"{name} is synchronous: use `with`, or Async{name} with `async with`")

        def __aexit__(self, *_: object) -> None:
            """Exist: `async with` looks up both methods before it calls one."""


def _public_name(thing: object) -> str:
    """Return the name of its class, or of the class of this package that it was derived from."""
    return next(cls.__name__ for cls in type(thing).__mro__ if cls.__module__.startswith("lachesis."))
