"""Write payloads first and their index second (ADR 2)."""

from collections.abc import Mapping
from itertools import chain
from typing import Any, Protocol

from app.store.groups import scripts
from app.store.groups.codec import Payload
from app.store.redis.client import RedisClient
from app.store.redis.keys import RUNS, RunKeys
from app.store.redis.pipeline import Command

_TRANSACTED_BYTES = 16 * 1024 * 1024  # Redis serves no other request while it writes a transaction to disk


class Index(Protocol):
    """Builds the command that indexes payloads, reserved ones or those of the same transaction."""

    def __call__(self, *, reserved: bool) -> Command: ...


async def write_then_index(
    connection: RedisClient, keys: RunKeys, payloads: Mapping[str, Payload], index: Index
) -> Any:
    """Write payloads and index them, in one round trip; returns what the index command answered.

    All of it is one transaction. Where transactions are unsafe (`RedisClient.transacts`) or payloads are very large,
    each payload is written by its own command after a script has noted it as pending. Then the index is written. A
    write torn by a crash leaves a pending payload, which is deleted later, and never half a group. Safe to repeat.
    """
    # The run may have been announced and then forgotten. So its name is added in the same transaction as its data, or
    # after its reservations. Before the reservations, the name could be removed again in between.
    announce: Command = ("ZADD", RUNS, "NX", 0, keys.name)
    written = [(keys.payload(name), payload) for name, payload in payloads.items()]
    total_bytes = sum(map(len, payloads.values()))
    if connection.transacts and total_bytes <= _TRANSACTED_BYTES:
        # One command for all payloads: in a transaction, Redis answers each command with a system call.
        together: list[Command] = [("MSET", *chain.from_iterable(written))] if written else []
        replies = await connection.transact([announce, *together, index(reserved=False)])
    else:
        reserve = [scripts.add_pending_payloads(keys, group_ids=list(payloads))] if payloads else []
        each: list[Command] = [("SET", *pair) for pair in written]
        replies = await connection.pipeline([*reserve, announce, *each, index(reserved=True)])
    return replies[-1]
