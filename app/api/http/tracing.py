"""Trace submissions, batches and their ends with OpenTelemetry, if a variable names a collector.

A request is a span, below the span of its sender if that sends a header ``traceparent``. The span of a batch has links
to those of its submissions, and the end of a batch to that of the batch. Workers and trainers have traces of their own.
A route adds what it knows to the span of its request. Without a collector, there are no spans.

OpenTelemetry is optional, so it is imported where it is used.
"""

import asyncio
import importlib.util
import logging
import os
import threading
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from os import environ
from typing import TYPE_CHECKING, Any, TypeVar

from fastapi import Request, Response

from app.api.http.problems import as_service_error
from app.services.traces import TraceLinks

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span, SpanContext

INSTALL = "python -m pip install --require-hashes -r requirements/otel.lock"

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_PROTOCOL = "http/protobuf"
_ENDPOINT_SPANS = "lachesis_spans"
_SPAN = "lachesis.span"
_MOST_IDS = 32  # of groups, on the span of their submission
_STOPPING_S, _STOPPING_PAUSE_S = 2.0, 0.01
_SERVER_ERROR = 500

log = logging.getLogger("lachesis.tracing")

E = TypeVar("E", bound=Callable[..., Any])
Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class Tracing:
    """The spans of one process.

    Args:
        provider: Makes the spans and sends them.
        links: Keeps contexts for later requests.
    """

    def __init__(self, provider: "TracerProvider", links: TraceLinks) -> None:
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._provider = provider
        self._tracer = provider.get_tracer("lachesis")
        self._propagator = TraceContextTextMapPropagator()
        self._links = links

    def begin(self, request: Request, name: str, *, only_below: bool) -> "RequestSpan | None":
        """Start the span of a request. None: it is not recorded, or has no parent and ``only_below`` is set."""
        from opentelemetry import trace

        parent = self._propagator.extract(request.headers)
        if only_below and not trace.get_current_span(parent).get_span_context().is_valid:
            return None
        run = request.path_params["run"]
        attributes = {"http.request.method": request.method, "lachesis.run": run}
        span = self._tracer.start_span(name, parent, trace.SpanKind.SERVER, attributes)
        return RequestSpan(self, self._links, run, span) if span.is_recording() else None

    def parsed(self, text: str) -> "SpanContext":
        """Read a context that was kept."""
        from opentelemetry import trace

        return trace.get_current_span(self._propagator.extract({"traceparent": text})).get_span_context()

    async def stop(self) -> None:
        """Send the spans that are left, for a moment."""
        stopping = threading.Thread(target=self._provider.shutdown, daemon=True)  # a collector that is away holds it
        stopping.start()
        with suppress(TimeoutError):
            async with asyncio.timeout(_STOPPING_S):
                while stopping.is_alive():  # noqa: ASYNC110 - a thread cannot be awaited
                    await asyncio.sleep(_STOPPING_PAUSE_S)


