"""A bandit over bins or categories."""

from app.core.curriculum.estimates import Change, Step
from app.core.curriculum.policy import CurriculumPolicy


def arm_of_bin(bin_: int) -> str:
    """Return the key of a bin's arm."""
    return f"bin:{bin_}"


def arm_of_category(category: str) -> str:
    """Return the key of a category's arm; the empty string is that of items without one."""
    return f"category:{category}"


def arm_step(policy: CurriculumPolicy, change: Change) -> Step:
    """Say what an observation makes of its arm's value, which begins at 0: ``keep * value + gain``.

    The arm is that of the item's bin *before* the observation, or of its category.
    """
    keep, gain = 1 - policy.arm_alpha, policy.arm_alpha * change.signal.gain
    return Step(keep, gain, gain)
