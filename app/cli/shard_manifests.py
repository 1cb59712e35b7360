"""Write a plan as files: a manifest for each rank, and the summary. All of them appear at once, or none."""

import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

import orjson

from app.api.wire.shards import shown_plan
from app.cli.output import NotWritten
from app.services.datasets import DatasetPlan, episodes_of
from app.store.server.data_dir import sync_folder

SUMMARY = "summary.json"
_OURS = re.compile(r"rank-\d+-of-\d+\.jsonl|summary\.json")


def manifest_name(rank: int, ranks: int) -> str:
    """Return the name of a rank's manifest."""
    return f"rank-{rank:05d}-of-{ranks:05d}.jsonl"


def check_target(folder: Path, force: bool) -> None:
    """Make sure that a plan may be written.

    Args:
        folder: The target folder.
        force: Whether to replace an existing plan. Other files are never replaced.

    Raises:
        NotWritten: The folder holds something that must not be replaced.
    """
    if not folder.exists() and not folder.is_symlink():
        return
    if folder.is_symlink() or not folder.is_dir():
        raise NotWritten(f"{folder} exists and is not a folder")
    names = sorted(entry.name for entry in folder.iterdir())
    others = [name for name in names if not _OURS.fullmatch(name)]
    if others:
        raise NotWritten(f"{folder} holds {others[0]!r}, which is not part of a plan: choose another folder")
    if names and not force:
        raise NotWritten(f"{folder} already has a plan; --force replaces it")


def write_manifests(planned: DatasetPlan, folder: Path, force: bool) -> None:
    """Write one line ``{"episode": id, "length": n, "cost": x}`` for each episode of a rank, in the dataset's order.

    The files are written next to the folder and moved there when they are complete and on disk. A program that reads
    while a plan is replaced finds the old plan, or none for an instant, or the new plan.

    Raises:
        NotWritten: The folder holds something that must not be replaced, or another program made it in between.
    """
    check_target(folder, force)
    folder.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    new, old = made / "new", made / "old"
    try:
        new.mkdir()
        _write_all(planned, new)
        check_target(folder, force)  # again: writing took a while
        _replace(folder, new, old)
        sync_folder(folder.parent)
        shutil.rmtree(old, ignore_errors=True)
    finally:
        shutil.rmtree(new, ignore_errors=True)
        with contextlib.suppress(OSError):
            made.rmdir()  # it stays if it holds the former plan


def _replace(folder: Path, new: Path, old: Path) -> None:
    """Move ``new`` to the folder, and what the folder is now to ``old``. After an error, the folder is as before.

    Raises:
        NotWritten: Another program has made the folder in between. What it was before stays in ``old``.
    """
    if not folder.exists():
        new.rename(folder)
        return
    folder.rename(old)
    try:
        new.rename(folder)
    except OSError as error:
        if folder.exists():
            raise NotWritten(f"another program has made {folder}; the plan that was there is in {old}") from error
        old.rename(folder)
        raise


def _write_all(planned: DatasetPlan, folder: Path) -> None:
    ranks = planned.terms.ranks
    for rank, (ids, lengths, costs) in enumerate(episodes_of(planned)):
        rows = zip(ids, lengths.tolist(), costs.tolist(), strict=True)
        lines = (orjson.dumps({"episode": name, "length": length, "cost": cost}) for name, length, cost in rows)
        _write(folder / manifest_name(rank, ranks), lines)
    _write(folder / SUMMARY, [shown_plan(planned).model_dump_json(indent=2, exclude_none=True).encode()])
    sync_folder(folder)


def _write(path: Path, lines: Iterable[bytes]) -> None:
    with path.open("wb") as file:
        file.writelines(line + b"\n" for line in lines)
        file.flush()
        os.fsync(file.fileno())
