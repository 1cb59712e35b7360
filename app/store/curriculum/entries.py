"""Encode and decode curricula for Redis: configurations as JSON, estimates of items packed."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from struct import Struct

import numpy as np

from app.core.curriculum.estimates import Estimate, EstimateUpdate, LeakyUpdate, unseen
from app.core.curriculum.settings import CurriculumPolicy, of_their_kinds

MAX_CURRICULA = 64
"""Of a run."""
MAX_ITEMS = 10_000_000
MAX_CATEGORIES = 1000
"""Of a curriculum."""
HISTORY = 50
"""Scores kept of an item."""

_NUMBERS = Struct("<6d")  # ema, count, passed, failed, signal, last: lua/curriculum/curriculum_estimates.lua
_STEPS = Struct("<18d")
_NO_CATEGORY = 0


@dataclass(frozen=True, slots=True)
class NewItem:
    """An item to be made or changed; what is None stays as it is, or is not there.

    Attributes:
        key: Its key.
        category: Its category; the empty string for none.
        prior: The mean reward to expect; NaN for none.
        metadata: JSON; the empty string for none.
    """

    key: str
    category: str | None = None
    prior: float | None = None
    metadata: str | None = None


@dataclass(frozen=True, slots=True)
class StoredItem:
    """An item as it is stored.

    Attributes:
        key: Its key.
        category: The number of its category, 0 for none.
        prior: The mean reward it was registered with, or None.
        metadata: JSON, or the empty string.
        estimate: What is known of it; when it was last handed out is not filled in.
        packed: What is known of it, packed: its history is unpacked where it is wanted.
        ranks: Its ranks, in the orders that were asked for; -1 where it does not stand.
    """

    key: str
    category: int
    prior: float | None
    metadata: str
    estimate: Estimate
    packed: bytes = b""
    ranks: tuple[int, ...] = ()

    @property
    def history(self) -> tuple[float, ...]:
        """Mean rewards of its last groups, oldest first."""
        return parse_history(self.packed)


def policy_text(policy: CurriculumPolicy) -> str:
    """Write down how a curriculum is configured; equal configurations give equal text."""
    return json.dumps(asdict(policy), sort_keys=True)


def parse_policy(text: str | bytes) -> CurriculumPolicy:
    """Invert `policy_text`."""
    return CurriculumPolicy(**of_their_kinds(json.loads(text)))


def packed_change(change: EstimateUpdate, arm: LeakyUpdate) -> bytes:
    """Pack the updates of an observation, for its item and for its arm."""
    return _STEPS.pack(*change.ema, *change.passed, *change.failed, *change.signal, *change.last, *arm)


def packed_estimate(estimate: Estimate, history: Sequence[float] = ()) -> bytes:
    """Pack the estimate of a seen item; nothing for an unseen one."""
    if not estimate.count:
        return b""
    numbers = (estimate.ema, estimate.count, estimate.passed, estimate.failed, estimate.signal, estimate.last)
    return _NUMBERS.pack(*numbers) + np.array(history[-HISTORY:], "<f4").tobytes()


def parse_estimate(packed: bytes, prior: float | None = None) -> Estimate:
    """Invert `packed_estimate`, without the history."""
    if not packed:
        return unseen(prior)
    ema, count, passed, failed, signal, last = _NUMBERS.unpack_from(packed)
    return Estimate(ema, int(count), passed, failed, signal, last, 0, prior)


def parse_history(packed: bytes) -> tuple[float, ...]:
    """Read the mean rewards that are kept of a seen item, oldest first; each with the digits that a float has."""
    return tuple(float(str(score)) for score in np.frombuffer(packed[_NUMBERS.size :], "<f4"))


def parse_item(key: bytes, entry: bytes, packed: bytes, ranks: Sequence[int] = ()) -> StoredItem:
    """Read an item's entry (`lua/curriculum/curriculum_items.lua`) and what is known of it."""
    category, prior_text, metadata = entry.decode().split(" ", 2)
    prior = None if prior_text == "-" else float(prior_text)
    estimate = parse_estimate(packed, prior)
    return StoredItem(key.decode(), int(category), prior, metadata, estimate, packed, tuple(ranks))


def parse_pairs(reply: Sequence[bytes] | Mapping[bytes, bytes]) -> dict[str, float]:
    """Read names and numbers that stand in turns."""
    pairs = reply.items() if isinstance(reply, Mapping) else zip(reply[::2], reply[1::2], strict=True)
    return {name.decode(): float(value) for name, value in pairs}
