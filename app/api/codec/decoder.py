"""Decode bodies: small ones at once, large ones in a thread, huge ones of JSON one at a time."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from app.api.codec.fragments import decode_fragments, decode_fragments_json
from app.api.codec.group_blob import decode_blobs
from app.api.codec.group_json import decode_native_json
from app.api.codec.scored_data import decode_group, decode_groups
from app.store.groups.codec import EncodedGroup
from app.store.replay.entries import EncodedFragment

T = TypeVar("T")
_IN_THREAD_BYTES = 1024 * 1024
_HUGE_BYTES = 32 * 1024 * 1024


class Decoder:
    """Decode bodies without blocking the event loop, and without filling the memory.

    Decoding JSON takes 8 to 18 times the memory of the body. That is fine for many small bodies, and for one huge body.
    """

    def __init__(self) -> None:
        self._huge = asyncio.Semaphore(1)

    async def one(self, body: bytes) -> EncodedGroup:
        """Decode one group's JSON (`decode_group`)."""
        return await self.json(decode_group, body)

    async def many(self, body: bytes) -> list[EncodedGroup]:
        """Decode a JSON list of groups (`decode_groups`)."""
        return await self.json(decode_groups, body)

    async def blobs(self, body: bytes) -> list[EncodedGroup]:
        """Decode groups in binary (`decode_blobs`)."""
        return await self._binary(decode_blobs, body)

    async def fragments(self, body: bytes) -> list[EncodedFragment]:
        """Decode fragments in binary (`decode_fragments`)."""
        return await self._binary(decode_fragments, body)

    async def fragments_json(self, body: bytes) -> list[EncodedFragment]:
        """Decode the JSON of fragments (`decode_fragments_json`)."""
        return await self.json(decode_fragments_json, body)

    async def native(self, body: bytes) -> list[EncodedGroup]:
        """Decode the JSON of groups of the native API (`decode_native_json`)."""
        return await self.json(decode_native_json, body)

    async def json(self, decode: Callable[[bytes], T], body: bytes) -> T:
        """Decode a body of JSON."""
        if len(body) < _IN_THREAD_BYTES:
            return decode(body)
        if len(body) < _HUGE_BYTES:
            return await asyncio.to_thread(decode, body)
        async with self._huge:
            return await asyncio.to_thread(decode, body)

    async def _binary(self, decode: Callable[[bytes], T], body: bytes) -> T:
        return decode(body) if len(body) < _IN_THREAD_BYTES else await asyncio.to_thread(decode, body)
