"""How commands end: after wrong use, and when the reader of their output has gone."""

import os
import sys
from typing import Any

import typer
from typer.core import TyperGroup

from lachesis._exit_codes import PIPE_CLOSED


class Commands(TyperGroup):
    """Commands that end as those of a shell do. Messages about wrong values have no prefix of pydantic."""

    def invoke(self, ctx: Any) -> Any:
        """Carry out the command line."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            error.message = error.message.removeprefix("Value error, ")
            raise
        except BrokenPipeError:  # typer would exit with 1, which means that something is wrong
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what Python flushes at its end
            raise typer.Exit(PIPE_CLOSED) from None
