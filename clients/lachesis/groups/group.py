"""A group as an environment submits it: checked, and laid out as the bytes that are stored."""

import json
import operator
import re
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from lachesis._torch import labelled
from lachesis._transport.bodies import Path
from lachesis.errors import InvalidField
from lachesis.groups.rows import as_array, ragged
from lachesis.wire.blob import LENGTH_BYTES, MAX_DIMENSIONS, MAX_HEADER_BYTES, METADATA, dtype_name
from lachesis.wire.body import MAX_INTEGER
from lachesis.wire.columns import (
    DETAIL_FIELDS,
    DETAILS,
    NATIVE_COLUMNS,
    Column,
    Ragged,
    check_same_rows,
    is_column,
    pack,
    place_of,
)
from lachesis.wire.groups import GROUP_ID, MAX_COST, MAX_ITEM

PerToken = NDArray[Any] | Sequence[Sequence[float]] | Sequence[NDArray[Any]]
"""A row per sequence, a number per token: lists, arrays of one dimension, or one of two."""

PerSequence = NDArray[Any] | Sequence[float]
"""A number per sequence."""

PerRank = NDArray[Any] | Sequence[Sequence[Sequence[float]]] | Sequence[NDArray[Any]] | Sequence[Sequence[NDArray[Any]]]
"""The same with several numbers per token."""

