"""Messages about wrong use of a command."""

from typing import Any

import typer
from typer.core import TyperGroup


class Commands(TyperGroup):
    """Commands whose messages about wrong values leave out pydantic's prefix, which typer lets through."""

    def invoke(self, ctx: Any) -> Any:
        """Carry out the command line."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            error.message = error.message.removeprefix("Value error, ")
            raise