class RequestSpan:
    """The span of one request, which is recorded."""

    def __init__(self, tracing: Tracing, links: TraceLinks, run: str, span: "Span") -> None:
        self._tracing = tracing
        self._links = links
        self._run = run
        self._span = span

    def answered(self, status: int) -> None:
        """Note the status of the answer."""
        self._span.set_attribute("http.response.status_code", status)

    def failed(self, error: Exception) -> None:
        """Note an error. Only those of the service, with a status of 500 and more, are failures of the span."""
        from opentelemetry.trace import Status, StatusCode

        known = as_service_error(error)
        code, status = ("bug", _SERVER_ERROR) if known is None else (known.code, known.status)
        self._span.set_attribute("error.type", code)
        self.answered(status)
        if status >= _SERVER_ERROR:
            self._span.set_status(Status(StatusCode.ERROR))

    def end(self) -> None:
        """End the span. From now on it may be sent."""
        self._span.end()

    async def submits(self, group_ids: Sequence[str]) -> None:
        """Keep the context for the groups of a submission, before any batch can have them."""
        self._span.set_attribute("lachesis.groups", len(group_ids))
        self._span.set_attribute("lachesis.group_ids", group_ids[:_MOST_IDS])
        await self._links.keep_groups(self._run, group_ids, self._context)

    async def takes(self, batch_id: str, step: int, group_ids: Sequence[str]) -> None:
        """Link the span to the submissions of the groups of a batch, and keep the context for the batch."""
        self._span.set_attribute("lachesis.batch", batch_id)
        self._span.set_attribute("lachesis.step", step)
        self._span.set_attribute("lachesis.groups", len(group_ids))
        self._link(await self._links.of_groups(self._run, group_ids))
        await self._links.keep_batch(self._run, batch_id, self._context)

    async def ends(self, batch_id: str) -> None:
        """Link the span to that of the batch which it ends."""
        self._span.set_attribute("lachesis.batch", batch_id)
        self._link(await self._links.of_batch(self._run, batch_id))

    @property
    def _context(self) -> str:
        context = self._span.get_span_context()
        return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"

    def _link(self, kept: Iterable[str]) -> None:
        for text in kept:
            self._span.add_link(self._tracing.parsed(text))


def start_tracing(links: TraceLinks) -> Tracing | None:
    """Start to trace, if the variables of OpenTelemetry name a collector. None: they do not, or the log says why."""
    off = environ.get("OTEL_SDK_DISABLED", "").lower() == "true" or environ.get("OTEL_TRACES_EXPORTER") == "none"
    if off or not any(environ.get(name) for name in _ENDPOINTS):
        return None
    protocol = next((environ[name] for name in _PROTOCOLS if environ.get(name)), _PROTOCOL)
    if protocol != _PROTOCOL:
        log.warning("no traces: a variable asks for OTLP over %s, and only %s is supported", protocol, _PROTOCOL)
        return None
    if not _is_installed():
        log.warning("no traces: a variable names a collector, but OpenTelemetry is not installed: `%s`", INSTALL)
        return None
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import SERVICE_NAME, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    named = environ.get("OTEL_SERVICE_NAME") or "service.name=" in environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    own: dict[str, str | int] = {"process.pid": os.getpid()} | ({} if named else {SERVICE_NAME: "lachesis"})
    provider = TracerProvider(resource=Resource.create(own))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return Tracing(provider, links)


def _is_installed() -> bool:
    try:
        return importlib.util.find_spec("opentelemetry.exporter.otlp.proto.http") is not None
    except ModuleNotFoundError:  # of a parent
        return False


def spans(name: str, *, only_below: bool = False) -> Callable[[E], E]:
    """Declare that requests of a route in a run are spans of this name, if the process traces.

    Args:
        name: The name.
        only_below: Whether only requests with a ``traceparent`` are spans.
    """

    def declare(endpoint: E) -> E:
        setattr(endpoint, _ENDPOINT_SPANS, (name, only_below))
        return endpoint

    return declare


def traced(answer: Handler, endpoint: Callable[..., Any]) -> Handler:
    """Wrap the handler of a route whose endpoint declares `spans`. Others stay as they are."""
    declared = getattr(endpoint, _ENDPOINT_SPANS, None)
    if declared is None:
        return answer
    name, only_below = declared

    def watched(request: Request) -> Coroutine[Any, Any, Response]:
        tracing: Tracing | None = request.scope["state"]["services"].tracing
        span = None if tracing is None else tracing.begin(request, name, only_below=only_below)
        return answer(request) if span is None else _in_span(span, answer, request)

    return watched


async def _in_span(span: RequestSpan, answer: Handler, request: Request) -> Response:
    request.scope[_SPAN] = span
    try:
        reply = await answer(request)
        span.answered(reply.status_code)
        return reply
    except Exception as error:
        span.failed(error)
        raise
    finally:
        span.end()


def span_of(request: Request) -> RequestSpan | None:
    """Return the span of a request; None if it has none."""
    return request.scope.get(_SPAN)
