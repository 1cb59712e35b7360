"""Build the use cases of curricula."""

from dataclasses import dataclass

from app.services.curriculum.curricula import CurriculumAdministration
from app.services.curriculum.items import CurriculumItems
from app.services.curriculum.observing import CurriculumObservations
from app.services.curriculum.sampling import CurriculumSamples
from app.services.curriculum.states import CurriculumStates
from app.services.curriculum.what_if import StrategyComparisons
from app.services.stores import Stores


@dataclass(frozen=True, slots=True)
class CurriculumServices:
    """The use cases of curricula."""

    administration: CurriculumAdministration
    items: CurriculumItems
    observations: CurriculumObservations
    samples: CurriculumSamples
    states: CurriculumStates
    comparisons: StrategyComparisons

    @classmethod
    def create(cls, stores: Stores) -> "CurriculumServices":
        """Build the use cases on the stores."""
        samples = CurriculumSamples(stores.curricula, stores.items)
        return cls(
            administration=CurriculumAdministration(stores.curricula),
            items=CurriculumItems(stores.curricula, stores.items),
            observations=CurriculumObservations(stores.curricula, stores.items),
            samples=samples,
            states=CurriculumStates(stores.curricula, stores.curriculum_states),
            comparisons=StrategyComparisons(stores.curricula, samples, stores.items),
        )
