"""Bodies that are read from files, or written into files, piece by piece. Each attempt starts at the beginning."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import BinaryIO, TypeAlias

_PIECE_BYTES = 1024 * 1024

StateFile: TypeAlias = BinaryIO | str | PathLike[str]
"""A file that is open for bytes, or a path."""


class FileBody:
    """A request body: the content of a file from its current position."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._start = file.tell()

    async def pieces(self) -> AsyncIterator[bytes]:
        """Read it from the start."""
        await asyncio.to_thread(self._file.seek, self._start)
        while piece := await asyncio.to_thread(self._file.read, _PIECE_BYTES):
            yield piece


class FileSink:
    """A file that a reply body is written into, from its current position."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._begun = False
        self._start = 0

    async def take(self, pieces: AsyncIterator[bytes]) -> None:
        """Write a body, in place of what an earlier attempt wrote.

        Raises:
            io.UnsupportedOperation: There was an earlier attempt, and the file cannot seek.
        """
        if self._begun:
            await asyncio.to_thread(self._go_back)
        elif self._file.seekable():
            self._start = self._file.tell()
        self._begun = True
        async for piece in pieces:
            await asyncio.to_thread(self._file.write, piece)

    def _go_back(self) -> None:
        self._file.seek(self._start)
        self._file.truncate()


@contextmanager
def read_from(file: StateFile) -> Iterator[FileBody]:
    """Return the body of a file; a path is opened for it."""
    if not isinstance(file, str | PathLike):
        yield FileBody(file)
        return
    with Path(file).open("rb") as opened:
        yield FileBody(opened)


@contextmanager
def written_to(file: StateFile) -> Iterator[FileSink]:
    """Return the sink of a file. The file at a path is replaced once the whole body has arrived.

    Ranks may save to one path at once. Each writes a file of its own first.
    """
    if not isinstance(file, str | PathLike):
        yield FileSink(file)
        return
    path = Path(file)
    part = path.with_name(f"{path.name}.{uuid.uuid4().hex[:8]}.part")
    try:
        with part.open("wb") as opened:
            yield FileSink(opened)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
