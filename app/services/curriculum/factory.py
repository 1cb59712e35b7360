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
        administration = CurriculumAdministration(stores.curricula)
        samples = CurriculumSamples(administration, stores.curricula, stores.items)
        return cls(
            administration=administration,
            items=CurriculumItems(administration, stores.curricula, stores.items),
            observations=CurriculumObservations(administration, stores.items),
            samples=samples,
            states=CurriculumStates(administration, stores.curricula, stores.curriculum_states),
            comparisons=StrategyComparisons(administration, samples, stores.items),
        )
