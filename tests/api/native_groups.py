"""Groups of the native API for tests: one meaning, spelled in JSON and in binary."""

import base64
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from lachesis.wire import blob
from lachesis.wire.batch_file import BatchFile
from lachesis.wire.columns import DETAIL_FIELDS, MEASURES, NATIVE_COLUMNS, lengths_name, nested, unpack
from lachesis.wire.groups import GROUP_KEYS, MAX_COST, SAFETENSORS
from tests.api.bodies import exact, groups, json_objects

BINARY = {"Content-Type": SAFETENSORS}
TENSOR_NAMES = ("x", "tokens.extra", "foo.lengths", "scores2", "图 像", "x" * 256)

arrays = st.sampled_from(
    [
        np.arange(6, dtype=np.int64).reshape(2, 3) - 2**62,
        np.array([np.nan, -0.0, np.inf], np.float32),
        np.array(7, np.uint16),
        np.zeros((0, 3), np.float16),
        np.array([True, False]),
    ]
)


@st.composite
def native_groups(draw: st.DrawFn) -> dict[str, Any]:
    """A valid group with any column, detail and key, as it is in JSON; free tensors are arrays."""
    group = draw(groups())
    del_env = {name: value for name, value in group.items() if name != "env_id" and value is not None}
    versions = st.just(
        [[draw(st.integers(0, 2**53 - 1)) for _ in row] for row in group["tokens"]] if draw(st.booleans()) else None
    )
    more = {
        "environment": st.just(0),
        "item": st.text(min_size=1, max_size=20),
        "cost": st.floats(0, MAX_COST),
        "metadata": json_objects,
        "policy_versions": versions,
        "tensors": st.dictionaries(st.sampled_from(TENSOR_NAMES), arrays, max_size=2),
    }
    chosen = draw(st.fixed_dictionaries({}, optional=more))
    if chosen.get("policy_versions") is None:
        chosen.pop("policy_versions", None)
        chosen |= draw(st.fixed_dictionaries({}, optional={"policy_version": st.integers(0, 2**53 - 1)}))
    return del_env | chosen


def in_json(group: Mapping[str, Any]) -> dict[str, Any]:
    """The group as a JSON object; if it is one already, the same."""
    tensors = {
        name: tensor_in_json(array) if isinstance(array, np.ndarray) else array
        for name, array in group.get("tensors", {}).items()
    }
    return {**group, "tensors": tensors} if tensors else {n: v for n, v in group.items() if n != "tensors"}


def tensor_in_json(array: NDArray[Any]) -> dict[str, Any]:
    kind = "BOOL" if array.dtype.kind == "b" else f"{array.dtype.kind.upper()}{8 * array.dtype.itemsize}"
    return {"dtype": kind, "shape": list(array.shape), "data": base64.b64encode(array.tobytes()).decode()}


def in_binary(group: Mapping[str, Any], *, spelled_out: bool = False) -> bytes:
    """The group as a safetensors blob; ``spelled_out``: with all lengths, also those that could be left out."""
    tensors, metadata = parts(group, spelled_out=spelled_out)
    return blob.write(tensors, metadata)


def parts(group: Mapping[str, Any], *, spelled_out: bool = False) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    """What a blob of the group is made of: its tensors and its metadata."""
    tensors: dict[str, NDArray[Any]] = dict(group.get("tensors", {}))
    lengths: dict[str, list[list[int]]] = {}
    for column in NATIVE_COLUMNS:
        if column.name not in group:
            continue
        rows, levels = group[column.name], []
        for _ in range(column.depth - 1):
            levels.append([len(row) for row in rows])
            rows = [value for row in rows for value in row]
        tensors[column.name] = np.array(rows, np.int64 if column.kind == "int" else np.float64)
        lengths[column.name] = levels
    for name, levels in lengths.items():
        for level, own in enumerate(levels):
            measure = lengths.get(MEASURES[level])
            if name == MEASURES[level] or spelled_out or measure is None or measure[level] != own:
                tensors[lengths_name(name, level)] = np.array(own, np.int64)
    details = {name: group[name] for name in DETAIL_FIELDS if name in group}
    if details:
        tensors["details"] = np.frombuffer(json.dumps(details).encode(), np.uint8)
    metadata = {name: str(group[name]) for name in GROUP_KEYS if name in group}
    if "metadata" in group:
        metadata["metadata"] = json.dumps(group["metadata"])
    return tensors, metadata


def meaning_in_binary(payload: blob.Buffer) -> dict[str, Any]:
    """Read a blob back into what `native_groups` makes."""
    group = unpack(payload)
    read: dict[str, Any] = {name: _listed(nested(column)) for name, column in group.columns.items()}
    read |= {name: value for name, value in json.loads(group.details).items() if value is not None}
    read |= group.metadata
    for name, reader in {"environment": int, "policy_version": int, "cost": float, "metadata": json.loads}.items():
        if name in read:
            read[name] = reader(read[name])
    return read | ({"tensors": group.tensors} if group.tensors else {})


def blobs_of(content: blob.Buffer) -> tuple[dict[str, str], list[bytes]]:
    """What a batch in binary says of itself, and each of its groups as the blob that it was."""
    file = BatchFile(content)
    blobs = []
    for position, labels in enumerate(file.labels):
        tensors = {name: file.of_group(position, name) for name in file.names_of(position)}
        dtypes = {name: file.dtype(position, name) for name in tensors}
        blobs.append(blob.write(tensors, labels, dtypes))
    return file.metadata, blobs


def comparable(group: Mapping[str, Any]) -> str:
    """Text that is equal for equal groups only, down to the bits; a policy version that others imply is implied."""
    group = in_json(group)
    if "policy_versions" in group:
        group["policy_version"] = min(version for row in group["policy_versions"] for version in row)
    return exact(group)


def _listed(rows: Any) -> Any:
    return rows.tolist() if isinstance(rows, np.ndarray) else [_listed(row) for row in rows]
