"""What the commands share: their options, the connection to the service, and the exit codes of errors."""

import asyncio
import os
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Annotated, Any, NoReturn, Protocol

import typer

from lachesis._exit_codes import INTERRUPTED, UNHEALTHY, WELL, WRONG_USE, code_of
from lachesis._transport.http import Sender
from lachesis._transport.run_calls import list_runs
from lachesis._transport.settings import Settings
from lachesis.errors import LachesisError, RunNotFound, Unreachable
from lachesis.wire.address import is_readable_by_others, without_password
from lachesis.wire.printable import printable

Url = Annotated[str | None, typer.Option(help="The service; default: LACHESIS_URL, or the one of this machine.")]
InJson = Annotated[bool, typer.Option("--json", help="Print JSON, one value per line.")]
RunName = Annotated[str | None, typer.Argument(help="The run; default: LACHESIS_RUN, or default.")]
RunOption = Annotated[str | None, typer.Option("--run", help="The run; default: LACHESIS_RUN, or default.")]

_MOST_RUNS = 20
NO_SECRETS = (
    "all users of this machine can read a command line: put the token into a file, and name it in LACHESIS_TOKEN_FILE"
)
"""Why a URL of a command may have no password."""


class OwnService(Protocol):
    """A service that a command line knows by itself."""

    @property
    def url(self) -> str:
        """Where it is.

        Raises:
            ValueError: Its settings name another machine.
        """

    def is_at(self, url: str) -> bool:
        """Return whether this URL leads to it."""

    def tls(self) -> ssl.SSLContext:
        """Return how to verify it, if its URL begins with ``https:``.

        Raises:
            OSError: A file cannot be used.
        """


own_service: ContextVar[OwnService | None] = ContextVar("own_service", default=None)
"""The service that commands ask if nobody names one. `python -m app` knows that of its machine; the SDK knows none."""


def settings_of(url: str | None, run: str | None) -> Settings:
    """Return the settings of a command. Each request is sent once. Exit if a value is wrong."""
    if url is not None and without_password(url) != url:
        fail(f"--url: {NO_SECRETS}", WRONG_USE)
    own = own_service.get() if url is None and "LACHESIS_URL" not in os.environ else None
    try:
        url = url if own is None else own.url
        given: dict[str, Any] = {name: value for name, value in (("url", url), ("run", run)) if value is not None}
        settings = Settings.from_env(**given, retry_budget_s=0)
        if own is not None and (settings.token or settings.token_file) and is_readable_by_others(settings.url):
            raise ValueError(f"everyone between here and {settings.url} could read the token: to send it, give --url")
    except ValueError as error:
        fail(str(error), WRONG_USE)
    return settings


def carry_out(settings: Settings, command: Callable[[Sender], Awaitable[int]], *, is_endless: bool = False) -> None:
    """Run a command, and exit with its code or that of its error.

    Args:
        settings: How to reach the service.
        command: What to run.
        is_endless: Whether Ctrl+C is the usual end of the command.
    """

    async def all_of_it() -> int:
        async with _sender(settings) as sender:
            try:
                return await command(sender)
            except RunNotFound as error:
                fail(f"{error.detail}; {await _runs_there(sender)}. {error.remedy}", UNHEALTHY)

    try:
        code = asyncio.run(all_of_it())
    except KeyboardInterrupt:
        code = WELL if is_endless else INTERRUPTED
    except LachesisError as error:
        advice = ". Start the service, or correct --url or LACHESIS_URL" if type(error) is Unreachable else ""
        fail(f"{error}{advice}", code_of(error))
    raise typer.Exit(code)


@asynccontextmanager
async def _sender(settings: Settings) -> AsyncIterator[Sender]:
    own = own_service.get()
    try:
        if own is not None and own.is_at(settings.url):
            sender = Sender(settings, tls=own.tls() if settings.url.startswith("https:") else None, proxy=False)
        else:
            sender = Sender(settings)
    except (OSError, ValueError) as error:  # a file of the token or of TLS
        fail(str(error), WRONG_USE)
    async with sender:
        yield sender


async def _runs_there(sender: Sender) -> str:
    """Return which runs there are, for a user who named another."""
    try:
        names = [one.name for one in (await sender.send(list_runs(_MOST_RUNS + 1))).runs]
    except LachesisError:
        return "the runs cannot be listed"
    if not names:
        return "nobody has made one yet"
    return f"there are: {', '.join(names[:_MOST_RUNS])}{', …' if len(names) > _MOST_RUNS else ''}"


def note(message: str) -> None:
    """Print a line for people to stderr, apart from the output."""
    typer.echo(f"lachesis: {printable(' '.join(message.split()))}", err=True)


def fail(message: str, code: int) -> NoReturn:
    """Print a line to stderr, and exit."""
    note(message)
    raise typer.Exit(code)
