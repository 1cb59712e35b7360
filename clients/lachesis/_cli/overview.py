"""All runs of a service at once: ask the status of each, and show them in a table."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType

from lachesis._cli.output import Columns, cut, line, row, short, table
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
    def without_status(self) -> list[str]:
        """Which runs have no status, and why, a sentence each."""
        lines = [f"run {one.name} cannot be read: {one.detail}" for one in self.unreadable]
        return lines + [f"run {one.run.name}: {one.failure}" for one in self.runs if one.status is None]

    @property
    def troubles(self) -> list[str]:
        """What an operator should look at, a sentence each, with the name of the run."""
        seen = [(one.run.name, one.status) for one in self.runs if one.status is not None]
        return self.without_status + [f"run {name}: {trouble}" for name, found in seen for trouble in troubles(found)]

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
    columns = _LONG if width >= _WIDE else _SHORT
    unknown = ["?", *[""] * (len(columns) - 1)]
    rows = [unknown if one.status is None else row(columns, one.status) for one in found.runs]
    most = min(_LONGEST_NAME, max(_SHORTEST_NAME, width - _width_of(columns, rows)))
    named = [(cut(one.run.name, most), *cells) for one, cells in zip(found.runs, rows, strict=True)]
    return Group(table(("run", *columns), named, left=2), *lines)


def _width_of(header: Iterable[str], rows: Sequence[Sequence[str]]) -> int:
    """Return the columns that a table takes without its first column."""
    return sum(max(map(len, column)) + _GAP for column in zip(header, *rows, strict=True))


def _rate(found: RunStatus) -> str:
    rate = arrival_rate(found)
    return "-" if rate is None else f"{rate:.2f}"


def _trained_share(found: RunStatus) -> str:
    generated, trained = found.ledger.generated_tokens, found.ledger.trained_tokens
    return f"{trained / generated:.0%} of {short(generated)}" if generated else "-"


def _drop_reasons(found: RunStatus) -> str:
    most_first = sorted(found.dropped.items(), key=lambda item: (-item[1], item[0]))
    return cut(", ".join(f"{count} {reason}" for reason, count in most_first if count), _LONGEST_REASONS)


_COMMON: Columns[RunStatus] = {
    "state": state,
    "step": lambda found: str(found.current_step),
    "version": lambda found: str(found.policy_version),
    "dropped": lambda found: str(sum(found.dropped.values())),
    "relaxed": lambda found: str(found.relaxed_batches),
    "seq/s": _rate,
}
_SHORT: Columns[RunStatus] = {**_COMMON, "trained": _trained_share}
_LONG: Columns[RunStatus] = {
    **_COMMON,
    "generated": lambda found: f"{found.ledger.generated_tokens:,}",
    "trained": lambda found: f"{found.ledger.trained_tokens:,}",
    "batch size": lambda found: "-" if found.batch_size < 0 else str(found.batch_size),
    "queued": lambda found: str(found.groups.queued),
    "leased": lambda found: str(found.groups.leased),
    "drop reasons": _drop_reasons,
}
