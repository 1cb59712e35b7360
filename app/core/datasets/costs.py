"""Read the cost model of a dataset's episodes."""

import re
from dataclasses import dataclass

from numpy.typing import ArrayLike

from app.core.ranks.costs import CostModel, Costs, Measure
from lachesis.wire.errors import InvalidField

DECLARED_COLUMN = "cost"
"""The column of a producer's costs, unless another one is named."""

_COLUMN = "column:"
_FACTORS = re.compile(r"(linear|quadratic)=([^,=]+)(?:,(linear|quadratic)=([^,=]+))?")


@dataclass(frozen=True, slots=True)
class EpisodeCost:
    """The cost of an episode.

    Attributes:
        text: The rule as the user wrote it.
        model: The rule.
        column: The column with the producer's costs, if the rule uses them.
    """

    text: str
    model: CostModel
    column: str | None = None

    def of(
        self,
        lengths: ArrayLike,
        *,
        declared: ArrayLike | None = None,
        action_dim: int | None = None,
        cameras: int | None = None,
    ) -> Costs:
        """Return the cost of each episode.

        Args:
            lengths: The length of each episode, integers ``>= 0``, ``[episodes]``.
            declared: The producer's costs from `column`, ``[episodes]``.
            action_dim: Numbers in one action; None if the dataset does not say.
            cameras: The number of cameras; None if the dataset does not say. 0 counts as 1, for the states.

        Raises:
            InvalidField: The rule needs a value that the dataset does not have, or a cost is not finite and ``>= 0``.
        """
        if self.column is not None and declared is None:
            raise InvalidField(f"{self.text}: these episodes have no column {self.column!r}", ("cost",))
        seen = None if cameras is None else max(1, cameras)
        return self.model.costs(lengths, declared=declared, action_dims=action_dim, cameras=seen)


def parse_episode_cost(text: str) -> EpisodeCost:
    """Read a rule: one of those of `CostModel.parse`, ``linear=A,quadratic=B`` for a sum, or ``column:NAME``.

    ``declared`` is short for ``column:cost``.

    Raises:
        InvalidField: The text is something else.
    """
    if text.startswith(_COLUMN) and len(text) > len(_COLUMN):
        return EpisodeCost(text, CostModel(Measure.DECLARED), text.removeprefix(_COLUMN))
    try:
        factors = _FACTORS.fullmatch(re.sub(r"\s+", "", text))
        model = CostModel(Measure.LENGTH, **_factors(factors)) if factors else CostModel.parse(text)
    except InvalidField as error:
        raise InvalidField(
            f"{error.message}; of episodes also `frames*action_dim*cameras` and `column:NAME`", ("cost",)
        ) from None
    return EpisodeCost(text, model, DECLARED_COLUMN if model.measure is Measure.DECLARED else None)


def _factors(found: re.Match[str]) -> dict[str, float]:
    if found[1] == found[3]:
        raise InvalidField(f"{found[0]} names {found[1]} twice")
    try:
        return {name: float(value) for name, value in (found.group(1, 2), found.group(3, 4)) if name}
    except ValueError:
        raise InvalidField(f"{found[0]} holds a factor that is not a number") from None
