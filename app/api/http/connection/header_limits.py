"""The deadline and the size limit of a request's headers."""

import asyncio
from collections.abc import Callable

MAX_HEADER_BYTES = 32 * 1024


class HeaderLimits:
    """The deadline and the maximum size of a request's headers.

    Args:
        loop: The event loop.
        timeout_s: Seconds from the first sign of a request to the end of its headers.
        late: Called when the time is over.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, timeout_s: float, late: Callable[[], None]) -> None:
        self._loop = loop
        self._timeout_s = timeout_s
        self._late = late
        self._timer: asyncio.TimerHandle | None = None
        self._parsed_bytes = 0
        self._unparsed_bytes = 0
        self.too_large = False

    @property
    def is_timing(self) -> bool:
        """Return whether the time is running."""
        return self._timer is not None

    def start_timer(self) -> None:
        """Start the time for the headers of a request."""
        self._unparsed_bytes = 0
        self._timer = self._loop.call_later(self._timeout_s, self._end)

    def stop_timer(self) -> None:
        """Stop the time, because the headers are complete or the connection ends."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def start_count(self) -> None:
        """Start counting the bytes of the next request."""
        self._parsed_bytes = self._unparsed_bytes = 0

    def count_parsed(self, size: int) -> None:
        """Count bytes that the parser passed on.

        Raises:
            ValueError: The headers are too large. The parser stops.
        """
        self._parsed_bytes += size
        if self._parsed_bytes > MAX_HEADER_BYTES:
            self.too_large = True
            raise ValueError("headers too large")

    def count_received(self, size: int) -> bool:
        """Count received bytes of an unfinished header, which the parser holds back. Return whether they fit."""
        self._unparsed_bytes += size
        return self._unparsed_bytes <= MAX_HEADER_BYTES

    def _end(self) -> None:
        self._timer = None
        self._late()
