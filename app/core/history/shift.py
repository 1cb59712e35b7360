"""Say in words how what was trained on differs from what was generated."""

from app.core.history.sketch import Sketch

_ALIKE = 0.01  # of the generated values' spread or mean: less is no difference


def shift(value: str, generated: Sketch, trained: Sketch) -> str | None:
    """Return a sentence about the means of groups that were trained on and of all generated ones.

    Lengths differ by a part of the generated length, and rewards by their own unit.

    Args:
        value: ``length`` or ``reward``.
        generated: The values of all accepted groups.
        trained: The values of groups in batches.

    Returns:
        The sentence; None if nothing is known of one of them.
    """
    if generated.mean is None or trained.mean is None:
        return None
    by = trained.mean - generated.mean
    if value == "length":
        part = by / generated.mean if generated.mean else 0.0
        if abs(part) < _ALIKE:
            return "Trained sequences are as long as generated ones, to 1 %."
        return f"Trained sequences are {100 * abs(part):.0f} % {'longer' if by > 0 else 'shorter'} than generated ones."
    if abs(by) <= _ALIKE * (generated.most - generated.least):
        return f"Groups trained on have the same mean {value} as generated ones, {trained.mean:.3g}."
    more = "higher" if by > 0 else "lower"
    said = f"The mean {value} of groups trained on, {trained.mean:.3g}, is {abs(by):.3g} {more}"
    return f"{said} than that of generated ones."
