"""Who makes another group: checked against every way to add groups, and played until a batch forms."""

from collections import Counter
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from app.core.environments.completion import Completion, Maker, Needed, completion
from app.core.model import Bounds, Lane
from tests.core.batches import oracle

bounds_of = st.builds(Bounds, minimum=st.integers(0, 4), maximum=st.none() | st.integers(0, 8))
Queue = list[tuple[int | None, int]]


def lanes(queue: Queue) -> list[Lane]:
    return [Lane(environment, size, count, ()) for (environment, size), count in Counter(queue).items()]


def completed(batch_size: int, queue: Queue, bounds: dict[int, Bounds], makers: list[Maker]) -> Completion:
    return completion(batch_size, lanes(queue), bounds, makers)


def holds_a_batch(batch_size: int, queue: Queue, bounds: dict[int, Bounds]) -> bool:
    groups = [oracle.Group(*group) for group in queue]
    return oracle.oldest_batch(groups, batch_size, bounds) is not None


def test_a_single_group_that_helps_is_the_one() -> None:
    assert completed(8, [(0, 7), (0, 7)], {}, [Maker(0, 8)]).needed == Needed(0, 1, 8)


def test_as_many_as_are_needed_together() -> None:
    assert completed(8, [(0, 7), (0, 7)], {}, [Maker(0, 2)]).needed == Needed(0, 4, 2)
    assert completed(8, [(0, 6)], {}, [Maker(0, 2)]).needed == Needed(0, 1, 2)


def test_of_two_that_could_the_first_is_asked() -> None:
    assert completed(8, [(0, 7), (0, 7)], {}, [Maker(1, 8), Maker(0, 8)]).needed == Needed(1, 1, 8)


def test_a_minimum_is_made_by_its_own_environment() -> None:
    bounds = {1: Bounds(4, None)}
    assert completed(8, [(0, 8)], bounds, [Maker(0, 8), Maker(1, 4)]).needed == Needed(1, 2, 4)


def test_a_size_that_was_seen_counts_where_declared_ones_lead_nowhere() -> None:
    queue: Queue = [(0, 3), (0, 3), (0, 1)]
    assert completed(8, queue, {}, [Maker(0, 3, (3, 1))]).needed == Needed(0, 1, 1)


def test_what_no_group_can_complete_is_said_to_be_impossible() -> None:
    assert completed(8, [(0, 5)], {}, [Maker(0, 5, (5,))]) == Completion(possible=False)
    assert completed(8, [], {0: Bounds(0, 4)}, [Maker(0, 2)]) == Completion(possible=False)
    assert completed(8, [], {}, [Maker(0, 9), Maker(1, 0)]) == Completion(possible=False)


def test_no_environment_is_asked_while_a_batch_is_possible_even_below_impossible_minimums() -> None:
    assert completed(8, [(0, 8)], {}, [Maker(0, 8)]) == Completion(possible=True)
    assert completed(8, [(0, 5), (1, 8)], {0: Bounds(4, None)}, [Maker(0, 5)]) == Completion(possible=True)


@given(
    batch_size=st.integers(1, 6),
    queue=st.lists(st.tuples(st.none() | st.integers(0, 2), st.integers(1, 7)), max_size=4),
    bounds=st.dictionaries(st.integers(0, 2), bounds_of),
    makers=st.lists(st.builds(Maker, st.integers(0, 2), st.integers(1, 7)), unique_by=lambda one: one.environment),
)
def test_making_what_is_asked_leads_to_a_batch_if_one_exists(
    batch_size: int, queue: Queue, bounds: dict[int, Bounds], makers: list[Maker]
) -> None:
    """Its minimums are kept unless no groups at all could keep them."""
    every = [range(batch_size // one.declared + 1) for one in makers]
    more = [[(one.environment, one.declared) for one, n in zip(makers, ns, strict=True) for _ in range(n)]
            for ns in product(*every)]  # fmt: skip
    free = {key: Bounds(0, bound.maximum) for key, bound in bounds.items()}
    strictly = any(holds_a_batch(batch_size, [*queue, *some], bounds) for some in more)
    kept = bounds if strictly else free
    asked = Counter[int]()
    while (needed := completed(batch_size, queue, bounds, makers).needed) is not None:
        assert not holds_a_batch(batch_size, queue, kept)
        assert needed.groups >= 1
        asked[needed.environment] += 1
        assert asked.total() <= len(makers), "each is asked once"
        queue = [*queue, *[(needed.environment, needed.size)] * needed.groups]
    if strictly or any(holds_a_batch(batch_size, [*queue, *some], free) for some in more):
        assert holds_a_batch(batch_size, queue, kept)
