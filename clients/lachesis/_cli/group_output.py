"""Show groups. Their senders chose the texts in them: nothing of these reaches the terminal unescaped."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Group, RenderableType

from lachesis._cli.output import cut, line, span, table
from lachesis.wire.compact import MASKED
from lachesis.wire.groups import GroupContent, GroupHistory, ListedGroup
from lachesis.wire.printable import printable

_WIDE = 130  # columns that the long table takes
_NAME, _LONG_NAME = 11, 32
_MOST_LINES = 200  # of a text
_MOST_CHARACTERS = 2_000  # of a line


def listed(found: Sequence[ListedGroup], width: int) -> RenderableType:
    """Show a list of groups, with the columns that ``width`` has room for."""
    if not found:
        return line("no group matches")
    if width < _WIDE:
        header: Sequence[str] = ("group", "state", "environment", "size", "score", "age")
        return table(header, [_row(one) for one in found], left=3)
    header = ("group", "state", "environment", "item", "reason", "size", "score", "age")
    header += ("tokens", "version", "stale", "step")
    return table(header, [_long_row(one) for one in found], left=5)


def _row(one: ListedGroup) -> tuple[str, ...]:
    return (one.id, one.state, _name(one, _NAME), str(one.size), _score(one), span(one.received_age_s))


def _long_row(one: ListedGroup) -> tuple[str, ...]:
    texts = (cut(printable(one.item or ""), _NAME), cut(printable(one.reason or ""), _NAME))
    counts = (one.tokens, one.policy_version, one.staleness, one.step)
    group, state, _, *rest = _row(one)
    numbers = ("" if count is None else str(count) for count in counts)
    return (group, state, _name(one, _LONG_NAME), *texts, *rest, *numbers)


def _name(one: ListedGroup, most: int) -> str:
    name = one.environment_name
    known = "none" if one.environment is None else str(one.environment)
    return known if name is None else cut(printable(name), most)


def _score(one: ListedGroup) -> str:
    return "" if one.mean_score is None else f"{one.mean_score:.3g}"


def history(found: GroupHistory) -> RenderableType:
    """Show where a group is, and what happened to it."""
    environment = "none" if found.environment is None else found.environment
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
