"""Prioritised level replay: by the rank of the score, mixed with staleness; and unseen items while there are any.

Of seen items P = (1 - rho) P_score + rho P_staleness, with P_score in proportion to rank ** (-1 / beta), rank 1 the
highest signal (mean |advantage| of the last group), and P_staleness in proportion to the samples since the item was
last handed out. An unseen item comes with probability nu, each alike. Temperature divides the logarithms of P_score and
of P_staleness; the shares rho and nu stay.

A sample of several items keeps the shares, too: each next item is unseen, by score or by staleness first, and then of
what is left of these. (P_score with beta = 0.1 is nearly all on one item; taken once, it would leave all to staleness.)

Stalenesses to 15 are exact, above that in cells of an eighth of a power of two, each as its middle: within 7 %.

Source: Jiang, Grefenstette & Rocktaeschel, *Prioritized level replay* (2021); the fixed schedule of its code.
"""

import math
from dataclasses import replace

from app.core.curriculum.indexes import ItemCounts, ItemIndex, MixtureComponent, Span, cells
from app.core.curriculum.mixture import kept, over_cells, tempered
from app.core.curriculum.settings import CurriculumPolicy

_STEEPEST = 64.0
"""Exponents beyond it would change no probability by 2**-63."""


def spans(_: CurriculumPolicy, samples: int) -> tuple[Span, ...]:
    """Return cells of staleness, the stalest first."""
    return cells(ItemIndex.LAST_SAMPLED, tuple(float(samples + 1 - oldest) for oldest, _ in ages(samples)[1:]))


def parts(policy: CurriculumPolicy, counts: ItemCounts, _: float) -> tuple[MixtureComponent, ...]:
    """Return the distribution."""
    seen = counts.seen
    fresh = {index: counts.length(index) for index in (ItemIndex.UNSEEN, ItemIndex.PRIOR_ONLY)}
    unseen = sum(fresh.values())
    new = (policy.unseen_share if seen else 1.0) if unseen else 0.0
    replayed, rho = 1 - new, policy.staleness_share
    steepness = min(_STEEPEST, 1 / (policy.score_temperature * policy.temperature))
    middles = [(oldest + youngest) / 2 for oldest, youngest in ages(counts.samples)]
    stale = tempered([math.log(each) for each in middles], policy.temperature, counts.spans)
    why = [f"last drawn {each:g} samples ago" for each in middles]
    return kept(
        [
            MixtureComponent(
                ItemIndex.SIGNAL, 0, seen, replayed * (1 - rho), "by rank of signal", exponent=steepness, kind="score"
            ),
            *(
                replace(part, kind="staleness")
                for part in over_cells(
                    ItemIndex.LAST_SAMPLED, counts.spans, [replayed * rho * each for each in stale], why
                )
            ),
            *(
                MixtureComponent(index, 0, size, new * size / unseen, "not yet seen", kind="unseen")
                for index, size in fresh.items()
                if size
            ),
        ]
    )


def ages(samples: int) -> list[tuple[int, int]]:
    """Return the cells of staleness, the stalest first: the largest and the least age of each, in samples.

    The oldest age, of what was never drawn, is ``samples + 1``; the least is 1.
    """
    found, youngest = list[tuple[int, int]](), 1
    while youngest <= samples + 1:
        width = 1 << max(0, youngest.bit_length() - 4)
        found.append((min(youngest + width - 1, samples + 1), youngest))
        youngest += width
    return found[::-1]
