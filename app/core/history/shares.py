"""Compare the shares of environments in what was generated and in what was trained on."""

from collections import Counter
from collections.abc import Container, Iterable
from dataclasses import dataclass

from app.core.history.series import OTHERS, HistorySpan, busiest
from lachesis.wire.history import HistoryCount

_MOST_SHOWN = 48  # characters of a name in a sentence
_ALIKE = 0.01  # of all: less is no difference


@dataclass(frozen=True, slots=True)
class ShareComparison:
    """The shares of an environment in what was generated and in what was trained on.

    Attributes:
        name: Its name, or `OTHERS`.
        generated: What of it was generated.
        trained: What of it was trained on.
        generated_share: Its share in what was generated, from 0 to 1; None if nothing was generated.
        trained_share: Its share in what was trained on; None if nothing was trained on.
        difference: The second share minus the first; None if one of them is not known.
        shift: Both as a sentence; None if one of them is not known.
    """

    name: str
    generated: int
    trained: int
    generated_share: float | None
    trained_share: float | None
    difference: float | None
    shift: str | None


@dataclass(frozen=True, slots=True)
class Shares:
    """What was generated and trained on, by environment.

    Attributes:
        generated: What was generated, of all environments.
        trained: What was trained on, of all environments.
        shift: The largest difference of shares as a sentence; None if nothing was generated or trained on.
        environments: The environments, those with the largest difference first. Ties go by name.
    """

    generated: int
    trained: int
    shift: str | None
    environments: list[ShareComparison]


def shares(spans: Iterable[HistorySpan], counted: HistoryCount) -> Shares:
    """Return the shares of the busiest environments over all spans, and of all others together.

    Args:
        spans: What happened.
        counted: What shares are counted in.
    """
    spans = list(spans)
    own = set(busiest(spans))
    came, went = (_by_name(spans, own, f"{counted}_{way}") for way in ("in", "out"))
    generated, trained = came.total(), went.total()
    names = [name for name in came | went if came[name] or went[name]]
    names.sort(key=lambda name: (-abs(went[name] * generated - came[name] * trained), name))
    found = [_share(name, (came[name], went[name]), generated, trained) for name in names]
    return Shares(generated, trained, _largest(found), found)


def _by_name(spans: Iterable[HistorySpan], own: Container[str], count: str) -> Counter[str]:
    totals: dict[str, float] = {}
    for span in spans:
        for name, facts in span.environments.items():
            if (more := facts.counts.get(count)) is not None:
                totals[name] = totals.get(name, 0) + more
    shown = Counter[str]()
    for name, total in totals.items():
        shown[name if name in own else OTHERS] += int(total)
    return shown


def _share(name: str, counts: tuple[int, int], generated: int, trained: int) -> ShareComparison:
    came = counts[0] / generated if generated else None
    went = counts[1] / trained if trained else None
    if came is None or went is None:
        return ShareComparison(name, *counts, came, went, None, None)
    difference = (counts[1] * generated - counts[0] * trained) / (generated * trained)  # ties are equal
    subject = "All other groups together are" if name == OTHERS else f"{_quoted(name)} is"
    before, after = _percent(came), _percent(went)
    said = f"{before} of what was generated and {after} of what was trained on"
    if before == after:
        said = f"{before} of what was generated and of what was trained on"
    return ShareComparison(name, *counts, came, went, difference, f"{subject} {said}.")


def _largest(found: list[ShareComparison]) -> str | None:
    if not found or found[0].difference is None:
        return None
    if abs(found[0].difference) < _ALIKE:
        return "Every environment has the same share of what was generated and of what was trained on, to 1 %."
    return found[0].shift


def _quoted(name: str) -> str:
    """Return a name in quotes, so that the sentence does not go on in it. Those in the name become single ones."""
    shown = name if len(name) <= _MOST_SHOWN else f"{name[: _MOST_SHOWN - 1]}…"
    return '"' + shown.replace('"', "'") + '"'


def _percent(share: float) -> str:
    if 0 < share < 1e-4:
        return "less than 0.01 %"
    return f"{100 * share:.0f} %" if share >= 0.1 else f"{100 * share:.2g} %"
