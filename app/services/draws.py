"""Run random draws: those that may take long in a thread, so that they do not delay other requests."""

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

_MANY_PLACES = 100_000  # a draw from these takes at most some ten milliseconds

_Arguments = ParamSpec("_Arguments")
_Drawn = TypeVar("_Drawn")


async def run_draw(
    places: int, draw: Callable[_Arguments, _Drawn], *args: _Arguments.args, **kwargs: _Arguments.kwargs
) -> _Drawn:
    """Return ``draw(*args, **kwargs)``, computed in a thread if it chooses from more than 100,000 places."""
    if places > _MANY_PLACES:
        return await asyncio.to_thread(draw, *args, **kwargs)
    return draw(*args, **kwargs)
