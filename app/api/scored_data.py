"""Turn the JSON of scored groups into columns: strict about shape, lenient about how a number is spelled.

The structure of the whole body is checked first (400), then the values, group by group in the order of the fields
(422). So what is reported does not depend on the parser, nor on whether the shortcut of `app.api.group_fields` was
taken; a property test holds the three ways equal. Only too long a list is refused before its elements are looked at.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from app.api.group_fields import GroupFields, accounts_for, read_fields, read_fields_by_shortcut
from app.api.json_reader import ARRAYS, OBJECTS, PROXIES, Path, check_structure, described, minified, parse
from app.api.numbers import read_column, read_environment
from app.core.errors import InvalidField, MalformedBody
from app.store.codec import EncodedGroup
from lachesis.wire.columns import COLUMNS, DETAIL_FIELDS, Ragged, pack

Parse = Callable[[bytes], Any]
GroupsOf = Callable[[Any], list[tuple[Path, Any]]]

MAX_GROUPS = 10_000
"""Most groups in one request: each takes a thousand bytes and more, and little JSON suffices to say it."""


@dataclass(frozen=True, slots=True)
class _CheckedGroup:
    """A group whose values are right, no longer JSON and not yet one blob."""

    columns: dict[str, Ragged]
    environment: int | None
    details: bytes


def decode_group(body: bytes, *, parse: Parse = parse, shortcut: bool = True) -> EncodedGroup:
    """Decode the JSON of one group (the Atropos ``ScoredData``).

    Args:
        body: The JSON text, UTF-8.
        parse: The parser; tests choose another one.
        shortcut: Whether plain columns may be read without looking at each value; tests turn it off.

    Raises:
        MalformedBody: It is not one JSON object, or not one that all readers understand alike.
        InvalidField: A value is wrong; the location is a path in the group: ``("advantages", 3, 17)``.
    """
    (group,) = _checked_groups(body, _only, parse, shortcut)
    return _packed(group)


def decode_groups(body: bytes, *, parse: Parse = parse, shortcut: bool = True) -> list[EncodedGroup]:
    """Decode a JSON array of groups. Like `decode_group`; locations start with the group's position in the array."""
    return [_packed(group) for group in _checked_groups(body, _elements, parse, shortcut)]


def _checked_groups(body: bytes, groups_of: GroupsOf, parse: Parse, shortcut: bool) -> list[_CheckedGroup]:
    """Check the groups of a body. The parsed document, many times the body's size, does not outlive this call."""
    document = parse(body)
    return [_checked(fields) for fields in _read(document, groups_of(document), body, shortcut)]


def _only(document: Any) -> list[tuple[Path, Any]]:
    if not isinstance(document, OBJECTS):
        raise MalformedBody(f"expected one group, a JSON object, not {described(document)}")
    return [((), document)]


def _elements(document: Any) -> list[tuple[Path, Any]]:
    if not isinstance(document, ARRAYS):
        raise MalformedBody(f"expected an array of groups, not {described(document)}")
    if len(document) > MAX_GROUPS:  # refused unseen: to look at 200 MB of "[]," took 35 s
        raise InvalidField(f"more than {MAX_GROUPS} groups in one request", (MAX_GROUPS,))
    groups: list[tuple[Path, Any]] = []
    for position, group in enumerate(document):
        if not isinstance(group, OBJECTS):
            _refuse(document, f"should be a group, a JSON object, not {described(group)}", position)
        groups.append(((position,), group))
    return groups


def _refuse(document: Any, message: str, position: int) -> None:
    check_structure(document)  # goes first: 400 before 422
    raise InvalidField(message, (position,))


def _read(document: Any, groups: Sequence[tuple[Path, Any]], body: bytes, shortcut: bool) -> list[GroupFields]:
    """Take the groups of a document apart, and check its structure."""
    if shortcut and isinstance(document, PROXIES):
        fields = [read_fields_by_shortcut(group, path) for path, group in groups]
        outside = 1 if isinstance(document, ARRAYS) else 0
        if accounts_for(body, outside + sum(one.brackets for one in fields)):
            return fields
    check_structure(document)
    return [read_fields(group, path) for path, group in groups]


