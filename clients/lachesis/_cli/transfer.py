"""The commands ``export`` and ``import``: groups of a run into files, and files into a run."""

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from lachesis._cli import output
from lachesis._cli.archive import Archive, Asked, Exported, NoArchive, divided
from lachesis._cli.formats import FORMATS, Format, as_submitted, may_be_annotated
from lachesis._cli.lock import InUse, locked
from lachesis._cli.session import InJson, RunOption, Url, carry_out, fail, note, settings_of
from lachesis._exit_codes import UNHEALTHY, WELL, WRONG_USE
from lachesis._transport.http import Sender
from lachesis._transport.protocol import REQUEST_BYTES
from lachesis._transport.run_calls import RunCalls
from lachesis.errors import GroupGone, GroupNotFound, InvalidField
from lachesis.wire import blob
from lachesis.wire.blob import Buffer, DamagedBlob
from lachesis.wire.columns import DETAILS, lay_out, unpack
from lachesis.wire.environments import EnvironmentCreate
from lachesis.wire.groups import MAX_LOOKED_AT, ListedGroup
from lachesis.wire.printable import counted
from lachesis.wire.states import GroupState

_AT_ONCE = 8
_LEFT = ("delivered", "dropped")
_PATIENCE_S = 60.0
_REQUEST_GROUPS = 256

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The directory of the export.")]


def export_groups(
    folder: Folder,
    run: RunOption = None,
    url: Url = None,
    format_: Annotated[
        Literal["safetensors", "jsonl", "parquet"], typer.Option("--format", help="The format of the files.")
    ] = "safetensors",
    state: Annotated[
        GroupState | None, typer.Option(help="Only groups in this state; kept: those of kept batches.")
    ] = None,
    environment: Annotated[
        str | None, typer.Option(help="Only groups of the environment with this id or name.")
    ] = None,
    item: Annotated[str | None, typer.Option(help="Only groups of this dataset entry or task.")] = None,
    part_groups: Annotated[int, typer.Option(min=1, max=10_000, help="Most groups in a part.")] = 1000,
    json: InJson = False,
) -> None:
    """Write groups with their contents into files. After a break, the same command continues.

    It writes the groups whose contents the run still has.
    The directory gets a listing, parts, and a manifest with the SHA-256 of each part.
    """
    settings = settings_of(url, run)
    chosen = _usable(format_)
    given = {"state": state, "environment": environment, "item": item}
    filters = {key: value for key, value in given.items() if value}
    asked = Asked(run=settings.run, format=format_, filters=filters, part_groups=part_groups)

    async def carry(sender: Sender) -> int:
        with _alone(folder):
            archive = await _exported(sender, folder, asked, chosen)
        written = sum(part.groups for part in archive.manifest.parts)
        if json:
            typer.echo(output.as_json(archive.manifest))
        else:
            parts = len(archive.manifest.parts)
            said = f"exported {counted(written, 'group')} in {counted(parts, 'part')}"
            output.console().print(output.line(said))
        if missing_groups := archive.manifest.groups - written:
            note(f"{missing_groups} groups had left before their contents were read: the manifest names them")
        return WELL

    carry_out(settings, carry)


def import_groups(
    folder: Folder,
    run: RunOption = None,
    url: Url = None,
    versions: Annotated[
        bool, typer.Option(help="Keep policy versions. --no-versions: for a run that has not reached them.")
    ] = True,
    json: InJson = False,
) -> None:
    """Submit the groups of an export to a run. Repeat it after a break: a group counts once, by its id.

    Environments are found by name, and made if the run has none of this name. Exits with 1 if a group was not accepted.
    """
    settings = settings_of(url, run)

    async def carry(sender: Sender) -> int:
        outcomes = await _imported(sender, RunCalls(settings.run), folder, versions)
        if json:
            typer.echo(output.as_json(dict(outcomes)))
        else:
            counts = ", ".join(f"{count} {status}" for status, count in outcomes.most_common())
            output.console().print(output.line(f"submitted to {settings.run}: {counts or 'nothing'}"))
        return WELL if outcomes.keys() <= {"accepted"} else UNHEALTHY

    carry_out(settings, carry)


async def _exported(sender: Sender, folder: Path, asked: Asked, chosen: Format) -> Archive:
    """Write the parts that an export lacks yet, and return it."""
    calls = RunCalls(asked.run)
    archive = _opened(folder)
    if archive is None:
        archive = Archive.create(folder, asked, await _listed(sender, calls, asked.filters))
    elif archive.manifest.asked != asked:
        fail(f"{folder} holds an export with other options ({archive.manifest.asked}): use another DIR", WRONG_USE)
    with _bar() as bar:
        done = sum(part.groups + len(part.missing) for part in archive.manifest.parts)
        task = bar.add_task("export", total=archive.manifest.groups, completed=done)
        for number, groups in archive.left():
            contents = await _contents(sender, calls, groups)
            blobs = [one for one in contents if one is not None]
            missing = [one.id for one, content in zip(groups, contents, strict=True) if content is None]
            archive.add(number, chosen.suffix, chosen.encode(blobs), len(blobs), missing)
            bar.advance(task, len(groups))
    return archive


