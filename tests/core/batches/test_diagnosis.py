"""What is said about a reason why there is no batch."""

from dataclasses import replace

from app.core.batches.diagnosis import is_about_queue, refusal_of
from app.core.model import NotReady
from app.core.runs.view import QueueView
from lachesis.wire.blockers import Blocker
from tests.core.views import EMPTY

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
