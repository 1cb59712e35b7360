"""Measure what the security headers cost an answer: CPU time in the API process, with and without.

    python -m benchmarks.headers

uvicorn writes the answer of a submission to a transport that drops it. The figure to compare with is the CPU time of a
whole native submission (`python -m benchmarks`).
"""

import asyncio
import time
from typing import Any, cast

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from app.api.http.security_headers import with_security_headers

ANSWERS, ROUNDS = 20_000, 9
OWN = [(b"content-length", b"33"), (b"content-type", b"application/json")]


class Nowhere(asyncio.Transport):
    """A transport that drops what is written."""

    def write(self, data: Any) -> None:
        """Drop the data."""


async def cost_us(*, secured: bool) -> float:
    """Return the CPU time of an answer, microseconds: the least of several rounds."""
    transport, event, best = Nowhere(), asyncio.Event(), float("inf")
    fixed: dict[str, Any] = {"scope": {"method": "POST"}, "transport": transport, "flow": FlowControl(transport)}
    fixed |= {"logger": None, "access_logger": None, "access_log": False, "default_headers": [(b"date", b"x" * 29)]}
    fixed |= {"message_event": event, "expect_100_continue": False, "keep_alive": True, "on_response": lambda: None}
    for _ in range(ROUNDS):
        cycles = [RequestResponseCycle(**fixed) for _ in range(ANSWERS)]
        began = time.process_time()
        for cycle in cycles:
            headers = with_security_headers(OWN) if secured else OWN
            await cycle.send({"type": "http.response.start", "status": 200, "headers": cast("Any", headers)})
            await cycle.send({"type": "http.response.body", "body": b"x" * 33})
        best = min(best, (time.process_time() - began) / ANSWERS)
    return best * 1e6


async def measure() -> None:
    """Print both figures."""
    without, secured = await cost_us(secured=False), await cost_us(secured=True)
    print(f"without: {without:.1f} us an answer; with: {secured:.1f} us; difference: {secured - without:.1f} us")


if __name__ == "__main__":
    asyncio.run(measure())
