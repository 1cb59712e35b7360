"""Show groups. Their senders chose the texts in them: nothing of these reaches the terminal unescaped."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Group, RenderableType

from lachesis._cli.output import Columns, cut, line, row, span, table
from lachesis.wire.compact import MASKED
from lachesis.wire.groups import GroupColumns, GroupContent, GroupHistory, ListedGroup
from lachesis.wire.printable import printable

_WIDE = 130  # columns that the long table takes
_SHORT_NAME, _LONG_NAME = 11, 32
_MOST_LINES = 200  # of a text
_MOST_CHARACTERS = 2_000  # of a line


def listed(found: Sequence[ListedGroup], width: int) -> RenderableType:
    """Show a list of groups, with the columns that ``width`` has room for."""
    if not found:
        return line("no group matches")
    columns, left = (_LONG, 5) if width >= _WIDE else (_SHORT, 3)
    return table(columns, [row(columns, one) for one in found], left=left)


def _name(one: GroupColumns, most: int) -> str:
    name = one.environment_name
    known = "none" if one.environment is None else str(one.environment)
    return known if name is None else cut(printable(name), most)


def _score(one: ListedGroup) -> str:
    return "" if one.mean_score is None else f"{one.mean_score:.3g}"


def _number(number: int | None) -> str:
    return "" if number is None else str(number)


_FIRST: Columns[ListedGroup] = {"group": lambda one: one.id, "state": lambda one: one.state}
_MIDDLE: Columns[ListedGroup] = {
    "size": lambda one: str(one.size),
    "score": _score,
    "age": lambda one: span(one.received_age_s),
}
_SHORT: Columns[ListedGroup] = {**_FIRST, "environment": lambda one: _name(one, _SHORT_NAME), **_MIDDLE}
_LONG: Columns[ListedGroup] = {
    **_FIRST,
    "environment": lambda one: _name(one, _LONG_NAME),
    "item": lambda one: cut(printable(one.item or ""), _SHORT_NAME),
    "reason": lambda one: cut(printable(one.reason or ""), _SHORT_NAME),
    **_MIDDLE,
    "tokens": lambda one: _number(one.tokens),
    "version": lambda one: _number(one.policy_version),
    "stale": lambda one: _number(one.staleness),
    "step": lambda one: _number(one.step),
}


def history(found: GroupHistory) -> RenderableType:
    """Show where a group is, and what happened to it."""
    environment = _name(found, _LONG_NAME)
    version = "unknown" if found.policy_version is None else found.policy_version
    lines = [
        f"group {found.id}: {found.state}",
        f"environment {environment}, {found.size} sequences, {found.payload_bytes:,} bytes, policy version {version}",
        f"received {span(found.received_age_s)} ago",
    ]
    if found.filtered_by is not None:
        lines.append(f"the filter {found.filtered_by} matched it and kept it with a weight")
    if found.batch is not None:
        lines.append(f"batch {found.batch}" + ("" if found.step is None else f" of step {found.step}"))
    if found.ended_age_s is not None:
        reason = f", because: {found.reason}" if found.reason else ""
        lines.append(f"ended {span(found.ended_age_s)} ago{reason}")
    if found.annotations:
        lines.append(f"annotations: {', '.join(found.annotations)}")
    return Group(*map(line, lines))


def content(found: GroupContent) -> RenderableType:
    """Show a sequence of a group: its score, its first tokens, its messages, and facts of the group."""
    return Group(*map(line, _content_lines(found)))


def _content_lines(found: GroupContent) -> Iterator[str]:
    lengths = set(found.lengths)
    yield f"sequences have {lengths.pop() if len(lengths) == 1 else cut(', '.join(map(str, found.lengths)))} tokens"
    number, (tokens,), (masks,) = found.sequence, found.tokens, found.masks
    length = found.lengths[number or 0]
    trained = sum(mask != MASKED for mask in masks)
    yield f"sequence {number}: score {found.scores[0]:g}; {trained} of the first {len(tokens)} tokens are trained on"
    yield f"tokens: {' '.join(map(str, tokens))}" + (f" … {length - len(tokens)} more" if length > len(tokens) else "")
    for message in (found.messages or [[]])[0]:
        yield from _text_lines(f"{message.get('role')}: ", message.get("content"))
    for name, value in (("item", found.item), ("metadata", found.metadata), ("cost", found.cost)):
        if value is not None:
            yield from _text_lines(f"{name}: ", value)


def _text_lines(start: str, value: Any) -> Iterator[str]:
    """Yield the lines of a text, or a value as JSON; very long ones are cut."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    lines = text[: _MOST_LINES * _MOST_CHARACTERS].split("\n")
    for place, part in enumerate(lines[:_MOST_LINES]):
        yield cut((start if place == 0 else " " * 4) + part, _MOST_CHARACTERS)
    if len(lines) > _MOST_LINES or len(text) > _MOST_LINES * _MOST_CHARACTERS:
        yield f"    … {len(text):,} characters in all (--json has them)"
