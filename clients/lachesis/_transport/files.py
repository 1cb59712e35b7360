"""Bodies that go from files, or into files, a piece at a time, and from the start again with each attempt."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import BinaryIO, TypeAlias

_PIECE_BYTES = 1024 * 1024

StateFile: TypeAlias = BinaryIO | str | PathLike[str]
"""A file that is open for bytes, or the path of one."""


class FileBody:
    """What a file has from where it stands, to be sent."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._start = file.tell()

    async def pieces(self) -> AsyncIterator[bytes]:
        """Read it from the start."""
        await asyncio.to_thread(self._file.seek, self._start)
        while piece := await asyncio.to_thread(self._file.read, _PIECE_BYTES):
            yield piece


class FileSink:
    """A file that takes a body, from where it stands on."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._begun = False
        self._start = 0

    async def take(self, pieces: AsyncIterator[bytes]) -> None:
        """Write a body, in place of what an attempt before left there.

        Raises:
            io.UnsupportedOperation: There was one, and one cannot go back in this file.
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
    """Send what a file has; one that is named by its path is opened for it."""
    if not isinstance(file, str | PathLike):
        yield FileBody(file)
        return
    with Path(file).open("rb") as opened:
        yield FileBody(opened)


@contextmanager
def written_to(file: StateFile) -> Iterator[FileSink]:
    """Take a body into a file; at a path, what is there stays until all of the body has come."""
    if not isinstance(file, str | PathLike):
        yield FileSink(file)
        return
    path = Path(file)
    part = path.with_name(path.name + ".part")
    try:
        with part.open("wb") as opened:
            yield FileSink(opened)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
