"""What the commands share: their options, the connection to the service, and exit codes."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Annotated, Any, NoReturn

import typer

from lachesis._transport.http import Sender
from lachesis._transport.settings import Settings
from lachesis.errors import LachesisError, PermissionDenied, Unauthorized, Unreachable
from lachesis.wire.printable import printable

WELL, UNHEALTHY, WRONG_USE, UNREACHABLE, NOT_ALLOWED = 0, 1, 2, 3, 4
"""Exit codes: all is well; the answer is no; wrong use; no answer; the token may not do this."""

Url = Annotated[str | None, typer.Option(help="The service; default: LACHESIS_URL, or http://127.0.0.1:8000.")]
InJson = Annotated[bool, typer.Option("--json", help="Print JSON, one value in a line.")]
RunName = Annotated[str | None, typer.Argument(help="The run; default: LACHESIS_RUN, or default.")]
RunOption = Annotated[str | None, typer.Option("--run", help="The run; default: LACHESIS_RUN, or default.")]


def settings_of(url: str | None, run: str | None) -> Settings:
    """Return the settings of a command. Each request is sent once. Exit if a value is wrong."""
    given: dict[str, Any] = {name: value for name, value in (("url", url), ("run", run)) if value is not None}
    try:
        return Settings.from_env(**given, retry_budget_s=0)
    except ValueError as error:
        fail(str(error), WRONG_USE)


def carry_out(settings: Settings, command: Callable[[Sender], Awaitable[int]]) -> None:
    """Run a command, and exit with its code or that of its error."""

    async def all_of_it() -> int:
        async with _sender(settings) as sender:
            return await command(sender)

    try:
        code = asyncio.run(all_of_it())
    except KeyboardInterrupt:
        code = WELL
    except LachesisError as error:
        fail(str(error), code_of(error))
    raise typer.Exit(code)


def code_of(error: LachesisError) -> int:
    """Return the exit code of an error."""
    if isinstance(error, Unreachable):
        return UNREACHABLE
    return NOT_ALLOWED if isinstance(error, Unauthorized | PermissionDenied) else UNHEALTHY


@asynccontextmanager
async def _sender(settings: Settings) -> AsyncIterator[Sender]:
    try:
        sender = Sender(settings)
    except ValueError as error:  # a file of the token or of TLS
        fail(str(error), WRONG_USE)
    async with sender:
        yield sender


def note(message: str) -> None:
    """Print a line for people to stderr, beside the output."""
    typer.echo(f"lachesis: {printable(' '.join(message.split()))}", err=True)


def fail(message: str, code: int) -> NoReturn:
    """Print a line to stderr, and exit."""
    note(message)
    raise typer.Exit(code)
