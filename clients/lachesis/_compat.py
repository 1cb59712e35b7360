"""Parts of the standard library that Python 3.10 lacks."""

import logging
import sys

log = logging.getLogger(__name__)

if sys.version_info >= (3, 11):
    from asyncio import timeout

    def add_note(error: BaseException, note: str) -> None:
        """Add a line to the error's traceback."""
        error.add_note(note)

else:
    import asyncio
    from collections.abc import AsyncIterator
    from contextlib import asynccontextmanager

    import async_timeout

    @asynccontextmanager
    async def timeout(delay: float | None) -> AsyncIterator[None]:
        """Cancel the block after ``delay`` seconds, and raise the built-in `TimeoutError`."""
        try:
            async with async_timeout.timeout(delay):
                yield
        except asyncio.TimeoutError as error:
            raise TimeoutError from error

    def add_note(error: BaseException, note: str) -> None:
        """Log the line, because exceptions of Python 3.10 have no notes."""
        log.warning("%s: %s", type(error).__name__, note)


__all__ = ["add_note", "timeout"]