_MOST_HEADER_BYTES = MAX_HEADER_BYTES - 64  # the rest is for the id of the environment
_DETAIL_NAMES = tuple(name for name in DETAIL_FIELDS if name != "env_id")
_SURROGATE = re.compile(r"[\ud800-\udfff]")  # text in Python has no pairs, so each is a half
_HALF_PAIR = "holds half of a surrogate pair"


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """Sequences that belong together, such as samples of one prompt. A group is in one batch as a whole.

    Values are lists, numpy arrays or objects that convert to arrays (CPU tensors). `submit` reads them.

    Attributes:
        tokens: Token ids of each sequence, prompt and completion.
        masks: Labels, a row per row of ``tokens``: the token id, or -100 where the loss is masked. A 0
            or 1 is a token id, too.
        scores: A finite score per sequence.
        advantages: Optional: a row per sequence or, as in GRPO, a number per sequence. ``batch.per_token`` reads both.
        ref_logprobs, inference_logprobs: Optional: usually a number per token. Rows may have other lengths.
        distill_token_ids, distill_logprobs: Optional: the most likely tokens of a teacher: [sequence][position][rank].
        policy_versions: Optional: the policy version that sampled each token, if it changed within the group.
        policy_version: The policy version that sampled the group: the oldest of ``policy_versions``, if there are any.
            Limits of staleness need it.
        item: The dataset entry or task of the group, up to 512 characters. If the run has a curriculum with the name
            of the environment, the scores count as an observation of the item.
        cost: Cost of training on the group, in any unit, ``>= 0``.
        metadata: A JSON object for the trainer. The service keeps it unread.
        tensors: Further arrays by name: bool, integers or floats, including bf16 and f8 of PyTorch and ml_dtypes.
        messages: A conversation per sequence; each message has ``role`` and ``content``.
        generation_params, overrides, group_overrides, images: As in the ``ScoredData`` of Atropos.
        id: Its id. The service stores a group that is submitted twice with the same id once.
    """

    tokens: PerToken
    masks: PerToken
    scores: PerSequence
    _: KW_ONLY
    advantages: PerToken | PerSequence | None = None
    ref_logprobs: PerToken | None = None
    inference_logprobs: PerToken | None = None
    distill_token_ids: PerRank | None = None
    distill_logprobs: PerRank | None = None
    policy_versions: PerToken | None = None
    policy_version: int | None = None
    item: str | None = None
    cost: float | None = None
    metadata: Mapping[str, Any] | None = None
    tensors: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    messages: Sequence[Sequence[Mapping[str, Any]]] | None = None
    generation_params: Mapping[str, Any] | None = None
    overrides: Sequence[Mapping[str, Any]] | None = None
    group_overrides: Mapping[str, Any] | None = None
    images: Any = None
    id: str = field(default_factory=lambda: str(uuid.uuid4()))

    def __repr__(self) -> str:
        """Show its identity without its columns, which may be long."""
        optional = {"policy_version": self.policy_version, "item": self.item, "cost": self.cost}
        shown = {"id": self.id, "sequences": _count(self.tokens), **optional}
        return f"Group({', '.join(f'{name}={value!r}' for name, value in shown.items() if value is not None)})"

    def packed(self, environment: int | None) -> bytes:
        """Return the group as one safetensors blob, as it is sent and stored.

        Args:
            environment: Id of the environment it counts for. None means no environment.

        Raises:
            InvalidField: A value is wrong; ``errors`` says where.
        """
        columns = {
            column.name: _flattened(column, value)
            for column in NATIVE_COLUMNS
            if (value := getattr(self, column.name)) is not None or column.required
        }
        check_same_rows(columns)
        if _is_per_sequence(self.advantages) and len(self.advantages) != len(columns["scores"].values):
            wrong = f"has {len(self.advantages)} values for {len(columns['scores'].values)} sequences"
            raise InvalidField(wrong, ("advantages",))
        keys = self._keys(columns.get("policy_versions"))
        if environment is not None:
            keys["environment"] = str(environment)
        payload = pack(columns, self._details(), keys, _checked_tensors(self.tensors))
        header_bytes = int.from_bytes(payload[:LENGTH_BYTES], "little")
        if header_bytes > _MOST_HEADER_BYTES:
            too_large = f"needs a header of {header_bytes} bytes; the limit is {_MOST_HEADER_BYTES}"
            raise InvalidField(too_large, ("tensors" if self.metadata is None else "metadata",))
        return payload

    def _keys(self, versions: Ragged | None) -> dict[str, str]:
        if not _is_id(self.id):
            raise InvalidField(f"should match {GROUP_ID}, not {self.id!r}", ("id",))
        keys = {"id": self.id}
        oldest = _oldest(versions)
        if self.policy_version is not None:
            version = _whole(self.policy_version)
            if version is None or not 0 <= version <= MAX_INTEGER:
                raise InvalidField(f"should be an integer from 0 on, not {self.policy_version!r}", ("policy_version",))
            if oldest not in (None, version):
                raise InvalidField(f"is not {oldest}, the oldest of policy_versions", ("policy_version",))
            keys["policy_version"] = str(version)
        if self.item is not None:
            if not isinstance(self.item, str):
                raise InvalidField(f"should be a string, not {type(self.item).__name__}", ("item",))
            if not 1 <= len(self.item) <= MAX_ITEM:
                raise InvalidField(f"has 1 to {MAX_ITEM} characters, not {len(self.item)}", ("item",))
            if _SURROGATE.search(self.item):
                raise InvalidField(_HALF_PAIR, ("item",))
            keys["item"] = self.item
        if self.cost is not None:
            if not (_is_number(self.cost) and 0 <= self.cost <= MAX_COST):
                raise InvalidField(f"should be a number from 0 to {MAX_COST:g}, not {self.cost!r}", ("cost",))
            keys["cost"] = repr(float(self.cost))
        if self.metadata is not None:
            keys["metadata"] = _json(_object(self.metadata, ("metadata",)), ("metadata",)).decode()
        return keys

    def _details(self) -> bytes:
        given = {name: value for name in _DETAIL_NAMES if (value := getattr(self, name)) is not None}
        for name, value in given.items():
            _DETAIL_CHECKS.get(name, _anything)(value, (name,))
        return _json(given)


def _flattened(column: Column, value: Any) -> Ragged:
    """Flatten a column. One value per sequence becomes rows of one value."""
    if column.name == "advantages" and _is_per_sequence(value):
        values = ragged(value, replace(column, depth=1)).values
        return Ragged(values, (np.ones(len(values), np.int64),))
    return ragged(value, column)


