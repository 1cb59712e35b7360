"""Pass the trace of the caller on to the service (W3C Trace Context), if the caller uses OpenTelemetry.

The SDK makes no spans, and does not depend on OpenTelemetry: without it in the process, nothing is traced.
"""

import asyncio
import contextvars
import sys
from collections.abc import Coroutine, Mapping
from typing import Any

TraceHeaders = Mapping[str, str]
"""The headers that name a span: ``traceparent``, and maybe ``tracestate``. Empty without one."""


def trace_headers() -> TraceHeaders:
    """Return the headers that name the present span of the caller."""
    if "opentelemetry.trace" not in sys.modules:  # who has a span has imported it
        return {}
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    headers: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(headers)
    return headers


def go_together(one: TraceHeaders, other: TraceHeaders) -> bool:
    """Return whether groups of two spans can be in one request: it has one span, unless nobody records them."""
    return one == other or not (_is_recorded(one) or _is_recorded(other))


def create_untraced_task(coroutine: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
    """Start a task that belongs to no span, because it goes on when the present one has ended."""
    return contextvars.Context().run(asyncio.create_task, coroutine)


def _is_recorded(headers: TraceHeaders) -> bool:
    return bool(int(headers.get("traceparent", "0")[-2:], 16) & 1)
