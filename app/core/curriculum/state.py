"""A curriculum as a document: a header, and an entry for each item. Restored, it continues the same samples."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from app.core.curriculum.estimates import Estimate
from app.core.curriculum.policy import CurriculumPolicy


@dataclass(frozen=True, slots=True)
class Header:
    """All of a curriculum but its items.

    Attributes:
        policy: Its settings, the generator's seed included.
        counter: How often the generator drew.
        samples: Samples so far.
        updates: Observations so far.
        arms: The bandit's values by key.
    """

    policy: CurriculumPolicy = field(default_factory=CurriculumPolicy)
    counter: int = 0
    samples: int = 0
    updates: int = 0
    arms: Mapping[str, float] = field(default_factory=dict)


def state_dict(header: Header) -> dict[str, Any]:
    """Return the header as JSON can hold it."""
    raise NotImplementedError


def load_state_dict(document: Mapping[str, Any]) -> Header:
    """Read what `state_dict` wrote.

    Raises:
        InvalidField: Something is missing, unknown, or out of range; `location` says where.
    """
    raise NotImplementedError


def estimate_dict(estimate: Estimate) -> dict[str, Any]:
    """Return an item's numbers as JSON can hold them."""
    raise NotImplementedError


def load_estimate_dict(document: Mapping[str, Any]) -> Estimate:
    """Read what `estimate_dict` wrote.

    Raises:
        InvalidField: Something is unknown or out of range; `location` says where.
    """
    raise NotImplementedError


def policy_dict(policy: CurriculumPolicy) -> dict[str, Any]:
    """Return settings by name."""
    raise NotImplementedError


def load_policy_dict(document: Mapping[str, Any]) -> CurriculumPolicy:
    """Read settings by name; what is left out has its default.

    Raises:
        InvalidField: Something is unknown, or out of range; `location` says where.
    """
    raise NotImplementedError
