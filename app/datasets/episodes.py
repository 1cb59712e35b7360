"""Describe a dataset of episodes: lengths, ids, and the facts that costs are computed from."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lachesis.wire.errors import InvalidDataset
from lachesis.wire.shards import MAX_LENGTH

MAX_EPISODES = 20_000_000
"""Largest number of episodes. More of them, with costs and shards, do not fit into the memory of a small machine."""

ID_COLUMNS = ("episode", "episode_index", "id")
"""Columns to search for a table's ids, in this order."""

UNLIKE_IDS = "ids must be all whole numbers of 63 bits, or all texts, or all absent"

Ids = NDArray[np.int64] | list[str]
Progress = Callable[[int, int], None]
"""Called with the amount read and the total, in bytes or files as the layout counts."""


@dataclass(frozen=True, slots=True)
class WantedColumns:
    """Which columns to read.

    Attributes:
        length: Column of lengths, or in safetensors the tensor whose first dimension is the length. None for
            ``length``, or in safetensors for the first dimension that all tensors share.
        cost: Column of costs that a producer wrote, or in safetensors its key in ``__metadata__``. None for no costs.
        id: Column of ids, which must exist. None for the first of `ID_COLUMNS` that exists; without any, episodes are
            numbered.
        tasks: Whether to count tasks, if there is a column of tasks.
    """

    length: str | None = None
    cost: str | None = None
    id: str | None = None
    tasks: bool = False

    @property
    def length_column(self) -> str:
        """Return the column of lengths in a table."""
        return self.length or "length"

    def id_column(self, columns: Collection[str]) -> str | None:
        """Return the column of ids in a table that has these columns."""
        return self.id or next((name for name in ID_COLUMNS if name in columns), None)


@dataclass(frozen=True, slots=True)
class DatasetFacts:
    """What a dataset says about itself apart from its episodes; None for facts that it does not have.

    Attributes:
        layout: The name of its layout, such as ``LeRobot v2.1``.
        unit: The unit of lengths: ``frames`` or ``steps``.
        files: Files that were read.
        fps: Frames per second.
        action_dim: Numbers in one action.
        cameras: The keys of the cameras.
        robot: The kind of robot.
        tasks: Episodes by task, most first.
    """

    layout: str
    unit: str
    files: int
    fps: float | None = None
    action_dim: int | None = None
    cameras: tuple[str, ...] | None = None
    robot: str | None = None
    tasks: tuple[tuple[str, int], ...] | None = None


@dataclass(frozen=True, slots=True)
class Episodes:
    """A dataset's episodes, in its own order.

    Attributes:
        ids: Numbers or texts, without duplicates.
        lengths: ``[episodes]``, ``0 <= length <= MAX_LENGTH``.
        costs: ``[episodes]``, finite and ``>= 0``, if `WantedColumns.cost` asked for them; None if not.
        facts: Other facts about the dataset.
    """

    ids: Ids
    lengths: NDArray[np.int64]
    costs: NDArray[np.float64] | None
    facts: DatasetFacts


@dataclass(frozen=True, slots=True)
class Slice:
    """The episodes of one file, or of a part of one.

    Attributes:
        source: The name of the file in messages.
        lengths: The length of each episode, checked.
        ids: The id of each episode; None if the file has no ids. Then episodes are numbered in order.
        costs: The cost of each episode, checked; None unless asked for.
        tasks: Episodes by task.
        row_name, first_row: The name of an episode in messages, and the number of the first: ``line 1``, ``row 0``.
    """

    source: str
    lengths: NDArray[np.int64]
    ids: Ids | None = None
    costs: NDArray[np.float64] | None = None
    tasks: Counter[str] = field(default_factory=Counter)
    row_name: str = "row"
    first_row: int = 0

    def place(self, position: int) -> str:
        """Return the place where an episode is described, for messages."""
        return f"{self.source}, {self.row_name} {self.first_row + position}"