def _is_per_sequence(rows: Any) -> TypeGuard[Any]:
    if hasattr(rows, "__array__"):
        return np.ndim(rows) == 1 and getattr(getattr(rows, "dtype", None), "kind", "") != "O"
    return isinstance(rows, list | tuple) and bool(rows) and all(_is_number(row) for row in rows)


def _is_id(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch(GROUP_ID, value) is not None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) or (hasattr(value, "__array__") and np.ndim(value) == 0)


def _whole(value: Any) -> int | None:
    """Return a whole number of any type, for instance of numpy, as an int. None for other values, also for bool."""
    if isinstance(value, bool | np.bool_):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


def _count(rows: Any) -> int | None:
    try:
        return len(rows)
    except TypeError:  # found by `Group.packed`
        return None


def _oldest(versions: Ragged | None) -> int | None:
    if versions is None:
        return None
    oldest = int(versions.values.min())
    if oldest < 0:
        place = place_of(versions, int(np.argmin(versions.values)))
        raise InvalidField(f"is negative: {oldest}", ("policy_versions", *place))
    return oldest


def _checked_tensors(tensors: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    for name in tensors:
        if name in (DETAILS, METADATA) or is_column(name):
            raise InvalidField("is the name of a column, or reserved: choose another name", ("tensors", name))
        if _SURROGATE.search(name):
            raise InvalidField(f"the name {name!a} {_HALF_PAIR}", ("tensors",))
    return {name: _checked_tensor(value, ("tensors", name)) for name, value in tensors.items()}


def _checked_tensor(value: NDArray[Any], path: Path) -> NDArray[Any]:
    array = as_array(value, path, labelled)
    if array.ndim > MAX_DIMENSIONS:
        raise InvalidField(f"has {array.ndim} dimensions; the limit is {MAX_DIMENSIONS}", path)
    try:
        dtype_name(array.dtype)
    except TypeError as error:
        raise InvalidField(f"cannot be stored: {error}", path) from None
    return array


def _check_messages(conversations: Any, path: Path) -> None:
    for row, conversation in enumerate(_array(conversations, path)):
        for position, message in enumerate(_array(conversation, (*path, row))):
            place = (*path, row, position)
            _object(message, place)
            for key in ("role", "content"):
                if key not in message:
                    raise InvalidField(f"lacks {key}", place)


def _check_objects(items: Any, path: Path) -> None:
    for position, item in enumerate(_array(items, path)):
        _object(item, (*path, position))


def _object(value: Any, path: Path) -> Any:
    if not isinstance(value, Mapping):
        raise InvalidField(f"should be an object, not {type(value).__name__}", path)
    return value


def _array(value: Any, path: Path) -> Any:
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        raise InvalidField(f"should be an array, not {type(value).__name__}", path)
    return value


def _anything(_: Any, __: Path) -> None:
    pass


_DETAIL_CHECKS: dict[str, Callable[[Any, Path], object]] = {
    "messages": _check_messages,
    "generation_params": _object,
    "overrides": _check_objects,
    "group_overrides": _object,
}


def _json(value: Any, path: Path = ()) -> bytes:
    """Write a value as JSON. ``path`` is the place of the value.

    Raises:
        InvalidField: It is not JSON, or holds half of a surrogate pair.
    """
    try:
        text = json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    except (TypeError, ValueError) as error:
        raise InvalidField(f"is not JSON: {error}", path or (DETAILS,)) from None
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise InvalidField(_HALF_PAIR, _half_pair(value, path) or path) from None


def _half_pair(value: Any, path: Path) -> Path | None:
    """Return the place of the first text with half of a surrogate pair. A key has the place of its object."""
    if isinstance(value, str):
        return path if _SURROGATE.search(value) else None
    if isinstance(value, Mapping):
        if any(isinstance(key, str) and _SURROGATE.search(key) for key in value):
            return path
        items: Iterable[tuple[str | int, Any]] = value.items()
    else:
        items = enumerate(value) if isinstance(value, list | tuple) else ()
    places = (_half_pair(inner, (*path, key)) for key, inner in items)
    return next((place for place in places if place is not None), None)
