"""All commands that need the extra ``cli``: their names, and where they are."""

from collections.abc import Callable, Mapping

import typer

from lachesis._cli import doctor, groups, runs, transfer
from lachesis._cli.usage import Commands
from lachesis._exit_codes import WELL, WRONG_USE

cli = typer.Typer(
    name="lachesis",
    cls=Commands,
    help="Lachesis from the command line: look at runs and groups of a service.",
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
COMMANDS: Mapping[str, Callable[..., None]] = {
    "status": runs.status,
    "top": runs.top,
    "explain": runs.explain,
    "events": runs.events,
    "groups": groups.groups,
    "show": groups.show,
    "doctor": doctor.doctor,
    "export": transfer.export_groups,
    "import": transfer.import_groups,
}
"""The commands by name. `python -m app` has them, too."""

for name, command in COMMANDS.items():
    cli.command(name)(command)


def run_words(words: list[str], program: str) -> int:
    """Run a command line, and return the exit code.

    Args:
        words: The command and its arguments.
        program: How the user calls the program. Completion of the shell works for a single word.
    """
    try:
        cli(words, prog_name=program)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else WRONG_USE
    return WELL
