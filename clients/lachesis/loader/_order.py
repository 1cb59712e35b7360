"""Which sample comes when, and how far a loop is: all that must be saved to go on from there."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Self


@dataclass(frozen=True, slots=True)
class Share:
    """The part of an epoch that is ours: of its first ``usable`` places every ``step``-th, from ``start`` on."""

    start: int
    step: int
    usable: int

    @classmethod
    def of(cls, samples: int, rank: int, world_size: int, *, equal: bool) -> Self:
        """Give every rank a share: disjoint, together all samples; or, if equal, all but less than ``world_size``.

        Raises:
            ValueError: There is no such rank.
        """
        if not 0 <= rank < world_size:
            raise ValueError(f"there is no rank {rank} of {world_size}")
        return cls(rank, world_size, samples // world_size * world_size if equal else samples)

    def split(self, part: int, parts: int) -> "Share":
        """Divide it further."""
        if not 0 <= part < parts:
            raise ValueError(f"there is no part {part} of {parts}")
        return Share(self.start + self.step * part, self.step * parts, self.usable)

    def __len__(self) -> int:
        return len(range(self.start, self.usable, self.step))


class Order:
    """The order of samples, epoch by epoch, and which of the present one were handed out.

    Attributes:
        epoch: The present one, from 0 on.
    """

    def __init__(self, samples: int, seed: int | None, share: Share) -> None:
        """Begin with the first sample.

        Args:
            samples: How many there are, over all shares.
            seed: Of the shuffle, which is another in each epoch; None: always in the order of the source.
            share: What of each epoch is ours. All shares of an epoch are cut from the same shuffle.
        """
        self.epoch = 0
        self._samples = samples
        self._seed = seed
        self._share = share
        self._first = 0  # every place before it was handed out
        self._beyond: set[int] = set()  # and these after it

    def split(self, part: int, parts: int) -> "Order":
        """Return the order of a part of this share, at the beginning of the same epoch."""
        order = Order(self._samples, self._seed, self._share.split(part, parts))
        order.epoch = self.epoch
        return order

    def __len__(self) -> int:
        """Samples of an epoch."""
        return len(self._share)

    def samples(self, epoch: int) -> NDArray[np.int64]:
        """Return the indices of the samples of an epoch, by their places in it."""
        everything = np.arange(self._samples) if self._seed is None else _shuffled(self._samples, self._seed, epoch)
        return everything[self._share.start : self._share.usable : self._share.step]

    def places_left(self, epoch: int) -> NDArray[np.int64]:
        """Return the places of an epoch, the present one or a later, that were not handed out; ascending."""
        if epoch != self.epoch:
            return np.arange(len(self))
        left = np.arange(self._first, len(self))
        return left[~np.isin(left, sorted(self._beyond))] if self._beyond else left

    def hand_out(self, places: Iterable[int]) -> None:
        """Take down that samples of the present epoch are in the trainer's hands."""
        self._beyond.update(places)
        while self._first in self._beyond:
            self._beyond.remove(self._first)
            self._first += 1

    def go_to(self, epoch: int) -> None:
        """Go to the beginning of an epoch."""
        self.epoch = epoch
        self._first = 0
        self._beyond.clear()

    def state_dict(self) -> dict[str, Any]:
        """Return where it is, and what it is the order of; made of what JSON has."""
        return {
            "epoch": self.epoch,
            "handed_out": self._first,
            "handed_out_beyond": sorted(self._beyond),
            "order": self._identity(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go to where another order of the same samples was.

        Raises:
            ValueError: It is the state of another order: the message says what differs. Nothing has changed.
        """
        ours, theirs = self._identity(), state["order"]
        if differing := [
            f"{name} was {theirs.get(name)}, is {ours[name]}" for name in ours if ours[name] != theirs.get(name)
        ]:
            raise ValueError(f"this is the state of another order: {'; '.join(differing)}")
        self.epoch = state["epoch"]
        self._first = state["handed_out"]
        self._beyond = set(state["handed_out_beyond"])

    def _identity(self) -> dict[str, Any]:
        share = self._share
        return {
            "samples": self._samples,
            "seed": self._seed,
            "share_start": share.start,
            "share_step": share.step,
            "share_usable": share.usable,
        }


def _shuffled(samples: int, seed: int, epoch: int) -> NDArray[np.int64]:
    """Permute by the raw numbers of PCG64, which numpy never changes: `Generator.permutation` may, between versions."""
    numbers = np.random.PCG64(np.random.SeedSequence([seed, epoch])).random_raw(samples)
    return np.argsort(numbers, kind="stable")
