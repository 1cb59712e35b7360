"""Count observations of items: the rewards of their groups."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from numpy.typing import ArrayLike

from app.core.curriculum.bins import bin_at
from app.core.curriculum.estimates import Estimate, observed
from app.core.curriculum.strategies.bandit import arm_step
from app.services.curriculum.curricula import again_if_replaced
from app.services.curriculum.items import refused
from app.services.threads import in_thread_if
from app.store.curriculum.items import ItemObservation, ItemStore
from app.store.curriculum.store import CurriculumStore
from lachesis.wire.curricula import CurriculumSettings

_AT_ONCE = 1000  # observations; a script counts them within 30 milliseconds
_MANY_REWARDS = 20_000  # to reduce so many takes some milliseconds


@dataclass(frozen=True, slots=True)
class ItemAfterObservation:
    """The state of an item after the observations of a request."""

    key: str
    bin: int
    estimate: Estimate


@dataclass(frozen=True, slots=True)
class ObservationReceipt:
    """The result of a request with observations.

    Attributes:
        repeated: Whether all of them had been counted before.
        items: The item of each observation, as it is now.
    """

    repeated: bool
    items: tuple[ItemAfterObservation, ...]


class CurriculumObservations:
    """Counts observations."""

    def __init__(self, store: CurriculumStore, items: ItemStore) -> None:
        self._store = store
        self._items = items

    @again_if_replaced
    async def observe(
        self, run: str, name: str, observations: Sequence[tuple[str, Sequence[float]]], request_id: str | None
    ) -> ObservationReceipt:
        """Count observations (item and rewards) in this order, and register unknown items.

        Each thousand observations are counted in one atomic step. A request with a ``request_id`` can be sent again:
        each observation is counted once.

        Raises:
            CurriculumNotFound: The run has none of this name.
            InvalidField: There would be too many items.
        """
        view = await self._store.existing(run, name)
        is_large = sum(len(rewards) for _, rewards in observations) > _MANY_REWARDS
        changes = await in_thread_if(is_large, changes_of, view.settings, observations)
        own = request_id or uuid.uuid4().hex
        bins, repeated, items = arm_bins(view.settings), True, list[ItemAfterObservation]()
        for first in range(0, len(changes), _AT_ONCE):
            part = changes[first : first + _AT_ONCE]
            done = await self._items.observe(view, f"{own} {first}", part, bins)
            if isinstance(done, str):
                raise refused(view, done, ("observations", first))
            repeated = repeated and done.repeated
            items += [
                ItemAfterObservation(each.key, bin_at(now.rank, done.ranked_items, view.settings.n_bins), now.estimate)
                for each, now in zip(part, done.observed, strict=True)
            ]
        return ObservationReceipt(repeated, tuple(items))


def changes_of(settings: CurriculumSettings, observations: Sequence[tuple[str, ArrayLike]]) -> list[ItemObservation]:
    """Return the changes that observations make, which do not depend on earlier observations."""
    found = []
    for key, rewards in observations:
        change = observed(settings, rewards)
        found.append(ItemObservation(key, change, arm_step(settings, change)))
    return found


def arm_bins(settings: CurriculumSettings) -> int:
    """Return how many bins are arms of the bandit; 0 if categories are."""
    return settings.n_bins if settings.arms == "bins" else 0