def _checked(fields: GroupFields) -> _CheckedGroup:
    columns = _columns(fields)
    _check_rows(columns, fields.path)
    for name, check in _DETAIL_CHECKS.items():
        if name in fields.values:
            check(fields.values[name], (*fields.path, name))
    environment = None
    if "env_id" in fields.values:
        environment = read_environment(fields.values["env_id"], (*fields.path, "env_id"))
    return _CheckedGroup(columns, environment, _details(fields, environment))


def _packed(group: _CheckedGroup) -> EncodedGroup:
    size = len(group.columns["tokens"].lengths[0])
    return EncodedGroup(size, group.environment, pack(group.columns, group.details))


def _columns(fields: GroupFields) -> dict[str, Ragged]:
    columns = {}
    for column in COLUMNS:
        path = (*fields.path, column.name)
        if column.name in fields.plain:
            columns[column.name] = fields.plain[column.name]
        elif column.name in fields.values:
            columns[column.name] = read_column(column, fields.values[column.name], path)
        elif column.required:
            raise InvalidField("is required", path)
    return columns


def _check_rows(columns: Mapping[str, Ragged], path: Path) -> None:
    """Tokens, masks and scores must belong together; other columns may have rows of their own."""
    (tokens,), (masks,) = columns["tokens"].lengths, columns["masks"].lengths
    scores = columns["scores"].values
    if not len(tokens):
        raise InvalidField("holds no sequence", (*path, "tokens"))
    if not tokens.all():
        raise InvalidField("a sequence without tokens", (*path, "tokens", int(np.argmin(tokens != 0))))
    if len(masks) != len(tokens):
        raise InvalidField(f"has {len(masks)} rows where tokens has {len(tokens)}", (*path, "masks"))
    if not np.array_equal(masks, tokens):
        row = int(np.argmax(masks != tokens))
        raise InvalidField(f"has {masks[row]} values where tokens has {tokens[row]}", (*path, "masks", row))
    if len(scores) != len(tokens):
        raise InvalidField(f"has {len(scores)} values for {len(tokens)} sequences", (*path, "scores"))


def _check_messages(conversations: Any, path: Path) -> None:
    for row, conversation in enumerate(_array(conversations, path)):
        for position, message in enumerate(_array(conversation, (*path, row))):
            place = (*path, row, position)
            _check_object(message, place)
            for key in ("role", "content"):
                if key not in message:
                    raise InvalidField(f"a message without {key}", place)


def _check_objects(items: Any, path: Path) -> None:
    for position, item in enumerate(_array(items, path)):
        _check_object(item, (*path, position))


def _check_object(value: Any, path: Path) -> None:
    if not isinstance(value, OBJECTS):
        raise InvalidField(f"should be an object, not {described(value)}", path)


def _array(value: Any, path: Path) -> Any:
    if not isinstance(value, ARRAYS):
        raise InvalidField(f"should be an array, not {described(value)}", path)
    return value


_DETAIL_CHECKS: dict[str, Callable[[Any, Path], None]] = {
    "messages": _check_messages,
    "generation_params": _check_object,
    "overrides": _check_objects,
    "group_overrides": _check_object,
}


_DETAILS_TEMPLATE = b"{%b}" % b",".join(b'"%b":%%b' % name.encode() for name in DETAIL_FIELDS)


def _details(fields: GroupFields, environment: int | None) -> bytes:
    """The fields that are not columns as one JSON object, null where absent."""
    texts = dict.fromkeys(DETAIL_FIELDS, b"null")
    for name in DETAIL_FIELDS:
        if name in fields.values:
            texts[name] = fields.texts.get(name) or minified(fields.values[name])
    texts["env_id"] = b"null" if environment is None else b"%d" % environment
    return _DETAILS_TEMPLATE % tuple(texts.values())
