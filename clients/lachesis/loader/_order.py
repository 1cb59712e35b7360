"""The order of samples and the position of a loop: the state that a loader saves and restores."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from operator import index
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Self


@dataclass(frozen=True, slots=True)
class Share:
    """The part of an epoch that one loader loads: each ``step``-th of its first ``usable`` places, from ``start``."""

    start: int
    step: int
    usable: int

    @classmethod
    def of(cls, samples: int, rank: int, world_size: int, *, equal: bool) -> Self:
        """Return the share of a rank. Shares are disjoint.

        Together they have all samples. With ``equal`` they have the same size, and fewer than ``world_size`` samples
        are left out.

        Raises:
            ValueError: ``rank`` is not between 0 and ``world_size - 1``.
        """
        if not 0 <= rank < world_size:
            raise ValueError(f"there is no rank {rank} of {world_size}")
        return cls(rank, world_size, samples // world_size * world_size if equal else samples)

    def split(self, part: int, parts: int) -> "Share":
        """Return one of ``parts`` parts of this share."""
        if not 0 <= part < parts:
            raise ValueError(f"there is no part {part} of {parts}")
        return Share(self.start + self.step * part, self.step * parts, self.usable)

    def __len__(self) -> int:
        return len(range(self.start, self.usable, self.step))


class Order:
    """The order of samples, epoch by epoch, and which samples of the current epoch were handed out.

    Attributes:
        epoch: The current epoch, from 0.
    """

    def __init__(self, samples: int, seed: int | None, share: Share) -> None:
        """Begin with the first sample.

        Args:
            samples: Number of samples, over all shares.
            seed: Seed of the shuffle, which differs in each epoch. None means the order of the source.
            share: The part of each epoch to load. All shares of an epoch come from the same shuffle.
        """
        self.epoch = 0
        self._samples = samples
        self._seed = seed
        self._share = share
        self._first = 0  # every place before it was handed out
        self._beyond: set[int] = set()  # and these after it

    def split(self, part: int, parts: int) -> "Order":
        """Return the order of a part of this share, at the start of the same epoch."""
        order = Order(self._samples, self._seed, self._share.split(part, parts))
        order.epoch = self.epoch
        return order

    def __len__(self) -> int:
        """Return the number of samples of an epoch."""
        return len(self._share)

    @property
    def is_at_start(self) -> bool:
        """Whether no sample of the current epoch was handed out."""
        return not self._first and not self._beyond

    def samples(self, epoch: int) -> NDArray[np.int64]:
        """Return the indices of the samples of an epoch, by their places in it."""
        everything = np.arange(self._samples) if self._seed is None else _shuffled(self._samples, self._seed, epoch)
        return everything[self._share.start : self._share.usable : self._share.step]

    def places_left(self, epoch: int) -> NDArray[np.int64]:
        """Return the places of the current or a later epoch that were not handed out, ascending."""
        if epoch != self.epoch:
            return np.arange(len(self))
        left = np.arange(self._first, len(self))
        return left[~np.isin(left, sorted(self._beyond))] if self._beyond else left

    def hand_out(self, places: Iterable[int]) -> None:
        """Mark samples of the current epoch as handed out."""
        self._beyond.update(places)
        while self._first in self._beyond:
            self._beyond.remove(self._first)
            self._first += 1

    def go_to(self, epoch: int) -> None:
        """Go to the start of an epoch."""
        self.epoch = epoch
        self._first = 0
        self._beyond.clear()

    def state_dict(self) -> dict[str, Any]:
        """Return the position, and what identifies the order, as values that JSON has."""
        return {
            "epoch": self.epoch,
            "handed_out": self._first,
            "handed_out_beyond": sorted(self._beyond),
            "order": self._identity(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go to the position of another order of the same samples. ``state`` has the names that `state_dict` returns.

        Raises:
            ValueError: ``state`` is damaged, or belongs to another order. The message says what is wrong or differs.
                Nothing has changed.
        """
        ours, theirs = self._identity(), state["order"]
        if not isinstance(theirs, Mapping):
            raise no_state(f"order is {theirs!r:.80}")
        if differing := [
            f"{name} was {theirs.get(name)}, is {ours[name]}" for name in ours if ours[name] != theirs.get(name)
        ]:
            raise ValueError(f"this is the state of another order: {'; '.join(differing)}")
        epoch = _number("epoch", state["epoch"], 0, math.inf)
        first = _number("handed_out", state["handed_out"], 0, len(self))
        beyond = state["handed_out_beyond"]
        if not isinstance(beyond, list):
            raise no_state(f"handed_out_beyond is {beyond!r:.80}, not a list")
        self._beyond = {_number("handed_out_beyond", place, first + 1, len(self) - 1) for place in beyond}
        self.epoch, self._first = epoch, first

    def _identity(self) -> dict[str, Any]:
        share = self._share
        return {
            "samples": self._samples,
            "seed": self._seed,
            "share_start": share.start,
            "share_step": share.step,
            "share_usable": share.usable,
        }


def no_state(why: str) -> ValueError:
    """Return the error for something that is no state of a loader."""
    return ValueError(f"this is not a state of a loader: {why}. Pass what state_dict() returned, unchanged")


def _number(name: str, value: object, least: int, most: float) -> int:
    """Return a whole number of a state. It may be one of numpy."""
    try:
        number = index(value)  # type: ignore[arg-type]
    except TypeError:
        number = least - 1
    if not least <= number <= most:
        raise no_state(f"{name} has {value!r:.80}, not a whole number from {least} to {most}")
    return number


def _shuffled(samples: int, seed: int, epoch: int) -> NDArray[np.int64]:
    """Return a permutation by the raw numbers of PCG64, which are the same in every version of numpy.

    `Generator.permutation` may change between versions.
    """
    numbers = np.random.PCG64(np.random.SeedSequence([seed, epoch])).random_raw(samples)
    return np.argsort(numbers, kind="stable")
