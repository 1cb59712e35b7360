"""What a rule costs, on any machine and however busy it is."""

import sys
from collections.abc import Callable
from typing import Any


def calls_of(function: Callable[[], object]) -> int:
    """Count the calls of functions, in Python and C, that a call leads to."""
    calls = 0

    def count(_frame: object, event: str, _argument: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        function()
    finally:
        sys.setprofile(None)
    return calls