def joined(name: str, parts: Sequence[Slice], *, in_order_of_ids: bool = False) -> tuple[Ids, Slice]:
    """Join the parts of the dataset ``name`` in their order, and check them together.

    Returns:
        The ids, and everything else as one part.

    Raises:
        InvalidDataset: There is no episode, or too many; some parts have ids and others have none; or an id is
            duplicate.
    """
    total = sum(len(part.lengths) for part in parts)
    if not total:
        raise InvalidDataset(f"{name} holds no episode")
    check_count(total, name)
    ids = _joined_ids(parts)
    _refuse_duplicates(ids, parts)
    lengths = np.concatenate([part.lengths for part in parts])
    costs = [part.costs for part in parts if part.costs is not None]
    cost = np.concatenate(costs) if costs else None
    if in_order_of_ids and isinstance(ids, np.ndarray) and np.any(np.diff(ids) < 0):
        order = np.argsort(ids, kind="stable")
        ids, lengths, cost = ids[order], lengths[order], None if cost is None else cost[order]
    tasks: Counter[str] = Counter()
    for part in parts:
        tasks.update(part.tasks)
    return ids, Slice("", lengths, None, cost, tasks)


def check_count(episodes: int, source: str) -> None:
    """Refuse a source with too many episodes.

    Raises:
        InvalidDataset: There are more than `MAX_EPISODES`.
    """
    if episodes > MAX_EPISODES:
        raise InvalidDataset(f"{source}: more than {MAX_EPISODES} episodes; plan a part of them at a time")


def whole_numbers(values: Sequence[Any], place: Callable[[int], str], column: str) -> NDArray[np.int64]:
    """Convert JSON values to lengths.

    Args:
        values: One value for each episode.
        place: Returns the place of a value.
        column: The name of the values in messages.

    Raises:
        InvalidDataset: A value is not a whole number from 0 to `MAX_LENGTH`. The message names the first such value.
    """
    for position, value in enumerate(values):
        if type(value) is not int or not 0 <= value <= MAX_LENGTH:
            raise _no_length(place(position), column, value)
    return np.array(values, np.int64)


def check_lengths(lengths: NDArray[np.int64], place: Callable[[int], str], column: str) -> None:
    """Check lengths that are already numbers.

    Raises:
        InvalidDataset: One is negative or over `MAX_LENGTH`.
    """
    wrong = np.flatnonzero((lengths < 0) | (lengths > MAX_LENGTH))
    if wrong.size:
        at = int(wrong[0])
        raise _no_length(place(at), column, lengths[at].item())


def _no_length(place: str, column: str, value: Any) -> InvalidDataset:
    return InvalidDataset(f"{place}: {column} is {shown(value)}, not a whole number from 0 to {MAX_LENGTH}")


def check_costs(costs: NDArray[np.float64], place: Callable[[int], str], column: str) -> None:
    """Check a producer's costs.

    Raises:
        InvalidDataset: One is negative or not finite.
    """
    wrong = np.flatnonzero(~(np.isfinite(costs) & (costs >= 0)))
    if wrong.size:
        at = int(wrong[0])
        raise InvalidDataset(f"{place(at)}: {column} is {costs[at]}, not a finite number of 0 or more")


def shown(value: Any) -> str:
    """Return a value of a file in a few characters."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _joined_ids(parts: Sequence[Slice]) -> Ids:
    kinds = {type(part.ids): part for part in parts if len(part.lengths)}
    if len(kinds) > 1:
        one, other = list(kinds.values())[:2]
        raise InvalidDataset(f"{other.place(0)}: its id is of another kind than that of {one.place(0)}; {UNLIKE_IDS}")
    if type(None) in kinds:
        return np.arange(sum(len(part.lengths) for part in parts), dtype=np.int64)
    if list in kinds:
        return [name for part in parts for name in part.ids or ()]
    return np.concatenate([part.ids for part in parts if isinstance(part.ids, np.ndarray)])


def _refuse_duplicates(ids: Ids, parts: Sequence[Slice]) -> None:
    if isinstance(ids, np.ndarray):
        if np.all(np.diff(ids) > 0):
            return
        order = np.argsort(ids, kind="stable")
        again = np.flatnonzero(np.diff(ids[order]) == 0)
        if not again.size:
            return
        first, second = (int(order[again[0] + n]) for n in range(2))
    elif len(set(ids)) == len(ids):
        return
    else:
        seen: dict[str, int] = {}
        second = next(n for n, name in enumerate(ids) if seen.setdefault(name, n) != n)
        first = seen[ids[second]]
    place = _places(parts)
    raise InvalidDataset(f"{place(second)}: episode {shown(_plain(ids[first]))} is also in {place(first)}")


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _places(parts: Iterable[Slice]) -> Callable[[int], str]:
    found = [part for part in parts if len(part.lengths)]
    ends = list(accumulate(len(part.lengths) for part in found))

    def place(position: int) -> str:
        n = bisect_right(ends, position)
        part = found[n]
        within = position - (ends[n - 1] if n else 0)
        return part.place(within)

    return place
