"""Read a dataset in the layout that its files show. No layout is tried in turn."""

from collections.abc import Callable
from pathlib import Path

from app.datasets import jsonl, parquet, safetensors
from app.datasets.episodes import DatasetFacts, Episodes, Progress, Slice, WantedColumns, joined
from app.datasets.files import Folder, located
from app.datasets.lerobot import INFO, read_lerobot
from lachesis.wire.errors import InvalidDataset

_LAYOUTS = "a LeRobot dataset (meta/info.json), or .jsonl, .parquet or .safetensors files"


def read_dataset(
    path: Path, wanted: WantedColumns, *, within: Path | None = None, progress: Progress = lambda _done, _total: None
) -> Episodes:
    """Read the lengths and ids of a dataset's episodes: a LeRobot folder, a table, a folder of tables or safetensors.

    Args:
        path: A folder or a file; relative to ``within`` if that is given.
        wanted: Which columns to read.
        within: A folder without links in its path; nothing outside of it is read. None if links may lead anywhere, as
            they do in download caches.
        progress: Called in the calling thread as files are read.

    Raises:
        DatasetNotFound: There is nothing at the path, or the path is not in ``within``.
        InvalidDataset: It has no known layout, or a file is broken. The message names the file and the place.
    """
    folder, file = located(path, within)
    if file is None and folder.holds(INFO):
        return read_lerobot(folder, wanted, progress)
    files = _files(folder) if file is None else [file]
    kind = next((kind for kind in _TABLES if files[0].endswith(kind[0])), None)
    if kind is None:
        raise InvalidDataset(f"{folder.called(files[0])} is not a supported file; use {_LAYOUTS}")
    _, name, read = kind
    parts = read(folder, files, wanted, progress)
    ids, whole = joined(str(path), parts)
    return Episodes(ids, whole.lengths, whole.costs, DatasetFacts(name, unit="steps", files=len(files)))


def _files(folder: Folder) -> list[str]:
    """Return the files of a folder that hold episodes or their lengths. All must be of one kind."""
    kinds = [files for suffixes, _, _ in _TABLES if (files := folder.find(suffixes))]
    if not kinds:
        raise InvalidDataset(f"{folder.name} holds no supported file; use {_LAYOUTS}")
    if len(kinds) > 1:
        named = " and ".join(folder.called(files[0]) for files in kinds)
        raise InvalidDataset(
            f"{folder.name} holds files of several kinds: {named}; name one of them, or a folder of one kind"
        )
    return kinds[0]


def _read_lines(folder: Folder, files: list[str], wanted: WantedColumns, progress: Progress) -> list[Slice]:
    if len(files) == 1:
        return jsonl.read_jsonl(folder, files[0], wanted, progress)
    parts = []
    for done, file in enumerate(files, 1):
        parts += jsonl.read_jsonl(folder, file, wanted, lambda _done, _total: None)
        progress(done, len(files))
    return parts


_TABLES: tuple[
    tuple[tuple[str, ...], str, Callable[[Folder, list[str], WantedColumns, Progress], list[Slice]]], ...
] = (
    (jsonl.SUFFIXES, "JSON lines", _read_lines),
    (parquet.SUFFIXES, "Parquet", parquet.read_parquet),
    (safetensors.SUFFIXES, "safetensors", safetensors.read_safetensors),
)
