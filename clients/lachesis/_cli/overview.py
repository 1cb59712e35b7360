"""All runs of a service at once: ask the status of each, and show them in a table."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType

from lachesis._cli.output import cut, line, short, table
from lachesis._cli.status_output import arrival_rate, troubles
from lachesis._transport.http import Sender
from lachesis._transport.run_calls import RunCalls, list_runs
from lachesis.errors import NotFound, PermissionDenied, ServiceError
from lachesis.wire.runs import Run, UnreadableRun
from lachesis.wire.status import RunStatus

_MOST_RUNS = 1000
_AT_ONCE = 8
_WIDE = 180  # columns that the long table takes
_SHORTEST_NAME, _LONGEST_NAME, _LONGEST_REASONS = 8, 64, 40
_GAP = 2
_SHORT = ("state", "step", "version", "dropped", "relaxed", "seq/s", "trained")
_LONG = (*_SHORT[:-1], "generated", "trained", "batch size", "queued", "leased", "drop reasons")


@dataclass(frozen=True, slots=True)
class SeenRun:
    """A run, and what the service says of it."""

    run: Run
    status: RunStatus | None
    failure: str = ""
    """Why there is no status."""


@dataclass(frozen=True, slots=True)
class Overview:
    """All runs that the token may see."""

    runs: tuple[SeenRun, ...]
    unreadable: tuple[UnreadableRun, ...]
    has_more: bool

    @property
    def troubles(self) -> list[str]:
        """What an operator should look at, a sentence each, with the name of the run."""
        lines = [f"run {one.name} cannot be read: {one.detail}" for one in self.unreadable]
        for one in self.runs:
            found = [one.failure] if one.status is None else troubles(one.status)
            lines += [f"run {one.run.name}: {trouble}" for trouble in found]
        return lines

    def as_json(self) -> dict[str, Any]:
        """Return the list of runs as the API has it, each with its status."""
        runs = [
            one.run.model_dump(mode="json")
            | {
                "status": None if one.status is None else one.status.model_dump(mode="json"),
                "failure": one.failure or None,
            }
            for one in self.runs
        ]
        return {"runs": runs, "unreadable": [one.model_dump() for one in self.unreadable], "has_more": self.has_more}


async def ask_all(sender: Sender) -> Overview:
    """Ask the status of all runs, some at a time. Leave out runs that are deleted before the answer."""
    listed = await sender.send(list_runs(_MOST_RUNS))
    free = asyncio.Semaphore(_AT_ONCE)

    async def ask(run: Run) -> SeenRun | None:
        async with free:
            try:
                found = await sender.send(RunCalls(run.name).status())
            except (NotFound, PermissionDenied):
                return None
            except ServiceError as error:
                return SeenRun(run, None, str(error))
        return SeenRun(run, found)

    seen = await asyncio.gather(*map(ask, listed.runs))
    there = tuple(one for one in seen if one is not None)
    return Overview(there, tuple(listed.unreadable), listed.next_after is not None)


def state(found: RunStatus) -> str:
    """Return the state of a run in one word."""
    if troubles(found):
        return "troubled"
    if found.blocked is not None and found.blocked.reason == "archived":
        return "archived"
    return "ready" if found.ready else "blocked"


def overview(found: Overview, width: int) -> RenderableType:
    """Show all runs, with the columns that ``width`` has room for, and below them what is wrong."""
    lines = [line(trouble) for trouble in found.troubles]
    if found.has_more:
        lines.append(line(f"… and more: these are the first {_MOST_RUNS}"))
    if not found.runs:
        return Group(line("there are no runs"), *lines)
    header, cells = (_LONG, _long_cells) if width >= _WIDE else (_SHORT, _short_cells)
    rows = [("?",) if one.status is None else cells(one.status) for one in found.runs]
    most = min(_LONGEST_NAME, max(_SHORTEST_NAME, width - _width_of(header, rows)))
    named = [(cut(one.run.name, most), *row) for one, row in zip(found.runs, rows, strict=True)]
    return Group(table(("run", *header), named, left=2), *lines)


def _width_of(header: Sequence[str], rows: Sequence[Sequence[str]]) -> int:
    """Return the columns that a table takes without its first column."""
    cells = zip(header, *(list(row) + [""] * (len(header) - len(row)) for row in rows), strict=True)
    return sum(max(map(len, column)) + _GAP for column in cells)


def _common_cells(found: RunStatus) -> tuple[str, ...]:
    rate = arrival_rate(found)
    counts = (found.current_step, found.policy_version, sum(found.dropped.values()), found.relaxed_batches)
    return (state(found), *map(str, counts), "-" if rate is None else f"{rate:.2f}")


def _short_cells(found: RunStatus) -> tuple[str, ...]:
    generated, trained = found.ledger.generated_tokens, found.ledger.trained_tokens
    share = f"{trained / generated:.0%} of {short(generated)}" if generated else "-"
    return (*_common_cells(found), share)


def _long_cells(found: RunStatus) -> tuple[str, ...]:
    size = "-" if found.batch_size < 0 else str(found.batch_size)
    counts = (str(found.groups.queued), str(found.groups.leased))
    tokens = (f"{found.ledger.generated_tokens:,}", f"{found.ledger.trained_tokens:,}")
    most_first = sorted(found.dropped.items(), key=lambda item: (-item[1], item[0]))
    reasons = ", ".join(f"{count} {reason}" for reason, count in most_first if count)
    return (*_common_cells(found), *tokens, size, *counts, cut(reasons, _LONGEST_REASONS))
