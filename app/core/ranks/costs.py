"""Compute what it costs to train on a sequence or an episode, so that ranks can have equal loads.

Costs are only compared with each other. So their unit does not matter, but all jobs that are balanced together must
have the same unit:

    tokens                        one per token of the sequence (the default)
    24576*L + L^2                 L in tokens: a part linear in the length (matrix products) and a quadratic one
                                  (attention); in operations if the factors are, per token and per token squared
    declared                      what the producer says, in units of its choice
    frames*action_dim*cameras     of an episode: numbers per frame times frames, for each camera
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import isfinite
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from app.core.numeric.short_sums import totals
from lachesis.wire.errors import InvalidField

Costs = NDArray[np.float64]

_NUMBER = r"[0-9]+(?:\.[0-9]*)?(?:e[+-]?[0-9]+)?|\.[0-9]+(?:e[+-]?[0-9]+)?"
_TERM = re.compile(rf"(?:(?P<factor>{_NUMBER})\*)?L(?P<squared>\^2|\*\*2)?", re.IGNORECASE)
_EXPECTED = "expected `tokens`, `declared`, or a sum like `24576*L + L^2`"


class Measure(StrEnum):
    """The quantity that a cost is computed from."""

    TOKENS = "tokens"
    LENGTH = "length"
    DECLARED = "declared"
    EPISODE = "frames*action_dim*cameras"


class Weight(NamedTuple):
    """The numbers that determine the cost of a group, known without its columns.

    Attributes:
        tokens: Tokens of its sequences.
        squares: Sum of the squares of their tokens.
        declared: The cost that its producer declared, finite and ``>= 0``, or None.
    """

    tokens: int
    squares: int
    declared: float | None = None


def weigh(lengths: NDArray[np.integer], declared: float | None = None) -> Weight:
    """Return the weight of a group. ``lengths`` are the tokens of each sequence, at most 2^28 in all."""
    return Weight(*totals(lengths), declared)


@dataclass(frozen=True, slots=True)
class CostModel:
    """The rule that gives each job its cost. `str` writes it as `parse` reads it.

    Attributes:
        measure: The quantity that the cost is computed from.
        linear: Cost per token, finite and ``>= 0``; for `Measure.LENGTH` only, 0 otherwise.
        quadratic: Cost per token squared, likewise.
    """

    measure: Measure = Measure.TOKENS
    linear: float = 0.0
    quadratic: float = 0.0

    def __post_init__(self) -> None:
        factors = self.linear, self.quadratic
        if not all(isfinite(factor) and factor >= 0 for factor in factors):
            raise InvalidField(f"factors of a cost must be finite and >= 0, not {self.linear} and {self.quadratic}")
        if any(factors) != (self.measure is Measure.LENGTH):
            raise InvalidField(f"a cost of {self.measure} cannot have the factors {self.linear} and {self.quadratic}")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read what `str` writes.

        Raises:
            InvalidField: The text has none of the forms in this module's docstring.
        """
        plain = re.sub(r"\s+", "", text)
        for measure in (Measure.TOKENS, Measure.DECLARED, Measure.EPISODE):
            if plain == measure:
                return cls(measure)
        factors = {False: 0.0, True: 0.0}
        for term in re.split(r"(?<!e)\+", plain, flags=re.IGNORECASE):
            found = _TERM.fullmatch(term)
            if found is None:
                raise InvalidField(f"{text[:80]!r} is not a cost: {_EXPECTED}")
            factors[found["squared"] is not None] += float(found["factor"] or 1)
        return cls(Measure.LENGTH, factors[False], factors[True])

    def __str__(self) -> str:
        if self.measure is not Measure.LENGTH:
            return self.measure.value
        terms = [(self.linear, "L"), (self.quadratic, "L^2")]
        return " + ".join(power if factor == 1 else f"{_written(factor)}*{power}" for factor, power in terms if factor)

    def costs(
        self,
        lengths: ArrayLike,
        *,
        declared: ArrayLike | None = None,
        action_dims: ArrayLike | None = None,
        cameras: ArrayLike | None = None,
    ) -> Costs:
        """Return what each job costs, float64 of shape [jobs], finite and ``>= 0``.

        Args:
            lengths: Tokens of each sequence, or frames of each episode; integers ``>= 0`` of shape [jobs].
            declared: The producer's costs of shape [jobs], finite and ``>= 0``; needed for `Measure.DECLARED`.
            action_dims: Numbers in one action, of each episode or of all; needed for `Measure.EPISODE`.
            cameras: Cameras, of each episode or of all; needed for `Measure.EPISODE`. At least 1: an episode of
                states without pictures counts as one camera.

        Raises:
            InvalidField: A needed value is missing or invalid, or a cost is too large for a float64. The error names
                the first such job.
        """
        counted = _integers(lengths, "length", least=0)
        if counted.ndim != 1:
            raise InvalidField(f"lengths must have the shape [jobs], not {list(counted.shape)}")
        tokens = counted.astype(np.float64)
        with np.errstate(over="ignore"):
            match self.measure:
                case Measure.TOKENS:
                    costs = tokens
                case Measure.LENGTH:
                    costs = (self.linear + self.quadratic * tokens) * tokens
                case Measure.DECLARED:
                    costs = np.asarray(_needed(self.measure, {"declared": declared})[0], np.float64)
                case Measure.EPISODE:
                    values = _needed(self.measure, {"action_dims": action_dims, "cameras": cameras})
                    names = "action dimension", "number of cameras"
                    factors = [_integers(value, name, least=1) for value, name in zip(values, names, strict=True)]
                    if any(factor.shape not in {(), counted.shape} for factor in factors):
                        raise InvalidField("action_dims and cameras must be one for all episodes, or one for each")
                    costs = tokens * factors[0] * factors[1]
        if costs.shape != counted.shape:
            raise InvalidField(f"there are {len(counted)} lengths, but costs of shape {list(costs.shape)}")
        _refuse_first(~(np.isfinite(costs) & (costs >= 0)), costs, "cost", "it must be finite and >= 0")
        return costs

    def of_groups(self, weights: Sequence[Weight]) -> Costs:
        """Return what each group costs, float64 of shape [groups].

        For `Measure.DECLARED`, a group without a declared cost has the mean cost of the others.

        Raises:
            InvalidField: No group has a declared cost, or a cost is too large for a float64.
        """
        if self.measure is Measure.DECLARED:
            known = [weight.declared for weight in weights if weight.declared is not None]
            if weights and not known:
                raise InvalidField("no group declares a cost")
            usual = sum(known) / max(1, len(known))
            costs = np.array([usual if weight.declared is None else weight.declared for weight in weights])
        else:
            tokens = np.array([weight.tokens for weight in weights], np.float64)
            squares = np.array([weight.squares for weight in weights], np.float64)
            with np.errstate(over="ignore"):
                linear = 1.0 if self.measure is Measure.TOKENS else self.linear
                costs = linear * tokens + self.quadratic * squares
        _refuse_first(~np.isfinite(costs), costs, "cost", "it must be finite")
        return costs


def _written(factor: float) -> str:
    return repr(float(factor)).removesuffix(".0")


def _needed(measure: Measure, given: Mapping[str, ArrayLike | None]) -> list[ArrayLike]:
    missing = [name for name, value in given.items() if value is None]
    if missing:
        raise InvalidField(f"the cost {measure} needs {' and '.join(missing)}")
    return [value for value in given.values() if value is not None]


def _integers(values: ArrayLike, name: str, least: int) -> NDArray[np.integer]:
    array = np.asarray(values)
    if not array.size and array.dtype == np.float64:  # an empty list
        array = array.astype(np.int64)
    if not np.issubdtype(array.dtype, np.integer):
        raise InvalidField(f"each {name} must be an integer that 64 bits can hold, not of type {array.dtype}")
    _refuse_first(np.atleast_1d(array < least), np.atleast_1d(array), name, f"it must be >= {least}")
    return array


def _refuse_first(wrong: NDArray[np.bool_], values: NDArray[np.integer | np.floating], name: str, wanted: str) -> None:
    places = np.flatnonzero(wrong)
    if len(places):
        raise InvalidField(f"the {name} of job {places[0]} is {values[places[0]]}: {wanted}", (int(places[0]),))
