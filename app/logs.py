"""The log: one line a record on stderr, with time and zone, as text or JSON.

A record may carry named values (``extra={"fields": {...}}``): text shows them as ``key=value``, JSON as members.
Names come from users, so a text line shows control characters, line breaks and other unprintable characters escaped,
and no line shows a token that was sent as a name.
"""

import json
import logging
import re
import time
from collections.abc import Callable, Hashable, Mapping
from datetime import UTC, datetime
from typing import Any, Literal

from lachesis.wire.access import masked
from lachesis.wire.printable import printable

LogFormat = Literal["text", "json"]

RESERVED = ("time", "level", "logger", "process", "message", "exception")
"""Names that JSON lines use themselves. Fields have other names."""

_PLAIN = re.compile(r"[^\s\"'=\\]+")


class _LineFormatter(logging.Formatter):
    """The parts that both formats share."""

    def _time(self, record: logging.LogRecord) -> str:
        return datetime.fromtimestamp(record.created, UTC).astimezone().isoformat(timespec="milliseconds")

    def _fields(self, record: logging.LogRecord) -> Mapping[str, Any]:
        fields: Mapping[str, Any] = getattr(record, "fields", {})
        return fields

    def _traceback(self, record: logging.LogRecord) -> str:
        return self.formatException(record.exc_info) if record.exc_info else ""


class TextLines(_LineFormatter):
    """Lines for people. Only a traceback has more than one; its further lines are indented."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        parts = [self._time(record), record.levelname, record.name, f"[{record.process}]", record.getMessage()]
        parts += [f"{key}={_value(value)}" for key, value in self._fields(record).items()]
        lines = [" ".join(parts), *self._traceback(record).splitlines()]
        return masked("\n    ".join(map(printable, lines)))


class JsonLines(_LineFormatter):
    """Lines for machines: one JSON object each."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        own = (self._time(record), record.levelname.lower(), record.name, record.process, record.getMessage())
        members: dict[str, Any] = dict(zip(RESERVED, own, strict=False))
        if traceback := self._traceback(record):
            members["exception"] = traceback
        return masked(json.dumps({**self._fields(record), **members}, default=str))


_FORMATTERS: Mapping[LogFormat, type[_LineFormatter]] = {"text": TextLines, "json": JsonLines}


def log_config(level: str, log_format: LogFormat) -> dict[str, Any]:
    """Describe the log on stderr, as `logging.config.dictConfig` takes it."""
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"lines": {"()": _FORMATTERS[log_format]}},
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "lines"}},
        "root": {"level": level.upper(), "handlers": ["stderr"]},
        # At info, uvicorn logs each step of its start, and httpx the URL of each fetch of the issuer's keys.
        "loggers": {name: {"level": "DEBUG" if level == "debug" else "WARNING"} for name in ("uvicorn", "httpx")},
    }


def _value(value: object) -> str:
    """Return a value as text whose end a reader can find."""
    if isinstance(value, str):
        return value if _PLAIN.fullmatch(value) else json.dumps(value, ensure_ascii=False)
    return json.dumps(value, default=str, ensure_ascii=False)


class LogBackoff:
    """Limit log lines of a kind: the first is written, then one after each pause. Pauses double.

    Args:
        first_s: Pause after the first line, seconds.
        longest_s: Longest pause, seconds.
        clock: Returns the time now, seconds.
    """

    def __init__(
        self, first_s: float = 10.0, longest_s: float = 600.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._first_s = first_s
        self._longest_s = longest_s
        self._clock = clock
        self._pauses: dict[Hashable, tuple[float, float]] = {}  # kind -> end of its pause, and length of the pause

    def is_due(self, kind: Hashable) -> bool:
        """Return whether to write a line of this kind now. True counts as written."""
        now = self._clock()
        until, pause_s = self._pauses.get(kind, (now, 0.0))
        if now < until:
            return False
        pause_s = min(max(2 * pause_s, self._first_s), self._longest_s)
        self._pauses[kind] = (now + pause_s, pause_s)
        return True

    def forget(self, kind: Hashable) -> None:
        """Forget a kind: the problem is over, and its next line is the first."""
        self._pauses.pop(kind, None)
