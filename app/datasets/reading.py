"""Which layout a path has, told by what is there and never by trying."""

from collections.abc import Callable
from pathlib import Path

from app.core.errors import InvalidDataset
from app.datasets import jsonl, parquet, safetensors
from app.datasets.episodes import Episodes, Facts, Progress, Slice, Wanted, joined
from app.datasets.files import Folder, located
from app.datasets.lerobot import INFO, read_lerobot

_LAYOUTS = "a LeRobot dataset (meta/info.json), or .jsonl, .parquet or .safetensors files"


def read_dataset(
    path: Path, wanted: Wanted, *, within: Path | None = None, progress: Progress = lambda _done, _total: None
) -> Episodes:
    """Read the lengths and ids of a dataset's episodes: a LeRobot folder, a table, a folder of tables or safetensors.

    Args:
        path: A folder or a file; relative to ``within`` if that is given.
        wanted: Which columns to read.
        within: A folder, with no links in its path, that nothing is read from outside of. None: links may lead
            anywhere, as they do in the caches that datasets are downloaded to.
        progress: Told as files are read, from the calling thread.

    Raises:
        DatasetNotFound: There is nothing at the path, or it is not within ``within``.
        InvalidDataset: It has none of the layouts, or a file of it is broken; the message names the file and the place.
    """
    folder, file = located(path, within)
    if file is None and folder.holds(INFO):
        return read_lerobot(folder, wanted, progress)
    files = _files(folder) if file is None else [file]
    kind = next((kind for kind in _TABLES if files[0].endswith(kind[0])), None)
    if kind is None:
        raise InvalidDataset(f"{folder.called(files[0])} is of no kind that is read here: {_LAYOUTS}")
    _, name, read = kind
    parts = read(folder, files, wanted, progress)
    ids, whole = joined(str(path), parts)
    return Episodes(ids, whole.lengths, whole.costs, Facts(name, unit="steps", files=len(files)))


def _files(folder: Folder) -> list[str]:
    """The files of a folder that are episodes, or lengths of episodes: all of one kind."""
    kinds = [files for suffixes, _, _ in _TABLES if (files := folder.find(suffixes))]
    if not kinds:
        raise InvalidDataset(f"{folder.name} holds nothing that is read here: {_LAYOUTS}")
    if len(kinds) > 1:
        named = " and ".join(folder.called(files[0]) for files in kinds)
        raise InvalidDataset(
            f"{folder.name} holds files of several kinds: {named}; name one of them, or a folder of one kind"
        )
    return kinds[0]


def _read_lines(folder: Folder, files: list[str], wanted: Wanted, progress: Progress) -> list[Slice]:
    if len(files) == 1:
        return jsonl.read_jsonl(folder, files[0], wanted, progress)
    parts = []
    for done, file in enumerate(files, 1):
        parts += jsonl.read_jsonl(folder, file, wanted, lambda _done, _total: None)
        progress(done, len(files))
    return parts


_TABLES: tuple[tuple[tuple[str, ...], str, Callable[[Folder, list[str], Wanted, Progress], list[Slice]]], ...] = (
    (jsonl.SUFFIXES, "JSON lines", _read_lines),
    (parquet.SUFFIXES, "Parquet", parquet.read_parquet),
    (safetensors.SUFFIXES, "safetensors", safetensors.read_safetensors),
)
