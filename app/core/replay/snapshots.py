"""Where a snapshot of the replay buffer goes, and which go for it."""

from collections.abc import Mapping


def place_snapshot(name: str, there: Mapping[int, str], keep: int, slots: int) -> tuple[int, list[int]]:
    """Return the slot for a snapshot, and the slots of those that go: one of its name, then the oldest.

    Args:
        name: Its name.
        there: The names of those there are, by slot, oldest first.
        keep: How many may be there with it, 1 to ``slots``.
        slots: How many there are, numbered from 0.
    """
    gone = [slot for slot, other in there.items() if other == name]
    others = [slot for slot in there if slot not in gone]
    gone += others[: max(0, len(others) + 1 - keep)]
    return next(slot for slot in range(slots) if slot not in there or slot in gone), gone
