"""The details of a group: the fields that are not columns, such as messages. They are kept as JSON text."""

from collections.abc import Callable, Mapping
from typing import Any

from app.api.codec.group_fields import GroupFields
from app.api.codec.json_reader import Path, as_array, as_object, members, minified, parse_json
from lachesis.wire.columns import DETAIL_FIELDS
from lachesis.wire.errors import InvalidField

NATIVE_DETAILS = frozenset(DETAIL_FIELDS) - {"env_id"}
"""The details of the native API. There a group's environment is one of its keys."""

_TEMPLATE = b"{%b}" % b",".join(b'"%b":%%b' % name.encode() for name in DETAIL_FIELDS)


def details_text(values: Mapping[str, Any], texts: Mapping[str, bytes], environment: int | None) -> bytes:
    """Return the details as one JSON object, null where absent.

    Args:
        values: JSON values by name. Only `DETAIL_FIELDS` are used.
        texts: Their minified text, if it is known.
        environment: The environment's id.
    """
    fields = dict.fromkeys(DETAIL_FIELDS, b"null")
    for name in DETAIL_FIELDS:
        if name in values:
            fields[name] = texts.get(name) or minified(values[name])
    fields["env_id"] = b"null" if environment is None else b"%d" % environment
    return _TEMPLATE % tuple(fields.values())


def completed(details: bytes, environment: int | None) -> bytes:
    """Return checked details with every field, as `details_text` writes them."""
    return details_text(dict(members(parse_json(details), ())), {}, environment)


def present(details: bytes) -> bytes:
    """Return the details of a group of the native API as one JSON object, without nulls."""
    there = {
        name: value for name, value in members(parse_json(details), ()) if name in NATIVE_DETAILS and value is not None
    }
    return b"{%b}" % b",".join(b'"%b":%b' % (name.encode(), minified(value)) for name, value in there.items())


def check_details(fields: GroupFields) -> None:
    """Check the details.

    Raises:
        InvalidField: A detail has the wrong shape.
    """
    for name, check in _DETAIL_CHECKS.items():
        if name in fields.values:
            check(fields.values[name], (*fields.path, name))


def _check_messages(conversations: Any, path: Path) -> None:
    for row, conversation in enumerate(as_array(conversations, path)):
        for position, message in enumerate(as_array(conversation, (*path, row))):
            place = (*path, row, position)
            as_object(message, place)
            for key in ("role", "content"):
                if key not in message:
                    raise InvalidField(f"lacks {key}", place)


def _check_objects(items: Any, path: Path) -> None:
    for position, item in enumerate(as_array(items, path)):
        as_object(item, (*path, position))


_DETAIL_CHECKS: dict[str, Callable[[Any, Path], object]] = {
    "messages": _check_messages,
    "generation_params": as_object,
    "overrides": _check_objects,
    "group_overrides": as_object,
}
