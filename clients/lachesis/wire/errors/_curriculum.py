"""The errors of curricula."""

from lachesis.wire.errors._requests import NotFound


class CurriculumNotFound(NotFound):
    """The run has no curriculum of this name."""

    code = "curriculum_not_found"
    remedy = "Check the name, or create the curriculum with `PUT /v1/runs/{run}/curricula/{curriculum}`."


class ItemNotFound(NotFound):
    """The curriculum has no item of this key."""

    code = "item_not_found"
    remedy = "Register the item first, or check the key."
