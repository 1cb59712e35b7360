"""Tell which lanes a batch can take groups from, so that not every lane of a deep queue has to be read.

Groups of one size can replace each other if no share limits their environments. So only the oldest
``batch_size // size`` of them matter (`app.core.batches.selection`). They are in as many lanes: those whose oldest
groups are the oldest. Lanes of other environments all count.
"""

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence

from app.core.model import Lane, LaneId, lanes_of


def lanes_to_read(
    batch_size: int, queued: Mapping[LaneId, int], limited: Container[int | None], by_age: Iterable[LaneId]
) -> list[LaneId]:
    """Return lanes that give the same batch as all lanes of a queue.

    Args:
        batch_size: Sequences in a batch, ``>= 1``.
        queued: Groups queued, by lane.
        limited: The environments with a share limit.
        by_age: The lanes, by their oldest groups. Lanes that are not in ``queued`` are left out. If lanes of
            ``queued`` are missing that may matter, all lanes are returned.
    """
    found, oldest = [lane for lane in queued if lane[0] in limited], iter(by_age)
    unlimited = Counter([size for environment, size in queued if environment not in limited])
    missing = {size: most for size, lanes in unlimited.items() if (most := min(lanes, batch_size // size))}
    while missing:
        old = next(oldest, None)
        if old is None:
            return list(queued)
        environment, size = old
        if size in missing and environment not in limited and old in queued:
            found.append(old)
            missing[size] -= 1
            if not missing[size]:
                del missing[size]
    return found


def with_unread(queued: Mapping[LaneId, int], lanes: Sequence[Lane]) -> list[Lane]:
    """Return lanes that were read and all others, without heads, in the order of ``queued``."""
    return list({lane.id: lane for lane in (*lanes_of(queued), *lanes)}.values())
