"""A group of a batch, and its sequences: metadata, and views of the bytes of the reply."""

import json
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lachesis._public import Shown
from lachesis.groups.packed import PackedColumns
from lachesis.wire.batch_file import BatchFile
from lachesis.wire.batches import BatchGroup, ReplayedGroup
from lachesis.wire.columns import (
    DETAILS,
    LENGTHS,
    MEASURES,
    NATIVE_COLUMNS,
    Ragged,
    are_lengths,
    lengths_name,
    nested,
)

_DEPTHS = {column.name: column.depth for column in NATIVE_COLUMNS}
_DEEPEST = 3
_OF_LENGTHS = tuple(lengths_name("", level) for level in range(len(LENGTHS)))


class SequenceView(Shown):
    """A sequence of a group. Its columns are read-only views of the reply; compact columns are new arrays.

    Attributes:
        group: The group of the sequence, which has item, metadata and staleness.
        index: Its position in the group, from 0.
    """

    def __init__(self, group: "GroupView", index: int) -> None:
        self.group = group
        self.index = index

    def __len__(self) -> int:
        """Return the number of its tokens."""
        return int(self.group.lengths[self.index])

    @property
    def tokens(self) -> NDArray[Any]:
        """Its token ids: [tokens]."""
        return self._row("tokens")

    @property
    def masks(self) -> NDArray[Any]:
        """Its labels, -100 where the loss is masked: [tokens]."""
        return self._row("masks")

    @property
    def score(self) -> float:
        """Its score."""
        return float(self.group.scores[self.index])

    @property
    def advantages(self) -> NDArray[Any] | None:
        """Its advantages: one per token, or a single one; None if the group has none."""
        return self._optional("advantages")

    @property
    def ref_logprobs(self) -> NDArray[Any] | None:
        """Log probabilities of its tokens under the reference model; None if the group has none."""
        return self._optional("ref_logprobs")

    @property
    def inference_logprobs(self) -> NDArray[Any] | None:
        """Log probabilities of its tokens under the policy that sampled them; None if the group has none."""
        return self._optional("inference_logprobs")

    @property
    def policy_versions(self) -> NDArray[Any] | None:
        """The policy version that sampled each token; None if the group has none."""
        return self._optional("policy_versions")

    @property
    def messages(self) -> list[dict[str, Any]] | None:
        """Its conversation; None if the group has none."""
        conversation: list[dict[str, Any]] | None = self._detail("messages")
        return conversation

    @property
    def overrides(self) -> dict[str, Any] | None:
        """Its overrides; None if the group has none."""
        overrides: dict[str, Any] | None = self._detail("overrides")
        return overrides

    @property
    def images(self) -> Any:
        """Its images; None if the group has none for each sequence."""
        return self._detail("images")

    @property
    def names(self) -> list[str]:
        """The columns that can be split by sequence."""
        return [name for name in self.group.names if self.group.bounds_of(name) is not None]

    def column(self, name: str) -> Any:
        """Return its part of a column, as a read-only view. A ``distill_…`` column gives one array per token.

        Raises:
            KeyError: The group has no such column.
            ValueError: The column belongs to the group as a whole.
        """
        return self.group.rows_of(name, self.index)

    def _row(self, name: str) -> NDArray[Any]:
        row: NDArray[Any] = self.column(name)
        return row

    def _optional(self, name: str) -> NDArray[Any] | None:
        return self._row(name) if name in self.group else None

    def _detail(self, name: str) -> Any:
        rows = self.group.details.get(name)
        return rows[self.index] if isinstance(rows, list) and len(rows) == len(self.group.lengths) else None

    def _facts(self) -> dict[str, object]:
        return {"group": self.group.id, "index": self.index, "tokens": len(self), "score": self.score}