async def _imported(sender: Sender, calls: RunCalls, folder: Path, versions: bool) -> Counter[str]:
    """Submit the groups of an export, the oldest first, and count them by outcome."""
    archive = _complete(folder)
    chosen, parts = _usable(archive.manifest.asked.format), archive.manifest.parts
    ids = await _environments(sender, calls, archive.listing)
    outcomes = Counter[str]()
    with _bar() as bar:
        task = bar.add_task("import", total=sum(part.groups for part in parts))
        for part in reversed(parts):  # a listing begins with the newest groups
            try:
                blobs = [_placed(one, ids, versions) for one in chosen.decode(archive.read(part))][::-1]
            except (DamagedBlob, ValueError) as error:
                fail(f"{folder / part.name}: {error}", UNHEALTHY)
            for request in divided(blobs, _REQUEST_GROUPS, REQUEST_BYTES, len):
                outcomes.update(await _submitted(sender, calls, request))
                bar.advance(task, len(request))
    return outcomes


async def _submitted(sender: Sender, calls: RunCalls, blobs: Sequence[Buffer]) -> list[str]:
    """Submit groups in one request, and return their outcomes."""
    try:
        receipts = await sender.send(calls.submit(blobs), _PATIENCE_S)
    except InvalidField as error:  # of a group, not of the command line
        fail(str(error), UNHEALTHY)
    return [receipt.status for receipt in receipts.groups]


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Let no other export write into the directory."""
    try:
        with locked(folder):
            yield
    except InUse:
        fail(f"another export writes into {folder}: wait until it ends, or use another DIR", UNHEALTHY)
    except OSError as error:
        fail(f"{folder} cannot be written to: {error.strerror or error}", UNHEALTHY)


def _opened(folder: Path) -> Archive | None:
    try:
        return Archive.open(folder)
    except NoArchive as error:
        fail(str(error), UNHEALTHY)


def _complete(folder: Path) -> Archive:
    if not folder.is_dir():
        fail(f"there is no folder {folder}", WRONG_USE)
    archive = _opened(folder)
    if archive is None or not archive.manifest.complete:
        fail(f"{folder} holds no complete export: repeat `lachesis export` to complete it", WRONG_USE)
    return archive


def _usable(name: str) -> Format:
    if name not in FORMATS:
        fail(f"format {name}: this version knows {', '.join(FORMATS)}", WRONG_USE)
    if not FORMATS[name].is_usable:
        fail(f"{name} needs {FORMATS[name].library}: pip install {FORMATS[name].library}", WRONG_USE)
    return FORMATS[name]


async def _listed(sender: Sender, calls: RunCalls, filters: dict[str, str]) -> list[ListedGroup]:
    """List the groups, each once: a group that moves between two pages may be listed in both places.

    Groups that have left are listed only if the filters name their state. The replay buffer may keep their contents.
    """
    found: dict[str, ListedGroup] = {}
    asked = filters | {"limit": str(MAX_LOOKED_AT)}
    while True:
        page = await sender.send(calls.list_groups(asked), _PATIENCE_S)
        found |= {one.id: one for one in page.groups if "state" in filters or one.state not in _LEFT}
        if page.cursor is None:
            return list(found.values())
        asked["cursor"] = page.cursor


async def _contents(sender: Sender, calls: RunCalls, groups: Sequence[Exported]) -> list[Buffer | None]:
    """Read the contents of groups; None for a group that has left."""
    free = asyncio.Semaphore(_AT_ONCE)

    async def read(one: Exported) -> Buffer | None:
        async with free:
            try:
                content = await sender.send(calls.read_blob(one.id), _PATIENCE_S)
                annotations = []
                if may_be_annotated(content):
                    annotations = (await sender.send(calls.find_group(one.id), _PATIENCE_S)).annotations
            except (GroupGone, GroupNotFound):
                return None
        return as_submitted(content, one.id, one.environment, annotations)

    reads = [asyncio.create_task(read(one)) for one in groups]
    try:
        return await asyncio.gather(*reads)
    finally:  # after an error, no read goes on while the connections close
        for one in reads:
            one.cancel()
        await asyncio.gather(*reads, return_exceptions=True)


async def _environments(sender: Sender, calls: RunCalls, listing: Sequence[Exported]) -> dict[int, int]:
    """Return the id in this run of each environment of an export. Its name finds it, or it is made."""
    names = {one.environment: one.environment_name for one in listing if one.environment is not None}
    ids: dict[int, int] = {}
    for number, name in names.items():
        if name is None:
            continue  # the run had forgotten it: its groups count for no environment
        try:
            joined = await sender.send(calls.join(EnvironmentCreate(name=name)), _PATIENCE_S)
        except InvalidField:  # a client of Atropos registered it: workers cannot join it
            found = (await sender.send(calls.list_environments(), _PATIENCE_S)).environments
            same = [one.id for one in found if one.name == name]
            if not same:
                raise
            ids[number] = same[0]
            continue
        await sender.send(calls.leave(joined.id, joined.member), _PATIENCE_S)
        ids[number] = joined.id
    return ids


def _placed(content: Buffer, ids: dict[int, int], versions: bool) -> Buffer:
    """Return the blob of a group for another run."""
    header = blob.read_header(content)
    facts = {name: value for name, value in header.metadata.items() if versions or name != "policy_version"}
    before = facts.pop("environment", None)
    if before is not None and (now := ids.get(int(before))) is not None:
        facts["environment"] = str(now)
    return blob.with_metadata(content, header, facts) if versions else _without_versions(content, facts)


def _without_versions(content: Buffer, facts: dict[str, str]) -> Buffer:
    """Return the blob of a group with other facts, and without versions of its tokens."""
    group = unpack(content)
    kept = {name: column for name, column in group.columns.items() if name != "policy_versions"}
    arrays = {**group.tensors, **lay_out(kept), DETAILS: np.frombuffer(group.details, np.uint8)}
    return blob.write(arrays, facts, group.dtypes)


def _bar() -> Progress:
    """Return a bar on stderr. Where that is not a terminal, it shows nothing."""
    console = output.console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=console, disable=not console.is_terminal, transient=True)
