"""Build the replies with the contents of one group: whole or a part of a sequence, in JSON or in safetensors."""

import asyncio
import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
from fastapi import Request, Response
from numpy.typing import NDArray

from app.api.codec.annotations import annotations_json
from app.api.codec.atropos_batch import column_rows, merged
from app.api.codec.group_details import NATIVE_DETAILS, present
from app.api.codec.json_reader import ARRAYS, members, minified, parse_json
from app.api.http.bodies.content_budget import ContentShare
from app.api.http.negotiation import accepts_binary, accepts_compact
from app.api.http.replies import budgeted_reply, streamed, varied_by_accept
from app.core.groups.advantages import relative_advantages
from app.core.groups.annotations import tensor_of
from app.services.groups.contents import KeptContents
from app.services.groups.token_text import TokenText
from app.store.groups.annotations import Annotations
from lachesis.wire import blob
from lachesis.wire.blob import Buffer
from lachesis.wire.columns import DETAILS, NATIVE_COLUMNS, Ragged, Unpacked, in_full, lay_out, unpack
from lachesis.wire.errors import GroupGone, InvalidField
from lachesis.wire.groups import SAFETENSORS, GroupContent

_BY_SEQUENCE = ("messages", "overrides")


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a group: the tokens of one sequence from ``first`` on, at most ``most`` of them (None: all)."""

    sequence: int
    first: int = 0
    most: int | None = None


def lengths_of(group: Unpacked) -> NDArray[Any]:
    """Return the tokens of each sequence."""
    (lengths,) = group.columns["tokens"].lengths
    return lengths


def check_part(part: Part, size: int) -> None:
    """Check that a group of ``size`` sequences has this part.

    Raises:
        InvalidField: The group has no such sequence.
    """
    if part.sequence >= size:
        raise InvalidField(f"the group has sequences 0 to {size - 1}", ("query", "sequence"))


def part_of(group: Unpacked, part: Part) -> Unpacked:
    """Return a part of a group. Its own tensors and its images are left out: nothing says how to divide them.

    Raises:
        InvalidField: The group has no such sequence.
    """
    check_part(part, len(lengths_of(group)))
    found = {name: _cut(column, part) for name, column in group.columns.items()}
    columns = {name: column for name, column in found.items() if column is not None}
    return Unpacked(columns, _details_of(group.details, part.sequence), group.metadata, {}, {})


def _cut(column: Ragged, part: Part) -> Ragged | None:
    """Return a part of a column; None if the column has no such row."""
    if not column.lengths:
        return Ragged(column.values[part.sequence : part.sequence + 1])
    rows, *inner = column.lengths
    if part.sequence >= len(rows):
        return None
    begin, length = int(rows[: part.sequence].sum()), int(rows[part.sequence])
    first = min(part.first, length)
    last = length if part.most is None else min(first + part.most, length)
    own = np.array([last - first])
    if not inner:
        return Ragged(column.values[begin + first : begin + last], (own,))
    (positions,) = inner
    chosen = positions[begin + first : begin + last]
    start = int(positions[: begin + first].sum())
    return Ragged(column.values[start : start + int(chosen.sum())], (own, chosen))


def _details_of(details: bytes, sequence: int) -> bytes:
    texts: dict[str, bytes] = {}
    for name, value in members(parse_json(details), ()):
        if value is None or name not in NATIVE_DETAILS or name == "images":
            continue
        if name not in _BY_SEQUENCE:
            texts[name] = minified(value)
        elif isinstance(value, ARRAYS) and sequence < len(value):
            texts[name] = b"[%b]" % minified(value[sequence])
    return b"{%b}" % b",".join(b'"%b":%b' % (name.encode(), text) for name, text in texts.items())


def in_json(
    described: bytes,
    group: Unpacked,
    annotations: Mapping[str, Ragged] | None = None,
    version_in_force: int | None = None,
    token_text: TokenText | None = None,
) -> list[Buffer]:
    """Write a group as one JSON object: its description, columns, details, keys, tensors and annotations.

    With the policy version in force, also how many versions ago each token was sampled. With a tokenizer, also texts.

    Raises:
        InvalidField: There is too much text.
    """
    more: dict[str, Any] = {
        column.name: column_rows(group.columns[column.name])
        for column in NATIVE_COLUMNS
        if column.name in group.columns
    }
    if "item" in group.metadata:
        more["item"] = group.metadata["item"]
    if "cost" in group.metadata:
        more["cost"] = float(group.metadata["cost"])
    if "metadata" in group.metadata:
        more["metadata"] = orjson.Fragment(group.metadata["metadata"].encode())
    if group.tensors:
        more["tensors"] = {
            name: {
                "dtype": group.dtypes[name],
                "shape": list(array.shape),
                "data": base64.b64encode(array.tobytes()).decode(),
            }
            for name, array in group.tensors.items()
        }
    if annotations is not None:
        more["annotations"] = {name: column_rows(values) for name, values in annotations.items()}
    versions = group.columns.get("policy_versions")
    if version_in_force is not None and versions is not None:
        ages = np.maximum(version_in_force - versions.values.astype(np.int64), 0)
        more["version_ages"] = column_rows(Ragged(ages, versions.lengths))
    if token_text is not None:
        more["texts"] = token_text.rows(group.columns["tokens"])
    own = orjson.dumps(more, option=orjson.OPT_SERIALIZE_NUMPY)
    return merged(described, own, present(group.details))


def group_in_binary(group: Unpacked, annotations: Mapping[str, Ragged]) -> bytes:
    """Write a group, or a part of one, as one blob without compact columns. Annotations are further tensors."""
    added = {tensor_of(name): np.ascontiguousarray(ragged.values) for name, ragged in annotations.items()}
    tensors = {**added, **group.tensors, **lay_out(group.columns, compact=False)}
    return blob.write(tensors | {DETAILS: np.frombuffer(group.details, np.uint8)}, group.metadata, group.dtypes)


async def content_reply(
    request: Request,
    shown_id: str,
    kept: KeptContents,
    annotations: Mapping[str, Ragged],
    part: Part | None,
    share: ContentShare,
    token_text: TokenText | None = None,
) -> Response:
    """Show the contents of a group, or a part of them, as the client accepts it. They are written in a thread.

    The reply releases ``share`` when it has left this process or broken off.

    Raises:
        GroupGone: The contents are damaged.
        InvalidField: The group has no such sequence, or there is too much text.
        TooManyReads: The reply is much larger than the contents, and replies to others hold too much memory.
    """
    binary = accepts_binary(request)
    try:
        group = unpack(kept.payload)
        lengths = lengths_of(group).tolist()
        chosen = group if part is None else await asyncio.to_thread(part_of, group, part)
        added = annotations if part is None else _parts_of(annotations, part)
        if binary:
            whole = await asyncio.to_thread(_blob, request, kept.payload, chosen, added, part is None)
            share.settle(len(whole))
            return budgeted_reply([whole], varied_by_accept({}), share, SAFETENSORS)
        advantages = relative_advantages(group.columns["scores"].values).tolist()
    except InvalidField:
        raise
    except (KeyError, ValueError) as error:
        raise GroupGone(f"the contents of group {shown_id} are damaged in Redis: {error}") from error
    row = kept.facts.group
    described = GroupContent.model_construct(
        id=shown_id,
        state=row.state,
        environment=row.environment,
        size=row.size,
        policy_version=row.policy_version,
        lengths=lengths,
        sequence=None if part is None else part.sequence,
        first_token=0 if part is None else part.first,
        group_advantages=advantages if part is None else [advantages[part.sequence]],
    )
    own = described.model_dump_json(exclude_none=True, exclude={"annotations"}).encode()
    parts = await asyncio.to_thread(in_json, own, chosen, added, kept.facts.version_in_force, token_text)
    share.settle(len(kept.payload) + sum(map(len, parts)))
    body, headers = await streamed(request, iter(parts))
    return budgeted_reply(body, varied_by_accept(headers), share)


async def annotations_reply(request: Request, group: str, found: Annotations, share: ContentShare) -> Response:
    """Show the annotations of a group. The reply releases ``share`` when it has left this process or broken off.

    Raises:
        TooManyReads: The reply does not fit, and replies to others hold too much memory.
    """
    text = await asyncio.to_thread(annotations_json, group, found)
    share.settle(len(text))
    body, headers = await streamed(request, iter([text]))
    return budgeted_reply(body, headers, share)


def _parts_of(annotations: Mapping[str, Ragged], part: Part) -> dict[str, Ragged]:
    found = {name: _cut(ragged, part) for name, ragged in annotations.items()}
    return {name: ragged for name, ragged in found.items() if ragged is not None}


def _blob(
    request: Request, payload: bytes, group: Unpacked, annotations: Mapping[str, Ragged], is_whole: bool
) -> Buffer:
    if annotations or not is_whole:
        return group_in_binary(group, annotations)
    return payload if accepts_compact(request) else in_full(payload)
