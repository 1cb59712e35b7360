"""The roots of all errors (`lachesis.wire.errors`)."""

from collections.abc import Iterator
from typing import Any

from lachesis.wire.problems import MAX_DETAIL, shortened


class LachesisError(Exception):
    """The root of all errors of Lachesis."""


class ServiceError(LachesisError):
    """The service refused a request, or failed.

    Attributes:
        code: The stable name of the error.
        status: The HTTP status of the reply.
        detail: What is wrong, with the values. A very long text is cut.
        remedy: What to do about it: that of the class, unless the error was given its own.
        errors: For wrong values: the place of each (``loc``) and what is wrong with it (``msg``).
        retry_after_s: Seconds after which to try again. None means that the service suggests no time.
    """

    code: str = "error"
    status: int = 500
    remedy: str = ""
    retry_after_s: float | None = None
    _detail_says_all = False

    def __init__(self, detail: str, *, remedy: str | None = None) -> None:
        self.detail = shortened(detail, MAX_DETAIL)
        self.remedy = remedy or self.remedy
        super().__init__(self.detail)
        self.errors: tuple[dict[str, Any], ...] = ()

    def __str__(self) -> str:
        end = "" if self.detail.endswith((".", "?", "!")) else "."
        return f"{self.detail}{end} {self.remedy}" if self.remedy and not self._detail_says_all else self.detail

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.detail!r}, status={self.status}, code={self.code!r})"


def descendants(cls: type[ServiceError]) -> Iterator[type[ServiceError]]:
    """Yield every class below ``cls``, parents first."""
    for sub in cls.__subclasses__():
        yield sub
        yield from descendants(sub)
