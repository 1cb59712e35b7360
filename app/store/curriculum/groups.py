"""Define what groups tell curricula (`lua/curriculum/observe_groups.lua`)."""

from dataclasses import dataclass, field

from app.store.curriculum.entries import MAX_ITEMS
from app.store.curriculum.items import ItemObservation


@dataclass(frozen=True, slots=True)
class GroupObservations:
    """The observations that a submission brings to a curriculum.

    Attributes:
        curriculum_id: The id in the names of the curriculum's keys.
        bins: How many bins are arms of the bandit; 0 if categories are.
        observations: For each group that names an item: its position in the submission, the item, and the update of its
            estimate. None if the rewards do not count.
        most_items: Items that the curriculum may have.
    """

    curriculum_id: str
    bins: int
    observations: list[tuple[int, str, ItemObservation | None]] = field(default_factory=list)
    most_items: int = MAX_ITEMS
