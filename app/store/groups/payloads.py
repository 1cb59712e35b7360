"""Write payloads first and their index second (ADR 2)."""

from collections.abc import Collection, Mapping
from contextlib import suppress
from itertools import chain
from typing import Any, Protocol

from app.store.groups import scripts
from app.store.groups.encoded_group import Payload
from app.store.redis.client import RedisClient
from app.store.redis.keys import RUNS, RunKeys
from app.store.redis.pipeline import Argument, Command
from lachesis.wire.errors import StoreRefused, StoreUnavailable

_TRANSACTED_BYTES = 16 * 1024 * 1024  # Redis serves no other request while it writes a transaction to disk


class Index(Protocol):
    """Builds the command that indexes payloads, pending ones or those of the same transaction."""

    def __call__(self, *, is_pending: bool) -> Command: ...


async def write_then_index(
    connection: RedisClient, keys: RunKeys, payloads: Mapping[str, Payload], index: Index
) -> Any:
    """Write payloads and index them, in one round trip; returns what the index command answered.

    All of it is one transaction. Where transactions are unsafe (`RedisClient.transacts`) or payloads are very large,
    each payload is written by its own command after a script has noted it as pending. Then the index is written. A
    write torn by a crash leaves a pending payload, which is deleted later, and never half a group. Safe to repeat.

    Redis writes payloads although it refuses a script. Then the payloads are marked, so that they are deleted unless
    something names them. They stay for good if this process dies before, or if Redis goes away.
    """
    # The run may have been announced and then forgotten. So its name is added in the same transaction as its data, or
    # after its payloads are pending. Before that, the name could be removed again in between.
    announce: Command = ("ZADD", RUNS, "NX", 0, keys.name)
    written = [(keys.payload(name), payload) for name, payload in payloads.items()]
    total_bytes = sum(map(len, payloads.values()))
    try:
        if connection.transacts and total_bytes <= _TRANSACTED_BYTES:
            # One command for all payloads: in a transaction, Redis answers each command with a system call.
            together: list[Command] = [("MSET", *chain.from_iterable(written))] if written else []
            replies = await connection.transact([announce, *together, index(is_pending=False)])
        else:
            note = [scripts.add_pending_payloads(keys, group_ids=list(payloads))] if payloads else []
            each: list[Command] = [("SET", *pair) for pair in written]
            replies = await connection.pipeline([*note, announce, *each, index(is_pending=True)])
    except StoreRefused:  # not StoreFull: then Redis writes no payload, or it is pending
        await _mark(connection, keys, payloads)
        raise
    return replies[-1]


async def _mark(connection: RedisClient, keys: RunKeys, group_ids: Collection[str]) -> None:
    """Mark payloads that may have no index, and wake the run, which deletes those that nothing names.

    A run that does not exist yet gets a clock: maintenance looks only at runs with one.

    Every attempt has ids of its own, so nothing names them later. These are plain commands: the reason may be that
    Redis lets its user load no scripts.
    """
    if not group_ids:
        return
    pairs: list[tuple[Argument, ...]] = [(-1, group_id) for group_id in group_ids]
    marks: Command = ("ZADD", keys.unreferenced, *chain.from_iterable(pairs))
    with suppress(StoreUnavailable):  # the first error says more
        await connection.pipeline([marks, ("HSETNX", keys.run, "clock_ms", 0), ("ZADD", RUNS, 0, keys.name)])
