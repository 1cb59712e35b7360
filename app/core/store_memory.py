"""How much memory of the store replay buffers may take, and how much must go when the store is full.

Fresh groups come first: a buffer holds what was delivered, or can be played again. The store itself evicts nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass

_DEFAULT_PARTS = 4
"""A buffer's payloads take one part of so many, unless it says otherwise: two checkpoints may hold as much each."""

_FULL, _ROOMY = 0.95, 0.9
"""Shares of the limit: above the first, chunks go until memory is below the second."""


@dataclass(frozen=True, slots=True)
class StoreMemory:
    """The memory of the server that holds all state.

    Attributes:
        used_bytes: What its data take.
        limit_bytes: The most they may take (``maxmemory``), or 0 for no limit.
        machine_bytes: What its machine has.
    """

    used_bytes: int
    limit_bytes: int
    machine_bytes: int


def default_max_bytes(memory: StoreMemory) -> int:
    """Return the most bytes of payload in a buffer that names no limit: a quarter of what its server may take."""
    return max(1, (memory.limit_bytes or memory.machine_bytes) // _DEFAULT_PARTS)


def is_full(memory: StoreMemory) -> bool:
    """Whether chunks must make way for groups: before the server refuses what is written, at its limit."""
    return memory.limit_bytes > 0 and memory.used_bytes > _FULL * memory.limit_bytes


def bytes_to_free(memory: StoreMemory) -> int:
    """Return how many bytes must go until there is room again, once the store is full; 0 if there is."""
    return max(0, memory.used_bytes - int(_ROOMY * memory.limit_bytes)) if memory.limit_bytes else 0


def shares(wanted_bytes: int, held: Mapping[str, int]) -> dict[str, int]:
    """Divide what must go between buffers, in proportion to what each holds.

    Args:
        wanted_bytes: What must go in all.
        held: Payload held, by buffer.

    Returns:
        Of each buffer that holds anything, at least one byte and at most what it holds; together ``wanted_bytes`` or,
        as shares are rounded up, a little more, if they hold so much.
    """
    total = sum(held.values())
    wanted_bytes = min(wanted_bytes, total)
    return {name: -(-wanted_bytes * size // total) for name, size in held.items() if size and wanted_bytes > 0}
