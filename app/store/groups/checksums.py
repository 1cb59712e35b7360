"""Find damaged payloads by their checksums. Redis does not: its files have none."""

import xxhash

from app.store.groups.encoded_group import Payload
from lachesis.wire.states import DropReason


def checksum(payload: Payload) -> str:
    """Return the payload's fingerprint, 16 hex digits (xxh3, 64 bits). It does not protect against forgery."""
    return xxhash.xxh3_64_hexdigest(payload)


def damage(payload: Payload | None, stored: str) -> DropReason | None:
    """Return why a payload cannot be used: it is gone, or its checksum is not the stored one. None if it can."""
    if payload is None:
        return "payload_lost"
    return None if checksum(payload) == stored else "corrupt"
