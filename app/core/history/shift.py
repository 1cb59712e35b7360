"""Describe in a sentence how groups that were trained on differ from all generated ones."""

from collections.abc import Sequence

from app.core.history.sketch import Sketch, merged

_ALIKE = 0.01  # of the generated values' spread or mean: less is no difference
_UNITS = ((86400, "d"), (3600, "h"), (60, "min"))


def shift(value: str, generated: Sketch, trained: Sketch) -> str | None:
    """Return a sentence about the means of groups that were trained on and of all generated ones.

    Lengths differ by a part of the generated length, and rewards by their own unit. Of waiting times, the sentence says
    how long trained groups had waited.

    Args:
        value: ``length``, ``reward`` or ``waiting``.
        generated: The values of all accepted groups; not needed for ``waiting``.
        trained: The values of groups in batches.

    Returns:
        The sentence; None if nothing is known of one of them.
    """
    if value == "waiting":
        return _waited(trained)
    if generated.mean is None or trained.mean is None:
        return None
    by = _difference(value, generated, trained)
    if value == "length":
        if by is None:
            return "Trained sequences are as long as generated ones, to 1 %."
        return f"Trained sequences are {by} than generated ones."
    if by is None:
        return f"Groups trained on have the same mean {value} as generated ones, {trained.mean:.3g}."
    return f"The mean {value} of groups trained on, {trained.mean:.3g}, is {by} than that of generated ones."


def development(value: str, generated: Sequence[Sketch], trained: Sequence[Sketch]) -> str | None:
    """Return a sentence about how the difference of the means developed.

    The first half of the time in which groups were trained on is compared with the second half.

    Args:
        value: ``length`` or ``reward``.
        generated: The values of accepted groups in each span.
        trained: The values of groups in batches in each span; as many.

    Returns:
        The sentence; None if one of the halves has no groups that were generated, or none that were trained on.
    """
    known = [place for place, sketch in enumerate(trained) if sketch.count]
    if not known:
        return None
    first, last = known[0], known[-1] + 1
    middle = (first + last) // 2
    said = []
    for half in (slice(first, middle), slice(middle, last)):
        came, went = merged(generated[half]), merged(trained[half])
        if not came.count or not went.count:
            return None
        said.append(_difference(value, came, went) or ("as long" if value == "length" else "the same"))
    subject = "trained sequences were" if value == "length" else f"the mean {value} of trained groups was"
    return f"Compared with generated ones, {subject} {said[0]} in the first half and {said[1]} in the second half."


def _difference(value: str, generated: Sketch, trained: Sketch) -> str | None:
    """Return how the means differ, of sketches with values; None if they are alike."""
    came, went = generated.mean or 0.0, trained.mean or 0.0
    by = went - came
    if value == "length":
        part = by / came if came else 0.0
        return None if abs(part) < _ALIKE else f"{100 * abs(part):.0f} % {'longer' if by > 0 else 'shorter'}"
    if abs(by) <= _ALIKE * (generated.most - generated.least):
        return None
    return f"{abs(by):.3g} {'higher' if by > 0 else 'lower'}"


def _waited(trained: Sketch) -> str | None:
    half, most = trained.quantiles([0.5, 0.9])
    if half is None or most is None:
        return None
    return (
        f"Half of the groups trained on had waited at least {_duration(half)}, and a tenth at least {_duration(most)}."
    )


def _duration(seconds: float) -> str:
    size, unit = next((one for one in _UNITS if seconds >= one[0]), (1, "s"))
    value = seconds / size
    return f"{value:.0f} {unit}" if value >= 10 else f"{value:.2g} {unit}"
