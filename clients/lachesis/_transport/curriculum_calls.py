"""The requests about a curriculum, without I/O."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import quote

from lachesis._transport.bodies import checked
from lachesis._transport.files import FileBody, FileSink
from lachesis._transport.protocol import (
    JSON,
    REQUEST_BYTES,
    Call,
    json_body,
    model_reader,
    path_of,
    read_body,
    read_nothing,
)
from lachesis.errors import InvalidField
from lachesis.wire import curricula
from lachesis.wire import curriculum_items as wire
from lachesis.wire.blob import Buffer
from lachesis.wire.curriculum_state import SavedItemLine

Registered: TypeAlias = str | Mapping[str, Any] | wire.NewItem
"""An item to register: its key, its fields, or a `NewItem`."""

MOST_ITEMS_SENT = 20_000
"""Maximum number of items in one request."""


@dataclass(frozen=True, slots=True)
class CurriculumCalls:
    """The requests about one curriculum of a run, by what they do."""

    run: str
    name: str

    def set_up(self, settings: curricula.CurriculumSettings) -> Call[curricula.CurriculumInfo]:
        """Build the request that creates it, unless it exists."""
        read = model_reader(curricula.CurriculumInfo)
        return Call("PUT", self._path(), read, {"if_absent": "true"}, **json_body(settings))

    def change(self, change: curricula.CurriculumChange) -> Call[curricula.CurriculumInfo]:
        return Call("PATCH", self._path(), model_reader(curricula.CurriculumInfo), **json_body(change))

    def info(self) -> Call[curricula.CurriculumInfo]:
        return Call("GET", self._path(), model_reader(curricula.CurriculumInfo))

    def delete(self) -> Call[None]:
        return Call("DELETE", self._path(), read_nothing)

    def register(self, lines: Sequence[bytes]) -> Call[wire.ItemsRegistered]:
        """Build the request that registers items, which are JSON already."""
        body = b'{"items":[' + b",".join(lines) + b"]}"
        read = model_reader(wire.ItemsRegistered)
        return Call("POST", self._path("items"), read, body=body, content_type=JSON)

    def page(self, query: Mapping[str, str]) -> Call[wire.Items]:
        return Call("GET", self._path("items"), model_reader(wire.Items), query)

    def item(self, key: str) -> Call[wire.ItemDetails]:
        return Call("GET", self._item(key), model_reader(wire.ItemDetails))

    def change_item(self, key: str, change: wire.ItemChange) -> Call[wire.ItemDetails]:
        return Call("PATCH", self._item(key), model_reader(wire.ItemDetails), **json_body(change))

    def delete_item(self, key: str) -> Call[None]:
        return Call("DELETE", self._item(key), read_nothing)

    def observe(self, observations: wire.Observations) -> Call[wire.Observed]:
        """Build the request with observations; it has a ``request_id``."""
        return Call("POST", self._path("observations"), model_reader(wire.Observed), **json_body(observations))

    def sample(self, asked: wire.SampleItems) -> Call[wire.SampledItems]:
        """Build the request for items, which has a ``request_id``, or for bins."""
        return Call("POST", self._path("samples"), model_reader(wire.SampledItems), **json_body(asked))

    def release(self, sample: str, items: wire.ReleaseItems) -> Call[wire.ItemsReleased]:
        path = self._path("samples", sample, "release")
        return Call("POST", path, model_reader(wire.ItemsReleased), **json_body(items))

    def metrics(self, query: Mapping[str, str]) -> Call[curricula.CurriculumMetrics]:
        return Call("GET", self._path("metrics"), model_reader(curricula.CurriculumMetrics), query)

    def what_if(self, asked: wire.WhatIf) -> Call[wire.Comparison]:
        return Call("POST", self._path("what-if"), model_reader(wire.Comparison), **json_body(asked))

    def state(self) -> Call[Buffer]:
        return Call("GET", self._path("state"), read_body, accept=curricula.JSON_LINES)

    def save_state(self, sink: FileSink) -> Call[None]:
        return Call("GET", self._path("state"), read_nothing, accept=curricula.JSON_LINES, sink=sink)

    def load_state(self, state: Buffer | FileBody, content_type: str) -> Call[curricula.StateLoaded]:
        read = model_reader(curricula.StateLoaded)
        return Call("PUT", self._path("state"), read, body=state, content_type=content_type)

    def _item(self, key: str) -> str:
        key = checked(SavedItemLine, key=key).key  # a stored item may have a key that no new one has
        # HTTP software normalizes paths: it would read a key of dots as a folder.
        return self._path("items") + "/" + (quote(key, safe="") if key.strip(".") else key.replace(".", "%2E"))

    def _path(self, *parts: str) -> str:
        return path_of(self.run, "curricula", self.name, *parts)


def slices(items: Iterable[Registered]) -> Iterator[list[bytes]]:
    """Cut items into slices of one request each, as JSON. Items are read as they are needed.

    Raises:
        InvalidField: An item is wrong; or ``items`` is a single one, whose letters or fields could be iterated over.
    """
    if isinstance(items, str | Mapping):
        raise InvalidField(f"should be several items, not one {type(items).__name__}", ("items",))
    lines: list[bytes] = []
    size = 0
    for position, item in enumerate(items):
        try:
            line = _line(item)
        except InvalidField as error:
            raise InvalidField(error.message, ("items", position, *error.location)) from None
        if lines and (len(lines) == MOST_ITEMS_SENT or size + len(line) > REQUEST_BYTES):
            yield lines
            lines, size = [], 0
        lines.append(line)
        size += len(line) + 1
    if lines:
        yield lines


def _line(item: Registered) -> bytes:
    if isinstance(item, str):
        item = checked(wire.NewItem, key=item)
    elif isinstance(item, Mapping):
        item = checked(wire.NewItem, **item)
    elif not isinstance(item, wire.NewItem):
        raise InvalidField(f"should be a key, a NewItem or its fields, not {type(item).__name__}", ())
    return item.model_dump_json(exclude_unset=True).encode()
