"""What an episode costs to train on: a rule people write as a text, applied to whole arrays."""

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app.core.balancing import Costs
from app.core.errors import InvalidField

TEXTS = "tokens, linear=A,quadratic=B, frames*action_dim*cameras or column:NAME"
_POLYNOMIAL = re.compile(r"(linear|quadratic)=([^,=]+)(?:,(linear|quadratic)=([^,=]+))?")
_COLUMN = "column:"
_FRAMES = "frames*action_dim*cameras"


@dataclass(frozen=True, slots=True)
class EpisodeCost:
    """What an episode of length L costs.

    Attributes:
        text: As people wrote it.
        linear, quadratic: ``linear * L + quadratic * L**2``, in a unit of the caller's choice.
        per_frame: Whether L is multiplied by the numbers of an action and of cameras: values seen or produced.
        column: Where a producer wrote the costs; then nothing else counts.
    """

    text: str
    linear: float = 1.0
    quadratic: float = 0.0
    per_frame: bool = False
    column: str | None = None

    def of(
        self,
        lengths: NDArray[np.int64],
        *,
        sent: Costs | None = None,
        action_dim: int | None = None,
        cameras: int | None = None,
    ) -> Costs:
        """Work out the cost of each episode.

        Args:
            lengths: Of each, ``>= 0``, ``[episodes]``.
            sent: The producer's costs, where `column` names them.
            action_dim: Numbers in one action, where the dataset says it.
            cameras: How many there are, where the dataset says it.

        Raises:
            InvalidField: The rule takes something that the dataset does not say, or that makes every cost 0.
        """
        if self.column is not None:
            if sent is None:
                raise InvalidField(f"{self.text}: these episodes have no column {self.column!r}", ("cost",))
            return sent
        factor = 1.0
        if self.per_frame:
            if not action_dim or not cameras:
                said = f"action_dim {action_dim}, cameras {cameras}"
                raise InvalidField(
                    f"{self.text}: the dataset must have both actions and cameras; it says {said}", ("cost",)
                )
            factor = float(action_dim * cameras)
        length = lengths.astype(np.float64)
        with np.errstate(over="ignore"):  # an infinite cost is refused where costs are balanced
            return factor * length * (self.linear + self.quadratic * length)


def parse_episode_cost(text: str) -> EpisodeCost:
    """Read a rule: one of `TEXTS`.

    Raises:
        InvalidField: It is none of them, or a factor is not a finite number from 0 on, or all are 0.
    """
    wanted = text.replace(" ", "")
    if wanted == "tokens":
        return EpisodeCost(text)
    if wanted == _FRAMES:
        return EpisodeCost(text, per_frame=True)
    if text.startswith(_COLUMN) and len(text) > len(_COLUMN):
        return EpisodeCost(text, column=text.removeprefix(_COLUMN))
    found = _POLYNOMIAL.fullmatch(wanted)
    if found is None or found[1] == found[3]:
        raise InvalidField(f"a cost is {TEXTS}; not {text!r}", ("cost",))
    factors = {found[1]: _factor(found[2])} | ({found[3]: _factor(found[4])} if found[3] else {})
    if not any(factors.values()):
        raise InvalidField(f"{text}: every episode would cost nothing", ("cost",))
    return EpisodeCost(text, factors.get("linear", 0.0), factors.get("quadratic", 0.0))


def _factor(text: str) -> float:
    try:
        factor = float(text)
    except ValueError:
        factor = -1.0
    if not 0 <= factor < np.inf:
        raise InvalidField(f"{text!r} is not a finite number from 0 on", ("cost",))
    return factor
