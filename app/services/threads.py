"""Run work that may take long in a thread, so that it does not delay other requests."""

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

MANY_PLACES = 100_000
"""A random draw from so many takes at most some ten milliseconds."""

MANY_LANES = 128
"""So many lanes are not all read, and decisions about them are made in a thread."""

MANY_GROUPS = 4000
"""Decisions about so many groups are made in a thread: they take some ten milliseconds."""

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


async def in_thread_if(
    is_large: bool, work: Callable[_Arguments, _Result], *args: _Arguments.args, **kwargs: _Arguments.kwargs
) -> _Result:
    """Return ``work(*args, **kwargs)``, computed in a thread if it is large."""
    if is_large:
        return await asyncio.to_thread(work, *args, **kwargs)
    return work(*args, **kwargs)
