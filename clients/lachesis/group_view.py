"""A group of a batch: what is known of it, and its columns as views of the bytes that the batch came in."""

import json
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lachesis._public import Shown
from lachesis.wire.batch_file import BatchFile
from lachesis.wire.batches import BatchGroup, ReplayedGroup
from lachesis.wire.columns import DETAILS, LENGTHS, MEASURES, NATIVE_COLUMNS, lengths_name

_DEPTHS = {column.name: column.depth for column in NATIVE_COLUMNS}


class GroupView(Shown):
    """A group of a batch. Its columns are read-only views; nothing is copied.

    Attributes:
        info: What the service says of it: id, environment, size, policy version, staleness, age.
    """

    def __init__(self, info: BatchGroup, file: BatchFile, position: int) -> None:
        self.info = info
        self._file = file
        self._position = position

    @property
    def labels(self) -> Mapping[str, str]:
        """The strings in its blob's metadata, as they came."""
        return self._file.labels[self._position]

    @property
    def id(self) -> str:
        """Its id."""
        return self.info.id

    @property
    def environment(self) -> int | None:
        """The environment it counts for, or None."""
        return self.info.environment

    @property
    def staleness(self) -> int | None:
        """Policy versions since it was sampled, when it was handed out; None if it did not say."""
        return self.info.staleness

    @property
    def loss_weight(self) -> float:
        """What its loss is to be multiplied by: 1, unless a filter of the run found it that keeps such groups."""
        return self.info.loss_weight

    @property
    def replayed(self) -> ReplayedGroup | None:
        """How it came into the batch from the replay buffer; None if it is from the queue."""
        return self.info.replayed

    @property
    def item(self) -> str | None:
        """The dataset entry it comes from, if it said so."""
        return self.labels.get("item")

    @property
    def cost(self) -> float | None:
        """What it costs to train on, in its producer's units, if it said so."""
        return float(self.labels["cost"]) if "cost" in self.labels else None

    @cached_property
    def metadata(self) -> dict[str, Any]:
        """The object its producer attached, or an empty one."""
        attached: dict[str, Any] = json.loads(self.labels.get("metadata", "{}"))
        return attached

    @cached_property
    def details(self) -> dict[str, Any]:
        """What is not numbers: messages, generation_params, overrides, group_overrides, images; where it has them."""
        if not self._holds(DETAILS):
            return {}
        given = json.loads(self.column(DETAILS).tobytes())
        return {name: value for name, value in given.items() if value is not None}

    @property
    def names(self) -> list[str]:
        """The columns it has, without those that are lengths; see `lengths`."""
        held = self._file.names_of(self._position)
        return [name for name in held if name != DETAILS and not name.endswith(lengths_name(""))]

    def dtype(self, name: str) -> str:
        """Return a column's dtype as safetensors names it: ``BF16`` where numpy can only show its bits."""
        return self._file.dtype(self._position, self._known(name))

    def column(self, name: str) -> NDArray[Any]:
        """Return a column as a read-only view; bf16 and f8 as their bits.

        The ``.lengths`` and ``.inner_lengths`` of a column that has none of its own are those that hold for it.

        Raises:
            KeyError: It has no such column; the message lists those it has.
        """
        return self._file.of_group(self._position, self._known(name))

    def lengths(self, name: str = "tokens") -> NDArray[Any]:
        """Return how many values of a column each sequence has. A column without lengths of its own has tokens'."""
        return self.column(lengths_name(name if self.has_lengths(name) else "tokens"))

    def has_lengths(self, name: str) -> bool:
        """Whether a column has lengths of its own."""
        return self._holds(lengths_name(name))

    def __contains__(self, name: str) -> bool:
        return name != DETAILS and self._found(name) is not None

    def missing(self, name: str) -> KeyError:
        """Build the error that says that it has no such column, and which it has."""
        return KeyError(f"group {self.id} has no column {name!r}; it has {', '.join(sorted(self.names))}")

    def _facts(self) -> dict[str, object]:
        return {
            "id": self.id,
            "environment": self.environment,
            "item": self.item,
            "sequences": self.info.size,
            "tokens": int(self.lengths().sum(dtype=np.int64)),
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
        """Find the name that a column is held under: lengths that are its measure's are held once, under that one's."""
        if self._holds(name):
            return name
        column, _, suffix = name.rpartition(".")
        level = LENGTHS.index(suffix) if suffix in LENGTHS else None
        if level is None or _DEPTHS.get(column, 0) <= level + 1 or not self._holds(column):
            return None
        measured = lengths_name(MEASURES[level], level)
        return measured if self._holds(measured) else None
