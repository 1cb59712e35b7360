"""A directory of exported groups: which groups, in parts that are written once, each with its SHA-256.

DIR/listing.jsonl   the groups of the export, in their order; written first, and never changed
DIR/part-00000.*    groups, in one of `lachesis._cli.formats`
DIR/manifest.json   what was asked, and the parts that are whole; replaced after each part

DIR/.lock           held while a process writes; a killed process leaves it behind, and it blocks nobody then

So an export that was killed continues after its last whole part, and ends with the same files.
"""

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from stat import S_ISREG
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from lachesis._cli.lock import LOCK_FILE
from lachesis.wire.groups import ListedGroup
from lachesis.wire.printable import counted

T = TypeVar("T")

_LAYOUT = 1
_MANIFEST, _LISTING = "manifest.json", "listing.jsonl"
_BEFORE_PARTS = {LOCK_FILE, _LISTING, f"{_LISTING}.new", f"{_MANIFEST}.new"}
_PART_BYTES = 64 * 1024 * 1024


class NoArchive(Exception):
    """This directory cannot be used. The message says why, and what to do."""


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Asked(_Record):
    """What an export was asked for."""

    run: str
    format: str
    filters: dict[str, str]
    part_groups: int


class Exported(_Record):
    """A group of an export."""

    id: str
    environment: int | None
    environment_name: str | None
    batch: str | None
    step: int | None
    payload_bytes: int


class PartFile(_Record):
    """A file that is whole, and the groups that had left before their contents were read."""

    name: str = Field(pattern=r"^part-[0-9]{5,9}\.[a-z]{1,16}$")  # a file of this directory
    groups: int = Field(ge=0)
    bytes: int
    sha256: str
    missing: list[str]


class ExportManifest(_Record):
    """What a directory of an export holds."""

    layout: int
    asked: Asked
    groups: int
    listing_sha256: str
    complete: bool
    parts: list[PartFile]

    @model_validator(mode="after")
    def _agrees(self) -> "ExportManifest":
        names = [part.name for part in self.parts]
        if len(set(names)) < len(names):
            raise ValueError("a part is listed twice")
        groups = sum(part.groups + len(part.missing) for part in self.parts)
        if groups > self.groups or (self.complete and groups < self.groups):
            raise ValueError(f"its parts have {counted(groups, 'group')}, and the export {self.groups}")
        return self


class Archive:
    """A directory of an export, opened to write or to read it."""

    def __init__(self, folder: Path, manifest: ExportManifest, listing: list[Exported]) -> None:
        self.folder = folder
        self.manifest = manifest
        self.listing = listing

    @classmethod
    def open(cls, folder: Path) -> "Archive | None":
        """Open an export, and check its listing and its parts. None if the directory is missing or empty.

        Raises:
            NoArchive: The directory holds something else, or a file is damaged.
        """
        if not folder.exists() or {path.name for path in folder.iterdir()} <= {LOCK_FILE}:
            return None
        try:
            manifest = ExportManifest.model_validate_json((folder / _MANIFEST).read_bytes())
            text = (folder / _LISTING).read_bytes()
            listing = [Exported.model_validate_json(line) for line in text.splitlines()]
        except FileNotFoundError as error:
            if {path.name for path in folder.iterdir()} <= _BEFORE_PARTS:
                return None  # killed before the first part
            remedy = "name the directory of an export, or an empty one to export into"
            raise NoArchive(f"{folder} holds no export ({error.filename} is missing): {remedy}") from None
        except (OSError, ValidationError) as error:
            raise NoArchive(f"{folder} cannot be read as an export: {error}") from None
        if manifest.layout != _LAYOUT:
            raise NoArchive(f"{folder} has layout {manifest.layout}; this version reads {_LAYOUT}")
        archive = cls(folder, manifest, listing)
        if _sha256(text) != manifest.listing_sha256:
            raise NoArchive(f"{folder / _LISTING} is damaged: export into an empty directory")
        for part in manifest.parts:
            archive.read(part)
        return archive

    @classmethod
    def create(cls, folder: Path, asked: Asked, listed: Iterable[ListedGroup]) -> "Archive":
        """Begin an export of these groups, in an empty directory."""
        listing = [Exported.model_validate(one.model_dump(include=set(Exported.model_fields))) for one in listed]
        folder.mkdir(parents=True, exist_ok=True)
        text = b"".join(one.model_dump_json().encode() + b"\n" for one in listing)
        _write(folder / _LISTING, text)
        fresh = ExportManifest(
            layout=_LAYOUT,
            asked=asked,
            groups=len(listing),
            listing_sha256=_sha256(text),
            complete=not listing,
            parts=[],
        )
        archive = cls(folder, fresh, listing)
        archive._note(fresh)
        return archive

    def left(self) -> Iterator[tuple[int, list[Exported]]]:
        """Yield number and groups of each part that is not written yet."""
        parts = divided(self.listing, self.manifest.asked.part_groups, _PART_BYTES, lambda one: one.payload_bytes)
        for number, groups in enumerate(parts):
            if number >= len(self.manifest.parts):
                yield number, groups

    def add(self, number: int, suffix: str, content: bytes, groups: int, missing: list[str]) -> None:
        """Write a part, and then the manifest that names it."""
        name = f"part-{number:05}{suffix}"
        _write(self.folder / name, content)
        part = PartFile(name=name, groups=groups, bytes=len(content), sha256=_sha256(content), missing=missing)
        parts = [*self.manifest.parts, part]
        complete = sum(one.groups + len(one.missing) for one in parts) == self.manifest.groups
        self._note(self.manifest.model_copy(update={"parts": parts, "complete": complete}))

    def read(self, part: PartFile) -> bytes:
        """Return the content of a part.

        Raises:
            NoArchive: It is missing, or not as it was written.
        """
        path = self.folder / part.name
        try:
            found = path.lstat()
            is_whole = S_ISREG(found.st_mode) and found.st_size == part.bytes
            content = path.read_bytes() if is_whole else b""
        except OSError as error:
            raise NoArchive(f"{path}: {error.strerror}: export into an empty directory") from None
        if not is_whole or _sha256(content) != part.sha256:
            raise NoArchive(f"{path} is damaged: its size or SHA-256 is not that of the manifest")
        return content

    def _note(self, manifest: ExportManifest) -> None:
        _write(self.folder / _MANIFEST, manifest.model_dump_json(indent=1).encode())
        self.manifest = manifest


def divided(items: Iterable[T], most: int, most_bytes: int, bytes_of: Callable[[T], int]) -> Iterator[list[T]]:
    """Divide items, in order, into parts of at most so many items and bytes. A larger item is a part of its own."""
    part, size = list[T](), 0
    for one in items:
        if part and (len(part) == most or size + bytes_of(one) > most_bytes):
            yield part
            part, size = [], 0
        part.append(one)
        size += bytes_of(one)
    if part:
        yield part


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _write(path: Path, content: bytes) -> None:
    """Replace a file at once, and flush it to the disk. Only this user may read it: it has prompts and completions."""
    fresh = path.with_name(path.name + ".new")
    with open(fresh, "wb", opener=partial(os.open, mode=0o600)) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
