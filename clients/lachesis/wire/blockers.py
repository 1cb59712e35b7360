"""The reasons why there is no batch. docs/how-to/no-batch.md has a row for each."""

import sys

if sys.version_info >= (3, 11):
    from enum import StrEnum
else:
    from enum import Enum

    class StrEnum(str, Enum):
        """Let a member be formatted as its value, as `enum.StrEnum` of Python 3.11 does."""

        __str__ = str.__str__


class Blocker(StrEnum):
    """The reason why there is no batch now. The first that applies in this order counts.

    `OLD_GROUPS` and `CANNOT_BE_DIVIDED` are exceptions. They follow from a plan: it has groups that are too old, or
    ranks cannot divide it.
    """

    NOT_REGISTERED = "not_registered"
    ARCHIVED = "archived"
    SERVING_PAUSED = "serving_paused"
    TOO_FEW_SEQUENCES = "too_few_sequences"
    MINIMUM_SHORT = "minimum_short"
    MINIMUMS_CONFLICT = "minimums_conflict"
    NO_EXACT_FIT = "no_exact_fit"
    OLD_GROUPS = "old_groups"
    CANNOT_BE_DIVIDED = "cannot_be_divided"


REASONS = ", ".join(f"`{blocker}`" for blocker in Blocker)
"""The list for descriptions of fields."""