class GroupView(PackedColumns):
    """A group of a batch, with the same columns as a batch. They are read-only views; compact columns are new arrays.

    Attributes:
        info: The service's description of the group: id, environment, size, policy version, staleness, age.
    """

    def __init__(self, info: BatchGroup, file: BatchFile, position: int) -> None:
        self.info = info
        self._file = file
        self._position = position
        self._bounds: dict[str, NDArray[np.int64] | None] = {}

    @property
    def labels(self) -> Mapping[str, str]:
        """The metadata of its blob: strings, unparsed."""
        return self._file.labels[self._position]

    @property
    def id(self) -> str:
        """Its id."""
        return self.info.id

    @property
    def environment(self) -> int | None:
        """Id of the environment it counts for, or None."""
        return self.info.environment

    @property
    def environment_name(self) -> str | None:
        """Name of its environment. None without an environment, or if the run no longer knows it."""
        return self.info.environment_name

    @property
    def staleness(self) -> int | None:
        """Policy versions between sampling and hand-out. None means that its policy version is unknown."""
        return self.info.staleness

    @property
    def loss_weight(self) -> float:
        """Factor for its loss: 1, unless it matches a filter of the run that keeps groups with a weight."""
        return self.info.loss_weight

    @property
    def replayed(self) -> ReplayedGroup | None:
        """How it came from the replay buffer. None means that it came from the queue."""
        return self.info.replayed

    @property
    def item(self) -> str | None:
        """The dataset entry it comes from, or None."""
        return self.labels.get("item")

    @property
    def cost(self) -> float | None:
        """Its training cost in the units of its producer, or None."""
        return float(self.labels["cost"]) if "cost" in self.labels else None

    @cached_property
    def metadata(self) -> dict[str, Any]:
        """The JSON object that its producer attached, or an empty one."""
        attached: dict[str, Any] = json.loads(self.labels.get("metadata", "{}"))
        return attached

    @cached_property
    def details(self) -> dict[str, Any]:
        """Its fields that are not numbers: messages, generation_params, overrides, group_overrides, images."""
        if not self._holds(DETAILS):
            return {}
        given = json.loads(self.column(DETAILS).tobytes())
        return {name: value for name, value in given.items() if value is not None}

    @property
    def names(self) -> list[str]:
        """Names of its columns, without columns of lengths; for those see `lengths_of`."""
        held = self._file.names_of(self._position)
        return [name for name in held if name != DETAILS and not name.endswith(_OF_LENGTHS)]

    def dtype(self, name: str) -> str:
        """Return the dtype of a column, as safetensors names it. ``BF16`` and ``F8_…`` come as their bits."""
        return self._file.dtype(self._position, self._known(name))

    def column(self, name: str) -> NDArray[Any]:
        """Return a column as a read-only view; bf16 and f8 as their bits.

        ``NAME.lengths`` and ``NAME.inner_lengths`` are the lengths that apply to a column, its own or shared ones.

        Raises:
            KeyError: It has no such column; the message lists its columns.
        """
        return self._file.of_group(self._position, self._known(name))

    def lengths_of(self, name: str) -> NDArray[Any]:
        """Return how many values of a column each sequence has, as a read-only view: [sequences].

        Without own lengths, a column has those of tokens.
        """
        return self.column(lengths_name(name if self.has_lengths(name) else "tokens"))

    def sequences(self) -> list[SequenceView]:
        """Return its sequences."""
        return [SequenceView(self, index) for index in range(self.info.size)]

    def bounds_of(self, name: str) -> NDArray[np.int64] | None:
        """Return where each sequence begins in a column: [sequences + 1]. None for columns of the group as a whole.

        Raises:
            KeyError: It has no such column.
        """
        if name not in self._bounds:
            self._bounds[name] = self._cut(name)
        return self._bounds[name]

    def rows_of(self, name: str, index: int) -> Any:
        """Return the part of a column of one sequence, as a read-only view; nested if tokens have several values.

        Raises:
            KeyError: It has no such column.
            ValueError: The column belongs to the group as a whole.
        """
        bounds = self.bounds_of(name)
        if bounds is None:
            raise ValueError(f"{name}: belongs to group {self.id} as a whole and cannot be split by sequence")
        start, end = int(bounds[index]), int(bounds[index + 1])
        if _DEPTHS.get(name, 0) < _DEEPEST:
            return self.column(name)[start:end]
        inner = self.column(lengths_name(name, 1))
        first = int(inner[:start].sum(dtype=np.int64))
        of_tokens = inner[start:end]
        return nested(Ragged(self.column(name)[first : first + int(of_tokens.sum(dtype=np.int64))], (of_tokens,)))

    def _cut(self, name: str) -> NDArray[np.int64] | None:
        """Split a column by its own lengths, by those of tokens, or into one value per sequence."""
        column = self.column(name)
        count = len(column) if column.ndim else None
        if _DEPTHS.get(name) == _DEEPEST:
            count = len(self.column(lengths_name(name, 1)))
        lengths = self.lengths_of(name)
        if count is not None and are_lengths(lengths, self.info.size, count):
            return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
        return np.arange(self.info.size + 1) if count == self.info.size else None

    def has_lengths(self, name: str) -> bool:
        """Return whether a column has lengths of its own."""
        return self._holds(lengths_name(name))

    def __contains__(self, name: str) -> bool:
        return name != DETAILS and self._found(name) is not None

    def missing(self, name: str) -> KeyError:
        """Return the error for an unknown column. Its message lists the columns."""
        return KeyError(f"group {self.id} has no column {name!r}; it has {', '.join(sorted(self.names))}")

    def _facts(self) -> dict[str, object]:
        return {
            "id": self.id,
            "environment": self.environment,
            "item": self.item,
            "sequences": self.info.size,
            "tokens": int(self.lengths.sum(dtype=np.int64)),
            "staleness": self.staleness,
        }

    def _holds(self, name: str) -> bool:
        return self._file.holds(self._position, name)

    def _known(self, name: str) -> str:
        found = self._found(name)
        if found is None:
            raise self.missing(name)
        return found

    def _found(self, name: str) -> str | None:
        """Return the name under which a column is stored. Lengths that several columns share are stored once."""
        if self._holds(name):
            return name
        column, _, suffix = name.rpartition(".")
        level = LENGTHS.index(suffix) if suffix in LENGTHS else None
        if level is None or _DEPTHS.get(column, 0) <= level + 1 or not self._holds(column):
            return None
        measured = lengths_name(MEASURES[level], level)
        return measured if self._holds(measured) else None
