"""Store values per token that trainers add to groups, as long as the run remembers the groups."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from app.store.groups import scripts
from app.store.groups.entries import group_name, parse_known
from app.store.redis.client import RedisClient
from app.store.redis.keys import RunKeys
from lachesis.wire.columns import Ragged
from lachesis.wire.limits import MAX_ANNOTATIONS

MAX_BYTES = 256 * 1024 * 1024
"""Maximum size of all annotations of a run."""

_LENGTHS = ".lengths"  # no annotation has such a name
_VALUE_BYTES = 4


@dataclass(frozen=True, slots=True)
class Annotations:
    """Annotations of a group.

    Attributes:
        lengths: Tokens of each sequence.
        values: The values by name, with a row per sequence.
    """

    lengths: NDArray[Any] = field(default_factory=lambda: np.empty(0, np.int64))
    values: Mapping[str, Ragged] = field(default_factory=dict)


class AnnotationStore:
    """Keeps annotations by the name under which the run knows a group. They end with what it remembers of the group."""

    def __init__(self, connection: RedisClient) -> None:
        self._connection = connection

    async def put(
        self, run: str, given_id: str, group_id: str, lengths: NDArray[Any], values: Mapping[str, NDArray[np.float32]]
    ) -> Literal["stored", "unknown", "names", "bytes"]:
        """Store annotations of a group. Annotations of the same names are replaced.

        Args:
            run: The run's name.
            given_id: An id that finds the group.
            group_id: The service's own id of it.
            lengths: Tokens of each sequence.
            values: The values by name, over all sequences in order.

        Returns:
            ``stored``. Else nothing changed: ``unknown`` if the run has forgotten the group, ``names`` if it would have
            more than `MAX_ANNOTATIONS`, or ``bytes`` if those of the run would exceed `MAX_BYTES`.
        """
        found = await self._find(RunKeys(run), given_id)
        if found is None:
            return "unknown"
        rows = [scripts.AnnotationRow(name, own.tobytes()) for name, own in values.items()]
        command = scripts.put_annotations(
            RunKeys(run),
            group_name=found[0],
            group_id=group_id,
            most_names=MAX_ANNOTATIONS + 1,
            most_bytes=MAX_BYTES,
            added=[scripts.AnnotationRow(_LENGTHS, lengths.astype("<i8").tobytes()), *rows],
        )
        outcome: Literal["stored", "unknown", "names", "bytes"] = (await self._connection.run(command)).decode()
        return outcome

    async def names(self, run: str, given_id: str) -> list[str]:
        """Return the names of the annotations of a group."""
        _, names, _ = await self._annotated(RunKeys(run), given_id)
        return names

    async def read(self, run: str, given_id: str, admit: Callable[[int], Awaitable[None]] | None = None) -> Annotations:
        """Read the annotations of a group.

        Args:
            run: The run's name.
            given_id: An id that finds the group.
            admit: Awaited with the bytes of the values before they are read. An error of it is raised.
        """
        keys = RunKeys(run)
        group, names, lengths = await self._annotated(keys, given_id)
        if not names or lengths is None:
            return Annotations()
        rows = np.frombuffer(lengths, "<i8")
        if admit is not None:
            await admit(len(names) * int(rows.sum()) * _VALUE_BYTES)
        values = await self._connection.call("HMGET", keys.annotations, *(f"{group} {name}" for name in names))
        there = {name: own for name, own in zip(names, values, strict=True) if own is not None}
        return Annotations(rows, {name: Ragged(np.frombuffer(own, "<f4"), (rows,)) for name, own in there.items()})

    async def _annotated(self, keys: RunKeys, given_id: str) -> tuple[str, list[str], bytes | None]:
        """Return the name of a group, the names of its annotations, and its lengths. An unknown group has none."""
        found = await self._find(keys, given_id)
        if found is None:
            return "", [], None
        name, known_id = found
        text, lengths = await self._connection.call("HMGET", keys.annotations, name, f"{name} {_LENGTHS}")
        if text is None:
            return "", [], None
        group_id, *names = text.decode().split()
        return name, sorted(one for one in names if one != _LENGTHS) if group_id == known_id else [], lengths

    async def _find(self, keys: RunKeys, given_id: str) -> tuple[str, str] | None:
        """Return the name and the id of a group that the run holds or remembers."""
        names = [group_name(given_id), given_id]
        found = await self._connection.call("HMGET", keys.known, *names)
        return next(
            ((name, parse_known(text.decode()).group_id) for name, text in zip(names, found, strict=True) if text), None
        )
