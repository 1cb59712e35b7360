"""The command line for operators: `python -m app serve | token | backup | doctor | …`, and the commands of the SDK."""

import sys
from json import dumps as json_text
from typing import Annotated

import typer

from app.cli.backups import backup, restore
from app.cli.doctor import doctor
from app.cli.output import fail, show_json
from app.cli.own_service import ServiceOfThisMachine, usable_settings
from app.cli.shards import shards_cli
from app.cli.tokens import tokens_cli
from app.process.signals import raise_on_stop_signals
from app.settings import ServiceSettings
from app.tuning import no_collection
from app.version import lachesis_version
from lachesis._cli.commands import COMMANDS
from lachesis._cli.session import own_service
from lachesis._cli.usage import Commands

cli = typer.Typer(
    name="lachesis",
    cls=Commands,
    help="Lachesis: exact, fair, durable batches between rollout workers and trainers.",
    add_completion=False,  # a shell completes by the first word of a command, which is `python` here
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
cli.add_typer(shards_cli, name="shards")
cli.add_typer(tokens_cli, name="token")
cli.command()(backup)
cli.command()(restore)
cli.command()(doctor)


def main() -> None:
    """Run the command line."""
    raise_on_stop_signals()
    cli(prog_name="python -m app")


@cli.callback(invoke_without_command=True)
def _help(
    context: typer.Context, version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False
) -> None:
    own_service.set(ServiceOfThisMachine())
    if version:
        typer.echo(_version())
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@cli.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def serve(context: typer.Context) -> None:
    """Start the service, with an embedded Valkey or your Redis.

    It starts the embedded Valkey unless LACHESIS_REDIS_URL names another.

    Settings are environment variables, or lines of a .env file: LACHESIS_HOST,
    LACHESIS_PORT, LACHESIS_DATA_DIR, LACHESIS_REDIS_URL, LACHESIS_WORKERS and
    others. docs/reference/service-settings.md has all of them.
    """
    if context.args:
        fail(f"serve takes no arguments, not {context.args[0]!r}: {_meant(context.args[0])} (see serve --help)", 2)
    settings = usable_settings()
    with no_collection():
        from app.process.serve import serve as run  # late: the other commands need not wait for it

    sys.exit(run(settings))


@cli.command()
def version(json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Print the version."""
    if json:
        show_json(json_text({"version": lachesis_version()}))
    else:
        typer.echo(_version())


for _name, _command in COMMANDS.items():
    if _name != "doctor":  # the server has its own
        cli.command(_name)(_command)


def _version() -> str:
    return f"lachesis {lachesis_version()}"


def _meant(option: str) -> str:
    """Return a hint at the variable for an option, such as ``--port=80``."""
    name = option.lstrip("-").partition("=")[0].replace("-", "_")
    return (
        f"LACHESIS_{name.upper()} sets it" if name in ServiceSettings.model_fields else "LACHESIS_* variables set all"
    )
