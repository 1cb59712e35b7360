"""The log of a service that runs in this process, line by line as an operator reads it."""

import io
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from app import events
from app.logs import JsonLines


def every_event() -> Iterator[type[events.Event]]:
    """All kinds of events there are."""
    for value in vars(events).values():
        if isinstance(value, type) and issubclass(value, events.Event) and value is not events.Event:
            yield value


class LogLines:
    """What was logged so far."""

    def __init__(self, stream: io.StringIO) -> None:
        self._stream = stream

    @property
    def all(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._stream.getvalue().splitlines()]

    def of(self, message: str) -> list[dict[str, Any]]:
        """The lines with this message, without what all lines have."""
        common = ("time", "level", "logger", "process", "message")
        found = [line for line in self.all if line["message"] == message]
        return [{key: value for key, value in line.items() if key not in common} for line in found]


@contextmanager
def captured_log() -> Iterator[LogLines]:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines())
    logger = logging.getLogger("lachesis")
    logger.addHandler(handler)
    try:
        yield LogLines(stream)
    finally:
        logger.removeHandler(handler)
