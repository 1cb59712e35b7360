"""Cut the steps of a worker into fragments of equal length. No I/O.

episode a: ───────────────┐episode b: ────────────┐
fragments: ├──0──┤├──1──┤├──2──┤├──3──┤├──4──┤ …
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lachesis._torch import labelled
from lachesis._transport.bodies import checked
from lachesis.errors import InvalidField
from lachesis.loader.nested import Nested, flatten
from lachesis.wire import blob
from lachesis.wire.body import Body
from lachesis.wire.fragments import MAX_EPISODES, POLICY_VERSIONS, EpisodeId
from lachesis.wire.replay import Priority

EachStep = float | Sequence[float] | NDArray[Any]
"""One number per step, or the same for all."""


@dataclass(frozen=True, slots=True)
class Steps:
    """Consecutive steps of one episode.

    Attributes:
        tensors: Arrays [steps, …] by flat name.
        versions: The policy version that sampled each: i64 [steps].
        episode: The episode's id, if it has one.
        sums: `reward` and `cost` of each step, if given; a fragment has their sums: f64 [steps].
        priority: Their sampling priority, or None.
    """

    tensors: Mapping[str, NDArray[Any]]
    versions: NDArray[np.int64]
    episode: str | None
    sums: Mapping[str, NDArray[np.float64]]
    priority: float | None

    def __len__(self) -> int:
        return len(self.versions)

    def part(self, start: int, end: int) -> "Steps":
        """Return steps from ``start`` to before ``end``, as views."""
        tensors = {name: array[start:end] for name, array in self.tensors.items()}
        sums = {key: numbers[start:end] for key, numbers in self.sums.items()}
        return Steps(tensors, self.versions[start:end], self.episode, sums, self.priority)

    def copied(self) -> "Steps":
        """Return a copy: the caller may reuse its arrays."""
        tensors = {name: array.copy() for name, array in self.tensors.items()}
        return Steps(tensors, self.versions.copy(), self.episode, self.sums, self.priority)


class _Labels(Body):
    """What a worker says about all steps of a call, within the limits of the service."""

    episode: EpisodeId | None
    priority: Priority | None


class Cutter:
    """Collect steps until a fragment is complete."""

    def __init__(self, steps: int) -> None:
        """Start empty.

        Args:
            steps: Steps per fragment, ``>= 1``.
        """
        if steps < 1:
            raise ValueError(f"steps: should be 1 or more, not {steps}")
        self._wanted = steps
        self._open: list[Steps] = []

    def __len__(self) -> int:
        """Return how many steps wait for their fragment to be complete."""
        return sum(map(len, self._open))

    def add(self, steps: Steps) -> list[list[Steps]]:
        """Add steps. Return the parts of each fragment that is complete now.

        Raises:
            InvalidField: Their tensors differ from those of earlier steps of the fragment, or it has too many episodes.
        """
        if self._open:
            _check_alike(self._open[0].tensors, steps.tensors)
        if len({part.episode for part in (*self._open, steps)} - {None}) > MAX_EPISODES:
            message = f"a fragment has steps of more than {MAX_EPISODES} episodes: give fragments fewer steps"
            raise InvalidField(message, ("episode",))
        fragments, start = [], 0
        while len(steps) - start >= self._wanted - len(self):
            end = start + self._wanted - len(self)
            fragments.append([*self._open, steps.part(start, end)])
            self._open, start = [], end
        if start < len(steps):
            self._open.append(steps.part(start, len(steps)).copied())
        return fragments

    def rest(self) -> list[Steps]:
        """Remove and return the steps of the incomplete fragment."""
        rest, self._open = self._open, []
        return rest


def read_steps(
    steps: Nested,
    policy_version: int | Sequence[int] | NDArray[Any],
    episode: str | None,
    reward: EachStep | None,
    cost: EachStep | None,
    priority: float | None,
) -> Steps:
    """Check and flatten the steps of a worker: arrays [steps, …], nested.

    Raises:
        InvalidField: Arrays have no name, unequal lengths or no steps, or a number or the episode is wrong.
        TypeError, ValueError: See `lachesis.loader.nested.flatten`.
    """
    tensors = flatten(steps, labelled)
    if "" in tensors:
        raise InvalidField("has no name: give {'obs': array}", ("steps",))
    if POLICY_VERSIONS in tensors:
        raise InvalidField("is given as policy_version", (POLICY_VERSIONS,))
    for name, array in tensors.items():
        if not array.ndim:
            message = "is one number, not an array [steps, …]; lists nest: give numbers as np.asarray(…)"
            raise InvalidField(message, (name,))
    lengths = {name: array.shape[0] for name, array in tensors.items()}
    count = max(lengths.values())
    for name, length in lengths.items():
        if length != count or not count:
            raise InvalidField(f"has {length} steps; every array has the same number of them, 1 or more", (name,))
    versions = _each(policy_version, count, np.int64, ("policy_version",))
    if (versions < 0).any():
        raise InvalidField("is negative", ("policy_version", int(np.argmax(versions < 0))))
    given = {key: numbers for key, numbers in (("reward", reward), ("cost", cost)) if numbers is not None}
    sums = {key: _each(numbers, count, np.float64, (key,)) for key, numbers in given.items()}
    for key, numbers in sums.items():
        fit = np.isfinite(numbers) if key == "reward" else np.isfinite(numbers) & (numbers >= 0)
        if not fit.all():
            wanted = "a finite number" if key == "reward" else "a finite number >= 0"
            raise InvalidField(f"not {wanted}", (key, int(np.argmin(fit))))
    labels = checked(_Labels, episode=episode, priority=priority)
    return Steps(tensors, versions, labels.episode, sums, labels.priority)


def encode(parts: Sequence[Steps], worker: str, session: int, number: int) -> bytes:
    """Return the blob of a fragment."""
    tensors = {name: _joined([part.tensors[name] for part in parts]) for name in parts[0].tensors}
    # Of all fragments, even where all steps are of one version: only those with the same tensors can be stacked.
    tensors[POLICY_VERSIONS] = versions = _joined([part.versions for part in parts])
    keys: dict[str, Any] = {"number": number, "session": session, "policy_version": int(versions.min())}
    episodes = list(dict.fromkeys(part.episode for part in parts if part.episode is not None))
    if episodes:
        keys["episodes"] = episodes
    for key in ("reward", "cost"):
        sums = [float(part.sums[key].sum()) for part in parts if key in part.sums]
        if sums:
            keys[key] = sum(sums)
    priorities = [part.priority for part in parts if part.priority is not None]
    if priorities:
        keys["priority"] = max(priorities)
    return blob.write(tensors, {"worker": worker} | {name: json.dumps(value) for name, value in keys.items()})


def _each(given: Any, count: int, dtype: type[Any], place: tuple[str, ...]) -> NDArray[Any]:
    array = np.asarray(given)
    if array.dtype.kind not in ("iu" if dtype is np.int64 else "iuf") or array.shape not in ((), (count,)):
        kind = "a whole number" if dtype is np.int64 else "a number"
        raise InvalidField(f"should be {kind}, or {count} of them, one a step", place)
    return np.array(np.broadcast_to(array, (count,)), dtype)


def _joined(arrays: Sequence[NDArray[Any]]) -> NDArray[Any]:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def _check_alike(first: Mapping[str, NDArray[Any]], other: Mapping[str, NDArray[Any]]) -> None:
    for name in first.keys() ^ other.keys():
        raise InvalidField("is in some steps of a fragment and not in others", (name,))
    for name, array in first.items():
        there = other[name]
        if (array.dtype, array.shape[1:]) != (there.dtype, there.shape[1:]):
            raise InvalidField(
                f"is {there.dtype} {there.shape[1:]} a step, and was {array.dtype} {array.shape[1:]} before", (name,)
            )
