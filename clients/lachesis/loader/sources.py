"""Sources of samples: keys, and a function that loads the sample of a key."""

import json
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import NonNegativeInt, TypeAdapter, ValidationError
from typing_extensions import Self

K = TypeVar("K")

Payload = Any
"""A safetensors blob as bytes, or arrays that are nested already (`lachesis.loader.nested`)."""

FetchAsync = Callable[[K], Awaitable[Payload]]

_SUFFIX = ".safetensors"


@dataclass(frozen=True, slots=True)
class Source(Generic[K]):
    """Samples that a function loads.

    Attributes:
        keys: One key for each sample. The ``repr`` of a key must identify it: states of loaders are compared by it.
        fetch: Loads the sample of a key. Threads call it, several at a time. It cannot be interrupted, so set a
            timeout where it waits.
    """

    keys: Sequence[K]
    fetch: Callable[[K], Payload]


@dataclass(frozen=True, slots=True)
class AsyncSource(Generic[K]):
    """Samples that a coroutine loads.

    Attributes:
        keys: One key for each sample, as for `Source`.
        opening: Makes an asynchronous context manager, which yields the coroutine function that loads a sample. The
            loader enters it before the first load and leaves it after the last one. Open in it what loads share, such
            as an ``httpx.AsyncClient``.
    """

    keys: Sequence[K]
    opening: Callable[[], AbstractAsyncContextManager[FetchAsync[K]]]

    @classmethod
    def of(cls, keys: Sequence[K], fetch: FetchAsync[K]) -> Self:
        """Make a source of a coroutine function that needs no shared resource."""
        return cls(keys, partial(_opened, fetch))


@dataclass(frozen=True, slots=True)
class Episode:
    """A line of a shard manifest.

    Attributes:
        episode: Its id, or its file relative to the dataset's folder.
        length: Its frames or tokens.
        cost: Its estimated cost, in the unit of the plan.
    """

    episode: str | int
    length: NonNegativeInt
    cost: float


def _opened(fetch: FetchAsync[K]) -> AbstractAsyncContextManager[FetchAsync[K]]:
    return nullcontext(fetch)


_EPISODE = TypeAdapter(Episode)


def read_manifest(manifest: Path | str) -> list[Episode]:
    """Read the shard of one rank, as ``python -m app shards plan`` writes it: a JSON object in each line.

    Raises:
        ValueError: A line is not a valid episode. The message says which line, and what is wrong.
        OSError: The file cannot be read.
    """
    with Path(manifest).open("rb") as lines:
        return [_read_episode(line, f"{manifest}, line {number}") for number, line in enumerate(lines, start=1)]


def episode_files(manifest: Path | str, folder: Path | str) -> Source[Episode]:
    """Make a source of a shard manifest and the folder of its safetensors files, one for each episode.

    Args:
        manifest: See `read_manifest`.
        folder: The folder that the episodes' names are relative to. Names may leave out ``.safetensors``.

    Raises:
        ValueError: The manifest is broken, or names a file outside of the folder.
    """
    root = Path(folder)
    episodes = read_manifest(manifest)
    for episode in episodes:
        name = Path(str(episode.episode))
        if name.is_absolute() or ".." in name.parts:
            raise ValueError(f"{manifest}: {json.dumps(episode.episode)} is not a file below {root}")
    return Source(episodes, partial(_read_file, root))


def _read_file(root: Path, episode: Episode) -> bytes:
    name = str(episode.episode)
    return (root / (name if name.endswith(_SUFFIX) else name + _SUFFIX)).read_bytes()


def _read_episode(line: bytes, place: str) -> Episode:
    try:
        return _EPISODE.validate_json(line)
    except ValidationError as error:
        wrong = error.errors(include_url=False)[0]
        field = ".".join(map(str, wrong["loc"]))
        raise ValueError(f"{place}: {field and field + ': '}{wrong['msg']}") from None
