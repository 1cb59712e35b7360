"""The rule of what a token may have in the queue, against what is in the queue afterwards."""

from hypothesis import given
from hypothesis import strategies as st

from app.core.runs.capacity import WaitingGroups
from lachesis.wire.limits import QueueLimitSettings
from tests.core.access.rate_limits import exceeded_limit
from tests.properties import examples

SUBMISSIONS = st.lists(st.tuples(st.lists(st.integers(0, 9), max_size=4), st.integers(0, 3)), max_size=20)
"""The bytes of the groups of each submission, and how many of the oldest groups leave before it."""


@given(SUBMISSIONS, st.none() | st.integers(1, 8), st.none() | st.integers(1, 30))
@examples(300)
def test_what_is_in_the_queue_is_within_the_limits_or_came_at_once(
    submissions: list[tuple[list[int], int]], most_groups: int | None, most_bytes: int | None
) -> None:
    """The oracle looks at the queue as it would be: too full, and not of one submission alone."""
    limits, queue = (
        QueueLimitSettings(max_queued_groups=most_groups, max_queued_bytes=most_bytes),
        list[tuple[int, int]](),
    )
    for number, (sizes, leave) in enumerate(submissions):
        del queue[:leave]
        then = [*queue, *((number, size) for size in sizes)]
        too_many = most_groups is not None and len(then) > most_groups
        too_large = most_bytes is not None and sum(size for _, size in then) > most_bytes
        alone = len({submission for submission, _ in then}) == 1
        expected = "max_queued_groups" if too_many else "max_queued_bytes" if too_large else None
        found = exceeded_limit(limits, waiting(queue), WaitingGroups(len(sizes), sum(sizes)))
        assert found == (None if alone or not sizes else expected)
        if found is None:
            queue = then


def waiting(queue: list[tuple[int, int]]) -> WaitingGroups:
    return WaitingGroups(len(queue), sum(size for _, size in queue))
