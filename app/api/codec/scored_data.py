"""Read the JSON of scored groups as columns: strict about shape, lenient about the spelling of numbers.

The structure of the whole body is checked first, then the values, group by group in the order of the fields.
So an error does not depend on the parser, nor on the shortcut of `app.api.codec.group_fields`. A property test
compares the three ways. Only a list that is too long is refused before its elements are read.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.api.codec.group_details import check_details, details_text
from app.api.codec.group_fields import GroupFields, holds_only, read_fields, read_fields_by_shortcut
from app.api.codec.json_columns import read_column, read_environment
from app.api.codec.json_reader import ARRAYS, OBJECTS, PROXIES, Path, check_structure, described, parse_json
from app.core.numeric.short_sums import mean
from app.core.ranks.costs import weigh
from app.store.groups.encoded_group import EncodedGroup
from lachesis.wire.columns import COLUMNS, Column, Ragged, check_same_rows, pack
from lachesis.wire.errors import InvalidField, MalformedBody
from lachesis.wire.groups import MAX_GROUPS
from lachesis.wire.limits import MAX_BATCH_SIZE

Parse = Callable[[bytes], Any]
GroupsOf = Callable[[Any], list[tuple[Path, Any]]]


@dataclass(frozen=True, slots=True)
class CheckedGroup:
    """A checked group, between JSON and blob."""

    fields: GroupFields
    columns: dict[str, Ragged]
    environment: int | None
    details: bytes


def decode_group(body: bytes, *, parse: Parse = parse_json, shortcut: bool = True) -> EncodedGroup:
    """Decode the JSON of one group (the Atropos ``ScoredData``).

    Args:
        body: The JSON text, UTF-8.
        parse: The parser. Tests choose another one.
        shortcut: Whether plain columns may be read without checking each value. Tests turn it off.

    Raises:
        MalformedBody: It is not a JSON object, or one that readers understand differently.
        InvalidField: A value is wrong. The location is a path in the group: ``("advantages", 3, 17)``.
    """
    (group,) = checked_groups(body, _only, parse=parse, shortcut=shortcut)
    return _packed(group)


def decode_groups(body: bytes, *, parse: Parse = parse_json, shortcut: bool = True) -> list[EncodedGroup]:
    """Decode a JSON array of groups, like `decode_group`. Locations start with the group's position in the array."""
    return [_packed(group) for group in checked_groups(body, _elements, parse=parse, shortcut=shortcut)]


def checked_groups(
    body: bytes,
    groups_of: GroupsOf,
    columns: Sequence[Column] = COLUMNS,
    *,
    parse: Parse = parse_json,
    shortcut: bool = True,
) -> list[CheckedGroup]:
    """Check the groups of a body. The parsed document takes many times the body's size, and is freed at the end.

    Args:
        body: The JSON text, UTF-8.
        groups_of: Returns the groups of the document with their paths, or raises for another document.
        columns: The columns that are read.
        parse: The parser.
        shortcut: Whether plain columns may be read without checking each value.
    """
    document = parse(body)
    return [_checked(fields, columns) for fields in _read(document, groups_of(document), body, shortcut)]


def _only(document: Any) -> list[tuple[Path, Any]]:
    if not isinstance(document, OBJECTS):
        raise MalformedBody(f"expected one group, a JSON object, not {described(document)}")
    return [((), document)]


def _elements(document: Any) -> list[tuple[Path, Any]]:
    if not isinstance(document, ARRAYS):
        raise MalformedBody(f"expected an array of groups, not {described(document)}")
    return elements_of(document, ())


def elements_of(array: Any, path: Path) -> list[tuple[Path, Any]]:
    """Return the groups of a JSON array, with their paths.

    Raises:
        InvalidField: There are too many, or one is not an object.
    """
    if len(array) > MAX_GROUPS:  # before reading them: 200 MB of "[]," took 35 s
        raise InvalidField(f"more than {MAX_GROUPS} groups in one request", (*path, MAX_GROUPS))
    groups: list[tuple[Path, Any]] = []
    for position, group in enumerate(array):
        if not isinstance(group, OBJECTS):
            check_structure(array, path)  # goes first: `MalformedBody` before `InvalidField`
            raise InvalidField(f"should be a group, a JSON object, not {described(group)}", (*path, position))
        groups.append(((*path, position), group))
    return groups


def _read(document: Any, groups: Sequence[tuple[Path, Any]], body: bytes, shortcut: bool) -> list[GroupFields]:
    """Return the fields of the groups of a document, with its structure checked."""
    if shortcut and isinstance(document, PROXIES):
        fields = [read_fields_by_shortcut(group, path) for path, group in groups]
        outside = 1 if groups and groups[0][0] else 0  # the array that the groups are in
        if holds_only(body, outside + sum(one.arrays for one in fields)):
            return fields
    check_structure(document)
    return [read_fields(group, path) for path, group in groups]


def _checked(fields: GroupFields, known: Sequence[Column]) -> CheckedGroup:
    columns = _columns(fields, known)
    check_rows(columns, fields.path)
    check_details(fields)
    environment = None
    if "env_id" in fields.values:
        environment = read_environment(fields.values["env_id"], (*fields.path, "env_id"))
    return CheckedGroup(fields, columns, environment, details_text(fields.values, fields.texts, environment))


def _packed(group: CheckedGroup) -> EncodedGroup:
    (lengths,) = group.columns["tokens"].lengths
    payload = pack(group.columns, group.details)
    rewards = group.columns["scores"].values
    return EncodedGroup(
        len(lengths),
        group.environment,
        payload,
        weight=weigh(lengths),
        lengths=lengths,
        rewards=rewards,
        reward=mean(rewards),
    )


def _columns(fields: GroupFields, known: Sequence[Column]) -> dict[str, Ragged]:
    columns = {}
    for column in known:
        path = (*fields.path, column.name)
        if column.name in fields.plain:
            columns[column.name] = fields.plain[column.name]
        elif column.name in fields.values:
            columns[column.name] = read_column(column, fields.values[column.name], path)
        elif column.required:
            raise InvalidField("is required", path)
    return columns


def check_rows(columns: Mapping[str, Ragged], path: Path) -> None:
    """Check the rows of a group (`check_same_rows`), and that no column has very many.

    Readers of JSON make an object of each row, even of an empty one.

    Raises:
        InvalidField: Rows differ, or there are too many.
    """
    check_same_rows(columns, path)
    for name, column in columns.items():
        for level, rows in enumerate(column.lengths):
            most = MAX_BATCH_SIZE + level * len(columns["tokens"].values)
            if len(rows) > most:
                raise InvalidField(_too_many(len(rows), most, level), (*path, name))


def _too_many(rows: int, most: int, level: int) -> str:
    if level:
        return f"has {rows} positions; the limit is {most}, one for each token and {MAX_BATCH_SIZE} more"
    return f"has {rows} rows; the limit is {most}, the sequences of the largest batch"
