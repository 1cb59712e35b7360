"""The commands ``status``, ``top``, ``explain`` and ``events``. They use the HTTP API alone."""

import asyncio
import sys
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from importlib.util import find_spec
from typing import Annotated, Any, TypeVar

import typer
from rich.console import RenderableType
from rich.live import Live

from lachesis._cli import output, status_output
from lachesis._cli.overview import ask_all, overview
from lachesis._cli.session import InJson, RunName, Url, carry_out, fail, note, settings_of
from lachesis._cli.status_output import StatusExtras
from lachesis._exit_codes import UNHEALTHY, WELL, WRONG_USE
from lachesis._transport.events import followed
from lachesis._transport.http import Sender
from lachesis._transport.logs import RateLimitedLog
from lachesis._transport.protocol import Call
from lachesis._transport.replay_calls import ReplayCalls
from lachesis._transport.retry import passes
from lachesis._transport.run_calls import RunCalls
from lachesis.errors import LachesisError, NotFound, PermissionDenied
from lachesis.wire.events import RunEvent

T = TypeVar("T")

_WATCH_S = 2.0
_PAGE = 1000
_AWAY_PERIOD_S = 60.0


def status(
    run: Annotated[str | None, typer.Argument(help="The run. Without it, the command shows all runs.")] = None,
    url: Url = None,
    watch: Annotated[bool, typer.Option("--watch", help="Show it again every 2 s, until Ctrl+C.")] = False,
    json: InJson = False,
) -> None:
    """Show all runs, or the status of one.

    Exits with 1 if a run needs attention: an alert, a warning, failing maintenance, or no readable status.
    --watch continues while the service does not answer or is busy. It shows why; with --json, as `{"error": …}`.
    """
    settings = settings_of(url, run)

    async def look(sender: Sender) -> tuple[Mapping[str, Any], RenderableType, bool]:
        width = output.console().width
        if run is None:
            seen = await ask_all(sender)
            return seen.as_json(), overview(seen, width), not seen.troubles
        found = await sender.send(RunCalls(run).status())
        extras = await _extras(sender, run)
        shown = status_output.status(found, width, extras)
        return found.model_dump(mode="json") | extras.as_json(), shown, not status_output.troubles(found)

    async def show(sender: Sender) -> int:
        console = output.console()
        is_screen = watch and not json and console.is_terminal and not console.is_dumb_terminal
        with Live(console=console, auto_refresh=False) if is_screen else _Lines() as live:
            while True:
                try:
                    found, shown, healthy = await look(sender)
                except LachesisError as error:
                    if not (watch and passes(error)):
                        raise
                    found, shown, healthy = {"error": str(error)}, output.line(str(error)), False
                if json:
                    typer.echo(output.as_json(found))
                else:
                    live.update(shown, refresh=True)
                if not watch:
                    return WELL if healthy else UNHEALTHY
                await asyncio.sleep(_WATCH_S)

    carry_out(settings, show, is_endless=watch)


def top(url: Url = None) -> None:
    """Show all runs live, and the status of the chosen one.

    Arrows choose, q quits. It needs a terminal and the extra `top`.
    """
    if find_spec("textual") is None:
        fail("top needs textual: pip install textual", WRONG_USE)
    settings = settings_of(url, None)
    if not sys.stdout.isatty():
        fail("top needs a terminal: use status --watch", WRONG_USE)

    async def show(sender: Sender) -> int:
        from lachesis._cli.top import Top  # late: no other command needs textual

        await Top(sender, settings.url).run_async()
        return WELL

    carry_out(settings, show, is_endless=True)


def explain(run: RunName = None, url: Url = None, json: InJson = False) -> None:
    """Say whether a batch would form now, and why not. Exits with 1 if none would."""
    settings = settings_of(url, run)

    async def show(sender: Sender) -> int:
        found = await sender.send(RunCalls(settings.run).explain())
        if json:
            typer.echo(output.as_json(found))
        else:
            output.show(output.console(), output.explanation(found))
        return WELL if found.ready else UNHEALTHY

    carry_out(settings, show)


def events(
    run: RunName = None,
    url: Url = None,
    after: Annotated[str, typer.Option(help="Only events after this id, or time in ms since 1970.")] = "0",
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="How many of the last events to show.")] = 100,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Then show new events as they come.")] = False,
    json: InJson = False,
) -> None:
    """Show what happened in a run, and with --follow what happens.

    --follow continues after the service did not answer or was busy. It says so on stderr.
    """
    settings = settings_of(url, run)

    async def show(sender: Sender) -> int:
        calls, console = RunCalls(settings.run), output.console()

        def tell(event: RunEvent) -> None:
            if json:
                typer.echo(output.as_json(event))
            else:
                output.show(console, output.event(event))

        found, last = list[RunEvent](), after
        while True:
            page = await sender.send(calls.events(last, _PAGE))
            found, last = (found + page.events)[-limit:], page.next_after
            if len(page.events) < _PAGE:
                break
        for event in found:
            tell(event)
        if follow:
            async with aclosing(_followed_patiently(sender, calls, last)) as coming:
                async for event in coming:
                    tell(event)
        return WELL

    carry_out(settings, show, is_endless=follow)


async def _followed_patiently(sender: Sender, calls: RunCalls, after: str) -> AsyncGenerator[RunEvent, None]:
    """Follow the events after ``after``. Continue after the last one when the service answers again."""
    away_log = RateLimitedLog(_AWAY_PERIOD_S)
    while True:
        try:
            async with aclosing(followed(sender, calls, after)) as coming:
                async for event in coming:
                    yield event
                    after = event.id
            return
        except LachesisError as error:
            if not passes(error):
                raise
            if away_log.due(time.monotonic()):
                note(f"{str(error).rstrip('.')}. Trying again until the service answers")
        await sender.sleep(_WATCH_S)


async def _extras(sender: Sender, run: str) -> StatusExtras:
    """Ask for what is shown with the status of a run."""
    explanation = await _if_any(sender, RunCalls(run).explain())
    replay = await _if_any(sender, ReplayCalls(run).state())
    found = await _if_any(sender, RunCalls(run).curricula())
    return StatusExtras(explanation, replay, () if found is None else tuple(found.curricula))


async def _if_any(sender: Sender, call: Call[T]) -> T | None:
    try:
        return await sender.send(call)
    except (NotFound, PermissionDenied):
        return None


class _Lines:
    """Prints each value below the last one. `Live` would print only the last one into a pipe."""

    def __enter__(self) -> "_Lines":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def update(self, shown: RenderableType, *, refresh: bool) -> None:  # noqa: ARG002 - that of `Live`
        output.console().print(shown)
