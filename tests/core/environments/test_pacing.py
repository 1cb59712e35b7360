"""What an environment learns about the queue."""

from dataclasses import replace

import pytest

from app.core.environments.pacing import PAUSED_SELF_QUEUE_SIZE, PAUSED_UNALLOCATED_FRACTION, Pacing
from app.core.runs.settings import Policy
from tests.core.views import EMPTY, environment


def test_others_count_beyond_their_promised_minimum_in_groups_of_the_caller() -> None:
    view = replace(
        EMPTY,
        environments={0: environment(0, 4), 1: environment(1, 4, min_share=0.5)},
        lanes={(0, 4): 2, (1, 4): 3, (None, 2): 1},
    )
    told = Pacing(view).of(0)
    assert (told.queue_size, told.self_queue_size, told.max_group_size) == ((8 + (12 - 4) + 2) // 4, 2, 4)
    assert told.unallocated_fraction == 0.5


def test_a_minimum_counts_as_allocated_up_to_its_maximum() -> None:
    view = replace(EMPTY, environments={0: environment(0, 4, min_share=0.75, max_share=0.25)})
    assert Pacing(view).of(0).unallocated_fraction == 0.75


@pytest.mark.parametrize("caller", [0, 1, 9])
def test_a_pause_leaves_nobody_a_part_of_a_batch_and_does_not_lengthen_the_queue(caller: int) -> None:
    """The library ends an environment if the step, with the queue as batches, is beyond its last one."""
    view = replace(
        EMPTY,
        environments={0: environment(0, 4), 1: environment(1, 4, min_share=0.5)},
        lanes={(0, 4): 2, (1, 4): 3},
    )
    paused = replace(view, policy=Policy(intake_paused=True))
    assert Pacing(paused).of(caller) == replace(
        Pacing(view).of(caller),
        unallocated_fraction=PAUSED_UNALLOCATED_FRACTION,
        self_queue_size=PAUSED_SELF_QUEUE_SIZE,
    )


def test_groups_too_large_for_a_batch_keep_nobody_waiting() -> None:
    told = Pacing(replace(EMPTY, environments={0: environment(0)}, lanes={(0, 9): 50})).of(0)
    assert (told.queue_size, told.self_queue_size, told.max_group_size) == (0, 0, 1)


def test_groups_above_the_largest_share_of_their_environment_keep_nobody_waiting() -> None:
    capped = environment(0, 8, max_share=0.5)
    told = Pacing(replace(EMPTY, environments={0: capped}, lanes={(0, 8): 3, (0, 4): 4})).of(0)
    assert (told.queue_size, told.self_queue_size, told.max_group_size) == (2, 2, 4)


def test_a_dead_environment_has_no_weight_and_no_promise() -> None:
    dead = environment(1, min_share=0.9, left_ms=0)
    told = Pacing(replace(EMPTY, environments={0: environment(0), 1: dead})).of(0)
    assert (told.env_weight, told.unallocated_fraction) == (1.0, 1.0)


@pytest.mark.parametrize("weight", [0.0, -1.0])
def test_an_environment_without_weight_is_not_starved(weight: float) -> None:
    view = replace(EMPTY, environments={0: environment(0, weight=weight), 1: environment(1)})
    assert Pacing(view).of(0).env_weight == 0.01


def test_weights_are_in_proportion_to_context_length_times_weight() -> None:
    view = replace(EMPTY, environments={0: environment(0, max_token_length=1000), 1: environment(1, weight=0.5)})
    assert Pacing(view).of(0).env_weight == pytest.approx(1000 / (1000 + 256))
