"""What is said about a reason why there is no batch."""

from dataclasses import replace

from app.core.batches.diagnosis import is_about_queue, refusal_of, with_filtered
from app.core.groups.filters import Arrived
from app.core.model import NotReady
from app.core.runs.view import QueueView
from lachesis.wire.blockers import Blocker
from tests.core.views import EMPTY, environment

OTHERS = {"not_registered", "archived", "serving_paused", "cannot_be_divided", "old_groups"}


def test_every_reason_but_a_few_is_about_the_queue() -> None:
    """Replies with a reason about the queue also name who must act. A new reason belongs here or in `_ABOUT_QUEUE`."""
    about_queue = {str(blocker) for blocker in Blocker if is_about_queue(NotReady(blocker, ""))}
    assert about_queue == {str(blocker) for blocker in Blocker} - OTHERS


def test_the_state_of_a_run_refuses_batches_by_the_first_reason_that_applies() -> None:
    def refused(view: QueueView, **settings: bool) -> Blocker | None:
        refusal = refusal_of(replace(view, policy=view.policy.model_copy(update=settings)))
        return None if refusal is None else refusal.blocker

    unregistered = replace(EMPTY, config=None)
    assert refused(EMPTY) is None
    assert refused(EMPTY, serving_paused=True) is Blocker.SERVING_PAUSED
    assert refused(EMPTY, serving_paused=True, archived=True) is Blocker.ARCHIVED
    assert refused(unregistered, serving_paused=True, archived=True) is Blocker.NOT_REGISTERED


def test_the_reason_says_that_filters_drop_groups_of_an_environment_that_batches_wait_for() -> None:
    view = replace(EMPTY, environments={0: environment(0), 1: environment(1)})
    short = NotReady(Blocker.MINIMUM_SHORT, "short", 4, {0: 4})
    assert with_filtered(short, Arrived(9), view) == short
    told = "short; filters dropped 5 of the last 9 groups (56 %): pass_rate 5"
    of_other = Arrived(9, {"pass_rate": 5}, {1: 5})
    assert with_filtered(short, of_other, view).detail == told
    of_both = Arrived(9, {"pass_rate": 5}, {0: 3, 1: 2})
    told += ". Of these, 3 of environment 0 (env0_0): change filter_pass_rate"
    assert with_filtered(short, of_both, view).detail == f"{told} or set relax_scarce_after_s"
    relaxing = replace(view, policy=view.policy.model_copy(update={"relax_scarce_after_s": 5.0}))
    assert with_filtered(short, of_both, relaxing).detail == told
