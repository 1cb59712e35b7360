"""Groups that bring observations of items: what of that admits them (`lua/curriculum/observe_groups.lua`)."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from app.store.curriculum.entries import MAX_ITEMS, packed_change
from app.store.curriculum.items import Observation
from app.store.redis.keys import RunKeys
from app.store.redis.pipeline import Argument


@dataclass(frozen=True, slots=True)
class GroupObservations:
    """What a submission tells a curriculum.

    Attributes:
        curriculum_id: What the curriculum's keys are named by.
        bins: How many bins are arms of the bandit; 0 if categories are.
        observations: Of each group that names an item its position in the submission, the item, and what the rewards
            change; None if they are nothing to count.
        most_items: Items that the curriculum may have.
    """

    curriculum_id: str
    bins: int
    observations: list[tuple[int, str, Observation | None]] = field(default_factory=list)
    most_items: int = MAX_ITEMS


def observation_arguments(keys: RunKeys, told: Sequence[GroupObservations]) -> tuple[list[str], list[Argument]]:
    """Return the keys and arguments of `lua/groups/admit_groups.lua` that are of each curriculum."""
    places: list[str] = []
    arguments: list[Argument] = []
    for each in told:
        places += keys.curriculum_keys(each.curriculum_id)[1:]
        arguments += [each.bins, each.most_items, len(each.observations)]
        for position, item, observation in each.observations:
            change = b"" if observation is None else packed_change(observation.change, observation.arm)
            arguments += [position + 1, item, change]
    return places, arguments
