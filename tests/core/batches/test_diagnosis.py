"""What is said about a reason why there is no batch."""

from app.core.batches.diagnosis import is_about_queue
from app.core.model import NotReady
from lachesis.wire.blockers import Blocker

OTHERS = {"not_registered", "archived", "serving_paused", "cannot_be_divided", "old_groups"}


def test_every_reason_but_a_few_is_about_the_queue() -> None:
    """Replies with a reason about the queue also name who must act. A new reason belongs here or in `_ABOUT_QUEUE`."""
    about_queue = {str(blocker) for blocker in Blocker if is_about_queue(NotReady(blocker, ""))}
    assert about_queue == {str(blocker) for blocker in Blocker} - OTHERS
