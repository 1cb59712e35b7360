"""Encode and decode curricula for Redis: configurations as JSON, estimates of items packed."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from struct import Struct

import numpy as np
from numpy.typing import NDArray

from app.core.curriculum.estimates import Estimate, EstimateUpdate, LeakyUpdate, unseen
from lachesis.wire.curricula import CurriculumSettings

MAX_CURRICULA = 64
"""The most curricula of a run."""
MAX_ITEMS = 10_000_000
"""The most items of a curriculum."""
MAX_REQUESTS = 250_000
"""The most requests with observations that a curriculum remembers: 2000 a second for two minutes, in 26 MB."""
HISTORY = 50
"""The number of last scores that are kept of an item."""

_NUMBERS = Struct("<6d")  # ema, count, passed, failed, signal, last: lua/curriculum/curriculum_estimates.lua
_UNOBSERVED = bytes(_NUMBERS.size)
_STEPS = Struct("<18d")


@dataclass(frozen=True, slots=True)
class ItemWrite:
    """An item to create or to change. None leaves a value as it is, or absent in a new item.

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
        estimate: Its estimate, without `drawn`.
        packed: Its estimate and its history, packed. `history` unpacks the latter.
        ranks: Its ranks in the indexes that were asked for; -1 in an index that does not contain it.
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


@lru_cache(maxsize=256)
def parse_curriculum_settings(text: str | bytes) -> CurriculumSettings:
    """Decode what `settings_text` encoded. Equal texts are validated once: every request reads the settings."""
    return CurriculumSettings.model_validate_json(text)


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
    """Decode what `packed_estimate` encoded, without the history."""
    if not packed:
        return unseen(prior)
    ema, count, passed, failed, signal, last = _NUMBERS.unpack_from(packed)
    return Estimate(ema, int(count), passed, failed, signal, last, 0, prior)


def pass_counts(packed: Sequence[bytes | None]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Decode how often items passed and failed, of many estimates at once; 0 of an item without an estimate."""
    numbers = b"".join(_UNOBSERVED if one is None else one[: _NUMBERS.size] for one in packed)
    _, _, passed, failed, _, _ = np.frombuffer(numbers, "<f8").reshape(-1, 6).T
    return passed, failed


def parse_history(packed: bytes) -> tuple[float, ...]:
    """Decode the kept mean rewards of a seen item, oldest first, each with the digits of a 32-bit float."""
    return tuple(float(str(score)) for score in np.frombuffer(packed[_NUMBERS.size :], "<f4"))


def parse_prior(entry: bytes) -> float:
    """Return the prior in an item's entry; NaN if it has none."""
    prior = _prior(entry.split(b" ", 2)[1])
    return math.nan if prior is None else prior


def _prior(text: bytes) -> float | None:
    return None if text == b"-" else float(text)


def parse_item(key: bytes, entry: bytes, packed: bytes, ranks: Sequence[int] = ()) -> StoredItem:
    """Parse an item's entry (`lua/curriculum/curriculum_items.lua`) and its packed estimate."""
    category, prior_text, metadata = entry.split(b" ", 2)
    prior = _prior(prior_text)
    estimate = parse_estimate(packed, prior)
    return StoredItem(key.decode(), int(category), prior, metadata.decode(), estimate, packed, tuple(ranks))


def parse_pairs(reply: Sequence[bytes] | Mapping[bytes, bytes]) -> dict[str, float]:
    """Parse a list in which names and numbers alternate."""
    pairs = reply.items() if isinstance(reply, Mapping) else zip(reply[::2], reply[1::2], strict=True)
    return {name.decode(): float(value) for name, value in pairs}
