"""Read a folder of safetensors files, one per episode. Only headers are read, no tensors."""

import os
from functools import partial

import numpy as np

from app.datasets.episodes import Progress, Slice, WantedColumns, check_costs, check_lengths, shown
from app.datasets.files import Folder, in_parallel, pieces
from lachesis.wire.blob import LENGTH_BYTES, MAX_HEADER_BYTES, DamagedBlob, Header, parse_header
from lachesis.wire.errors import InvalidDataset

SUFFIXES = (".safetensors",)

_AT_A_TIME = 256  # files per task
_MANY = 32_768  # files that processes read faster than threads, although processes take seconds to start
_FIRST_BYTES = 16 * 1024  # enough for most headers in one read


def read_safetensors(folder: Folder, files: list[str], wanted: WantedColumns, progress: Progress) -> list[Slice]:
    """Read the headers of files that hold one episode each. The ids are their paths.

    Raises:
        InvalidDataset: A file is damaged, or lacks the length or the cost of its episode. The message names the file.
    """
    batches = list(pieces(files, _AT_A_TIME))
    read = partial(_part, folder, wanted)
    return in_parallel(read, batches, [*map(len, batches)], progress, processes=len(files) > _MANY)


def _part(folder: Folder, wanted: WantedColumns, files: list[str]) -> Slice:
    lengths, costs = [], []
    for file in files:
        if not _is_utf8(file):
            raise InvalidDataset(f"{folder.called(file)}: its name is not UTF-8, and is the id of its episode")
        with folder.opened(file) as descriptor:
            try:
                header = _header(descriptor)
                lengths.append(_length(header, wanted.length))
                if wanted.cost is not None:
                    costs.append(_cost(header, wanted.cost))
            except DamagedBlob as error:
                raise InvalidDataset(f"{folder.called(file)}: {error}") from None

    def place(position: int) -> str:
        return folder.called(files[position])

    measured, cost = np.array(lengths, np.int64), None
    check_lengths(measured, place, wanted.length or "the length")
    if wanted.cost is not None:
        cost = np.array(costs, np.float64)
        check_costs(cost, place, wanted.cost)
    return Slice(folder.name, measured, ids=files, costs=cost)


def _is_utf8(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _header(descriptor: int) -> Header:
    size = os.fstat(descriptor).st_size
    text = os.pread(descriptor, _FIRST_BYTES, 0)
    length = int.from_bytes(text[:LENGTH_BYTES], "little")
    if len(text) < LENGTH_BYTES or length > min(size - LENGTH_BYTES, MAX_HEADER_BYTES):
        raise DamagedBlob(f"a header of {length} bytes is announced, in a file of {size}")
    if length > len(text) - LENGTH_BYTES:
        text += os.pread(descriptor, length + LENGTH_BYTES - len(text), len(text))
    return parse_header(text[LENGTH_BYTES : LENGTH_BYTES + length], size)


def _length(header: Header, name: str | None) -> int:
    if name is None:
        lengths = {info.shape[:1]: tensor for tensor, info in header.tensors.items()}
        if len(lengths) == 1 and () not in lengths:
            return next(iter(lengths))[0]
        sizes = {tensor: list(info.shape) for tensor, info in header.tensors.items()}
        raise DamagedBlob(
            f"its tensors have different first dimensions: {shown(sizes)}; name the one as long as the episode"
        )
    if name not in header.tensors:
        raise DamagedBlob(f"no tensor {name!r}; there are {shown(list(header.tensors))}")
    if not header.tensors[name].shape:
        raise DamagedBlob(f"tensor {name!r} is a single number, without a length")
    return header.tensors[name].shape[0]


def _cost(header: Header, key: str) -> float:
    if key not in header.metadata:
        raise DamagedBlob(f"no {key!r} in its metadata; there are {shown(list(header.metadata))}")
    try:
        return float(header.metadata[key])
    except ValueError:
        raise DamagedBlob(f"{key} is {shown(header.metadata[key])}, not a number") from None
