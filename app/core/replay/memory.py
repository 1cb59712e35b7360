"""Limit the memory of replay buffers, and decide how much they free when the store is full.

Fresh groups have priority: a buffer holds data that was delivered before. The store itself evicts nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass

_DEFAULT_PARTS = 4
"""A buffer's payloads take a quarter of the memory by default: two snapshots may hold as much each."""

_FULL, _ROOMY = 0.95, 0.9
"""Shares of the limit: above the first, chunks are evicted until memory is below the second."""


@dataclass(frozen=True, slots=True)
class StoreMemory:
    """The memory of the server that holds all state.

    Attributes:
        used_bytes: Memory in use.
        limit_bytes: Most memory it may use (``maxmemory``), or 0 for no limit.
        machine_bytes: Memory of its machine.
    """

    used_bytes: int
    limit_bytes: int
    machine_bytes: int


def default_max_bytes(memory: StoreMemory) -> int:
    """Return the payload limit of a buffer that names none: a quarter of the memory that the server may use."""
    return max(1, (memory.limit_bytes or memory.machine_bytes) // _DEFAULT_PARTS)


def is_full(memory: StoreMemory) -> bool:
    """Return whether to evict chunks to make room for groups. True before the server refuses writes at its limit."""
    return memory.limit_bytes > 0 and memory.used_bytes > _FULL * memory.limit_bytes


def bytes_to_free(memory: StoreMemory) -> int:
    """Return how many bytes must be freed once the store is full; 0 if there is room."""
    return max(0, memory.used_bytes - int(_ROOMY * memory.limit_bytes)) if memory.limit_bytes else 0


def shares(wanted_bytes: int, held: Mapping[str, int]) -> dict[str, int]:
    """Divide the bytes to free between buffers, in proportion to what each holds.

    Args:
        wanted_bytes: Bytes to free in all.
        held: Payload held, by buffer.

    Returns:
        For each buffer that holds anything, at least one byte and at most what it holds. The sum is ``wanted_bytes``, a
        little more because shares are rounded up, or all that buffers hold.
    """
    total = sum(held.values())
    wanted_bytes = min(wanted_bytes, total)
    return {name: -(-wanted_bytes * size // total) for name, size in held.items() if size and wanted_bytes > 0}
