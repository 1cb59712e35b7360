"""Take observations of items from scored groups."""

from collections.abc import Sequence

from app.services.curriculum.observing import arm_bins, changes_of
from app.store.curriculum.groups import GroupObservations
from app.store.curriculum.items import ItemObservation
from app.store.groups.admission_context import AdmissionContext, ObservingCurriculum
from app.store.groups.encoded_group import EncodedGroup
from app.store.groups.entries import Placement
from lachesis.wire.errors import InvalidField


def observations_of(
    groups: Sequence[EncodedGroup], placements: Sequence[Placement], context: AdmissionContext
) -> list[GroupObservations]:
    """Return the observations that groups with an item bring to the curricula of their environments.

    Dropped groups count too, because their rewards are known.
    """
    if not context.observers:
        return []
    by_curriculum: dict[str, GroupObservations] = {}
    for position, (group, place) in enumerate(zip(groups, placements, strict=True)):
        observer = context.observers.get(place.environment)
        if group.item is None or observer is None:
            continue
        own = by_curriculum.setdefault(
            observer.curriculum_id, GroupObservations(observer.curriculum_id, arm_bins(observer.settings))
        )
        own.observations.append((position, group.item, _observation(observer, group.item, group)))
    return list(by_curriculum.values())


def _observation(observer: ObservingCurriculum, item: str, group: EncodedGroup) -> ItemObservation | None:
    try:
        (observation,) = changes_of(observer.settings, [(item, group.rewards)])
    except InvalidField:  # finite, but too large to count: no reason to refuse the group
        return None
    return observation
