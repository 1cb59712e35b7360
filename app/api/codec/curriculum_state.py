"""Read and write a curriculum's state as lines of JSON, some lines at a time."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import orjson
from starlette.requests import Request

from app.api.codec.json_reader import check_structure, minified, parse_in_python
from app.api.deps import check_credentials, parse
from app.api.http.bodies.body import longest_pause_s
from app.api.http.connection.client_connection import has_arrived
from app.api.http.rate_limits import count_body
from app.core.curriculum.atropos_state import load_atropos
from app.core.curriculum.estimates import Estimate
from app.core.curriculum.state import CurriculumHeader, estimate_dict, load_estimate_dict, load_state_dict, state_dict
from app.core.curriculum.strategies.bandit import known_arms
from app.services.curriculum.states import CurriculumDocument
from app.store.curriculum.state import SavedItem
from lachesis.wire.curricula import MAX_CATEGORIES, MAX_CATEGORY
from lachesis.wire.curriculum_items import MAX_KEY, MAX_METADATA_BYTES
from lachesis.wire.curriculum_state import LastLine, SavedItemLine
from lachesis.wire.errors import BodyTooLarge, InvalidField, MalformedBody, RequestTimeout, UnsupportedEncoding

T = TypeVar("T")

_CATEGORIES = "categories"
_LINES_AT_ONCE = 500
_LONGEST_LINE = 64 * 1024
_LONGEST_HEADER = 2 * 1024 * 1024  # it names all categories, and the arms of each; JSON may escape each character


async def lines_of(document: CurriculumDocument) -> AsyncIterator[bytes]:
    """Yield a document, some lines at a time."""
    yield orjson.dumps(state_dict(document.header) | {_CATEGORIES: document.categories}) + b"\n"
    count = 0
    async for items in document.items:
        count += len(items)
        yield b"".join(map(_line_of, items))
    yield orjson.dumps({"items": count}) + b"\n"


def _line_of(item: SavedItem) -> bytes:
    values: dict[str, Any] = {"key": item.key, "estimate": estimate_dict(item.estimate)}
    if item.category:
        values["category"] = item.category
    if item.metadata:
        values["metadata"] = orjson.Fragment(item.metadata)
    if item.history:
        values["history"] = item.history
    if item.in_flight_ms:
        values["in_flight_ms"] = item.in_flight_ms
    return orjson.dumps(values) + b"\n"


async def read_lines(request: Request, timeout_s: float) -> CurriculumDocument:
    """Read a document's header. Its items are read when they are used.

    Args:
        request: A request whose body has not been read.
        timeout_s: The longest pause, and how far the body may fall behind 16 KiB/s. Only waiting for data counts.

    Raises:
        MalformedBody: A line is not JSON, or the document ends early.
        InvalidField: A value is wrong. Its place begins with ``line`` and the number of the line, from 1.
        BodyTooLarge: A line is too long.
        RequestTimeout: It stopped arriving, or came too slowly.
        RateLimited: Its size was not counted before, and a limit of bytes is reached.
        UnsupportedEncoding: The body is compressed.
        Unauthorized: The credentials ended while the body arrived.
    """
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise UnsupportedEncoding("send the state without compression")
    lines = _lines(request, timeout_s)
    first = await anext(lines, None)
    if first is None:
        raise MalformedBody("the document is empty")
    header, categories = _at(1, lambda: _header(first[0]))
    return CurriculumDocument(header, categories, _items(lines, first[1:], frozenset(categories)))


def read_atropos(body: bytes) -> CurriculumDocument:
    """Read the state of Atropos's CurriculumScheduler.

    Raises:
        MalformedBody, InvalidField: It is not such a state.
    """
    value = parse_in_python(body)
    check_structure(value)
    if not isinstance(value, dict):
        raise MalformedBody("expected the state of a CurriculumScheduler, a JSON object")
    header, estimates = load_atropos(value)
    saved = [SavedItem(_key(key), "", "", estimate, _history(estimate), 0) for key, estimate in estimates.items()]

    async def items() -> AsyncIterator[Sequence[SavedItem]]:
        yield saved

    return CurriculumDocument(header, (), items())


def _key(key: str) -> str:
    if not 1 <= len(key) <= MAX_KEY:
        raise InvalidField("is empty or too long for the key of an item", ("item_scores", key[:80]))
    return key


def _history(estimate: Estimate) -> tuple[float, ...]:
    return (estimate.last,) if estimate.count else ()


def _header(line: bytes) -> tuple[CurriculumHeader, list[str]]:
    value = parse_in_python(line)
    check_structure(value)
    if not isinstance(value, dict):
        raise MalformedBody("the header is not an object")
    categories = value.pop(_CATEGORIES, [])
    if not isinstance(categories, list) or not all(
        isinstance(name, str) and 1 <= len(name) <= MAX_CATEGORY for name in categories
    ):
        raise InvalidField(f"should be a list of names of 1 to {MAX_CATEGORY} characters", (_CATEGORIES,))
    if len(categories) > MAX_CATEGORIES:
        raise InvalidField(f"has {len(categories)} names, of at most {MAX_CATEGORIES}", (_CATEGORIES,))
    for name, times in Counter(categories).items():
        if times > 1:
            raise InvalidField(f"has {name!r} {times} times", (_CATEGORIES,))
    header = load_state_dict(value)
    for arm in sorted(header.arms.keys() - known_arms(categories)):
        raise InvalidField("is neither a bin nor one of the categories", ("arms", arm))
    return header, categories


async def _items(
    lines: AsyncIterator[list[bytes]], first: list[bytes], categories: frozenset[str]
) -> AsyncIterator[Sequence[SavedItem]]:
    number, read, ended = 1, 0, False
    part: list[bytes] | None = first
    while part is not None:
        if ended and part:
            raise MalformedBody(f"line {number + 1}: there is another line after the last one")
        last = b""
        if part and part[-1].startswith(b'{"items"'):
            *part, last = part
        ended = ended or bool(last)
        items = await asyncio.to_thread(_parsed, part, number + 1, categories)
        number, read = number + len(part), read + len(part)
        if items:
            yield items
        if last:
            declared = _at(number + 1, partial(parse, LastLine, last)).items
            if declared != read:
                raise MalformedBody(f"line {number + 1}: declares {declared} items; the document has {read}")
            number += 1
        part = await anext(lines, None)
    if not ended:
        raise MalformedBody(
            f"the document is cut off after line {number}: the last line with the number of items is missing"
        )


def _parsed(lines: Sequence[bytes], first: int, categories: frozenset[str]) -> list[SavedItem]:
    return [_at(first + n, partial(_saved, line, categories)) for n, line in enumerate(lines)]


def _saved(line: bytes, categories: frozenset[str]) -> SavedItem:
    item = parse(SavedItemLine, line)
    if item.category is not None and item.category not in categories:
        raise InvalidField(f"{item.category!r} is missing in the header's categories", ("category",))
    text = b"" if item.metadata is None else minified(item.metadata)
    if len(text) > MAX_METADATA_BYTES:
        raise InvalidField(f"{len(text)} bytes of JSON; the limit is {MAX_METADATA_BYTES}", ("metadata",))
    estimate = _below("estimate", lambda: load_estimate_dict(item.estimate))
    history = tuple(item.history)
    return SavedItem(item.key, item.category or "", text.decode(), estimate, history, item.in_flight_ms)


def _at(number: int, read: Callable[[], T]) -> T:
    """Read a line. Errors name its number."""
    try:
        return _below("line", read, number)
    except MalformedBody as error:
        raise MalformedBody(f"line {number}: {error.detail}") from None


def _below(name: str, read: Callable[[], T], *place: int) -> T:
    try:
        return read()
    except InvalidField as error:
        raise InvalidField(error.message, (name, *place, *error.location)) from None


async def _lines(request: Request, timeout_s: float) -> AsyncIterator[list[bytes]]:
    """Yield the lines of a body, some at a time. The last ones come only if the credentials are still valid."""
    came_at_once = has_arrived(request.scope)
    rest, lines, longest = b"", list[bytes](), _LONGEST_HEADER
    stream, clock = request.stream(), asyncio.get_running_loop().time
    sent_bytes, waited_s = 0, 0.0
    while True:
        began = clock()
        try:
            async with asyncio.timeout(longest_pause_s(timeout_s, sent_bytes, waited_s)):
                piece = await anext(stream, None)
        except TimeoutError:
            raise RequestTimeout(
                f"the document stopped, or came too slowly, after {sent_bytes} bytes (LACHESIS_BODY_TIMEOUT_S)"
            ) from None
        if piece is None:
            break
        sent_bytes, waited_s = sent_bytes + len(piece), waited_s + clock() - began
        *whole, rest = (rest + piece).split(b"\n")
        for line in (*whole, rest):
            if len(line) > longest:
                raise BodyTooLarge(f"a line of more than {longest} bytes")
            longest = _LONGEST_LINE if whole else longest
        lines += whole
        if len(lines) >= _LINES_AT_ONCE:
            yield lines
            lines = []
    if not came_at_once:
        await check_credentials(request.scope)
    await count_body(request.scope, sent_bytes)
    lines += [rest] if rest else []
    if lines:
        yield lines
