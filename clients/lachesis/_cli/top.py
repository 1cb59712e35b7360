"""The command ``top``: all runs of a service on one screen, live. It needs the extra ``top``."""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widgets import DataTable, Footer, Header, Static

from lachesis._cli import output, status_output
from lachesis._cli.overview import ask_all, state
from lachesis._transport.http import Sender
from lachesis.errors import LachesisError
from lachesis.wire.address import without_password
from lachesis.wire.status import RunStatus

_PERIOD_S = 2.0


@dataclass(frozen=True, slots=True)
class _Seen:
    """The counts of a run at a time, for rates."""

    at_s: float
    accepted: int
    step: int


@dataclass(frozen=True, slots=True)
class _LiveRun:
    """A run as its row shows it."""

    status: RunStatus
    groups_per_s: float = 0.0
    batches_per_s: float = 0.0


def _next_batch(found: RunStatus) -> str:
    troubles = status_output.troubles(found)
    blocked = found.blocked.detail if found.blocked else "unknown"
    return output.cut(troubles[0] if troubles else "ready" if found.ready else blocked)


_COLUMNS: output.Columns[_LiveRun] = {
    "run": lambda one: one.status.run,
    "state": lambda one: state(one.status),
    "step": lambda one: str(one.status.current_step),
    "version": lambda one: str(one.status.policy_version),
    "queued": lambda one: str(one.status.groups.queued),
    "leased": lambda one: str(one.status.groups.leased),
    "dropped": lambda one: str(sum(one.status.dropped.values())),
    "groups/s": lambda one: f"{one.groups_per_s:.1f}",
    "batches/s": lambda one: f"{one.batches_per_s:.2f}",
    "next batch": lambda one: _next_batch(one.status),
}


class Top(App[None]):
    """All runs in a table, and the status of the chosen run below it."""

    TITLE = "Lachesis"
    ENABLE_COMMAND_PALETTE = False
    CSS = "#runs { height: 1fr; } #below { height: 1fr; border-top: solid $primary; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "Quit"),
        Binding("r", "look", "Refresh"),
        Binding("p", "pause", "Pause"),
        Binding("t", "troubles", "Troubled first"),
    ]

    def __init__(self, sender: Sender, url: str) -> None:
        """Ask nothing yet.

        Args:
            sender: The connection to the service. The caller closes it.
            url: The URL of the service, for people.
        """
        super().__init__()
        self.sub_title = without_password(url)
        self._sender = sender
        self._found: dict[str, RunStatus] = {}
        self._without_status: list[str] = []
        self._seen: dict[str, _Seen] = {}
        self._rates: dict[str, tuple[float, float]] = {}
        self._paused = False
        self._troubles_first = False

    def compose(self) -> ComposeResult:
        """Lay the screen out."""
        yield Header()
        yield DataTable(id="runs", cursor_type="row")
        with VerticalScroll(id="below"):
            yield Static(id="status", markup=False)
        yield Footer()

    def on_mount(self) -> None:
        """Begin to ask."""
        self.query_one(DataTable).add_columns(*_COLUMNS)
        self.set_interval(_PERIOD_S, self._tick)
        self.action_look()

    def on_data_table_row_highlighted(self) -> None:
        """Show the run that the cursor is on."""
        self._show_chosen()

    def action_look(self) -> None:
        """Ask now. A request that is under way is left alone."""
        if all(one.is_finished for one in self.workers if one.group == "look"):
            self.run_worker(self._look(), group="look")

    def action_pause(self) -> None:
        """Pause or resume refreshing."""
        self._paused = not self._paused
        self._tell("")

    def action_troubles(self) -> None:
        """Sort runs with a trouble to the top, or by name."""
        self._troubles_first = not self._troubles_first
        self._show()

    def _tick(self) -> None:
        if not self._paused:
            self.action_look()

    async def _look(self) -> None:
        try:
            seen = await ask_all(self._sender)
        except LachesisError as error:
            self._tell(str(error))
            if not self._found:  # the title may cut the sentence
                self.query_one("#status", Static).update(output.line(str(error)))
            return
        self._without_status = seen.without_status
        self._tell("; ".join(self._without_status))
        self._found = {one.run.name: one.status for one in seen.runs if one.status is not None}
        self._note_rates(self._found.values())
        self._show()

    def _note_rates(self, found: Iterable[RunStatus]) -> None:
        now_s = time.monotonic()
        for one in found:
            seen, now = self._seen.get(one.run), _Seen(now_s, one.groups.accepted, one.current_step)
            if seen is not None and now_s > seen.at_s:
                passed_s = now_s - seen.at_s
                self._rates[one.run] = (
                    max(0, now.accepted - seen.accepted) / passed_s,
                    max(0, now.step - seen.step) / passed_s,
                )
            self._seen[one.run] = now

    def _show(self) -> None:
        table: DataTable[Text] = self.query_one(DataTable)
        chosen = self._chosen()
        names = sorted(self._found, key=lambda run: (self._troubles_first and self._is_well(run), run))
        if names != [key.value for key in table.rows]:  # else all stays where the reader has scrolled
            table.clear()
            for name in names:
                table.add_row(*[Text()] * len(_COLUMNS), key=name)
            if chosen in names:
                table.move_cursor(row=names.index(chosen))
        for name in names:
            shown = _LiveRun(self._found[name], *self._rates.get(name, ()))
            for column, cell in zip(table.columns, output.row(_COLUMNS, shown), strict=True):
                table.update_cell(name, column, output.line(cell), update_width=True)
        self._show_chosen()

    def _is_well(self, run: str) -> bool:
        return not status_output.troubles(self._found[run])

    def _chosen(self) -> str | None:
        table: DataTable[Text] = self.query_one(DataTable)
        if not table.row_count:
            return None
        key: str | None = table.coordinate_to_cell_key(table.cursor_coordinate).row_key.value
        return key

    def _show_chosen(self) -> None:
        found = self._found.get(self._chosen() or "")
        no_runs = output.line("; ".join(self._without_status) or "there are no runs")
        self.query_one("#status", Static).update(no_runs if found is None else status_output.status(found))

    def _tell(self, trouble: str) -> None:
        """Show what is wrong, or that requests pause, in the title. The last numbers stay."""
        told = trouble or ("paused: p continues" if self._paused else "")
        self.title = f"Lachesis · {output.line(told).plain}" if told else "Lachesis"
