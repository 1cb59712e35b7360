"""Inflate gzip bodies as they arrive, and stop a bomb before it fills the memory."""

from collections.abc import Generator, Iterator
from typing import Any

from app.api.http.gzip_library import GZIP, zlib
from lachesis.wire.errors import BodyTooLarge, MalformedBody

_DAMAGED: Any = zlib.error

OUTPUT_BYTES = 1024 * 1024
"""The largest part that is inflated at a time."""

_INPUT_BYTES = 64 * 1024  # inflated at a time: each step copies what is left of a piece
_HARMLESS_BYTES = 4 * 1024 * 1024
_MAX_RATIO = 100
_MAX_MEMBERS = 10_000  # to begin one takes time, however small it is. bgzip makes one for each 64 KiB


class Inflater:
    """Inflate gzip, of one member or more, as it arrives.

    Args:
        limit_bytes: Largest size of the inflated body.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._member: Any = None
        self._members = 0
        self._sent_bytes = 0
        self._inflated_bytes = 0

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Inflate the next part of the body, in pieces of at most `OUTPUT_BYTES`.

        Raises:
            MalformedBody: It is not gzip, or damaged.
            BodyTooLarge: It inflates to more than the limit, or too many times, or has too many members.
        """
        self._sent_bytes += len(chunk)
        for start in range(0, len(chunk), _INPUT_BYTES):
            piece = chunk[start : start + _INPUT_BYTES]
            while piece:
                piece = yield from self._inflate(piece)

    def finish(self) -> None:
        """Check that the body is complete.

        Raises:
            MalformedBody: It is cut off, or followed by something that is not gzip.
        """
        if self._member is None or not self._member.eof:
            or_more = ", or followed by something that is not gzip" if self._members > 1 else ""
            raise MalformedBody(f"the gzip body is cut off after {self._sent_bytes} bytes{or_more}")

    def _inflate(self, piece: bytes) -> Generator[bytes, None, bytes]:
        """Inflate ``piece``; return what belongs to the next member."""
        if self._member is None or self._member.eof:
            self._members += 1
            if self._members > _MAX_MEMBERS:
                raise BodyTooLarge(f"the gzip body has more than {_MAX_MEMBERS} members")
            self._member = zlib.decompressobj(wbits=GZIP)
        full = True
        while full and not self._member.eof:  # a full step may have left more behind
            try:
                inflated = self._member.decompress(piece, OUTPUT_BYTES)
            except _DAMAGED as error:
                raise MalformedBody(f"not gzip, or damaged, within {self._sent_bytes} bytes: {error}") from error
            piece, full = self._member.unconsumed_tail, len(inflated) == OUTPUT_BYTES
            self._count(len(inflated))
            yield inflated
        return bytes(self._member.unused_data)

    def _count(self, inflated_bytes: int) -> None:
        self._inflated_bytes += inflated_bytes
        if self._inflated_bytes > self._limit_bytes:
            raise BodyTooLarge(f"the body inflates to more than {self._limit_bytes} bytes")
        if self._inflated_bytes > max(_HARMLESS_BYTES, _MAX_RATIO * self._sent_bytes):
            raise BodyTooLarge(f"beyond {_HARMLESS_BYTES} bytes, a body may inflate at most {_MAX_RATIO} times")
