"""Keep how the items of curricula are distributed over time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app.core.history.series import Facts

MOST_CURRICULA = 8
"""Curricula of a run that its history has, the first ones by name."""

Series = list[float | None]

_BEGIN, _UNSEEN = "curriculum", "unseen"


@dataclass(frozen=True, slots=True)
class ItemSeries:
    """How many items a curriculum had, for each span; None where it is not known.

    Attributes:
        items_by_reward: A series for each tenth of the range of rewards, the lowest first.
        unseen: Items that were not observed yet and have no prior.
    """

    items_by_reward: list[Series]
    unseen: Series


def add_items(facts: Facts, curriculum: str, by_reward: Sequence[int], unseen: int) -> None:
    """Note how many items a curriculum has now. Of several numbers in a span, the latest count."""
    facts.lasts |= {_name(str(tenth), curriculum): count for tenth, count in enumerate(by_reward)}
    facts.lasts[_name(_UNSEEN, curriculum)] = unseen


def curriculum_series(facts: Mapping[int, Facts], points: int, tenths: int) -> dict[str, ItemSeries]:
    """Return the series of the curricula that were there last, by name: at most `MOST_CURRICULA`.

    Args:
        facts: Facts about the run, by the number of the span.
        points: The number of spans.
        tenths: How many series by mean reward each curriculum has.
    """
    names: dict[str, None] = {}
    begin = _name(_UNSEEN, "")
    for place in sorted(facts, reverse=True):
        names |= dict.fromkeys(name.removeprefix(begin) for name in facts[place].lasts if name.startswith(begin))
        if len(names) >= MOST_CURRICULA:
            break

    def series(what: str, curriculum: str) -> Series:
        name, values = _name(what, curriculum), Series([None] * points)
        for place, one in facts.items():
            values[place] = one.lasts.get(name)
        return values

    return {
        name: ItemSeries([series(str(tenth), name) for tenth in range(tenths)], series(_UNSEEN, name))
        for name in sorted(list(names)[:MOST_CURRICULA])
    }


def _name(what: str, curriculum: str) -> str:
    return f"{_BEGIN}:{what}:{curriculum}"
