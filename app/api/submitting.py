"""Decoding submissions: small ones at once, large ones beside the event loop."""

import asyncio

from app.api.scored_data import decode_group, decode_groups
from app.store.codec import EncodedGroup

_IN_THREAD_BYTES = 1024 * 1024


async def decode_one(body: bytes) -> EncodedGroup:
    """Decode one group's JSON; see `decode_group`."""
    return decode_group(body) if len(body) < _IN_THREAD_BYTES else await asyncio.to_thread(decode_group, body)


async def decode_many(body: bytes) -> list[EncodedGroup]:
    """Decode a JSON list of groups; see `decode_groups`."""
    return decode_groups(body) if len(body) < _IN_THREAD_BYTES else await asyncio.to_thread(decode_groups, body)
