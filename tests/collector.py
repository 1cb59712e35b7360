"""A collector of traces: it takes OTLP over HTTP, and keeps the spans."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import KeyValue


@dataclass(frozen=True)
class Span:
    """A span as it came: ids in hexadecimal; links are ids of spans."""

    name: str
    trace: str
    id: str
    parent: str
    links: frozenset[str]
    facts: dict[str, Any]
    service: dict[str, Any]
    failed: bool


class Collector(ThreadingHTTPServer):
    """The collector. `spans` may be read at any time."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.spans: list[Span] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def named(self, name: str) -> list[Span]:
        return [span for span in self.spans if span.name == name]


@contextmanager
def collector() -> Iterator[Collector]:
    """Collect until the block ends."""
    with Collector() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        assert self.path == "/v1/traces"
        assert self.headers["Content-Type"] == "application/x-protobuf"
        request = ExportTraceServiceRequest.FromString(self.rfile.read(int(self.headers["Content-Length"])))
        for resource in request.resource_spans:
            service = _facts(resource.resource.attributes)
            for span in (span for scope in resource.scope_spans for span in scope.spans):
                self.server.spans.append(
                    Span(
                        span.name,
                        span.trace_id.hex(),
                        span.span_id.hex(),
                        span.parent_span_id.hex(),
                        frozenset(link.span_id.hex() for link in span.links),
                        _facts(span.attributes),
                        service,
                        failed=span.status.code == 2,
                    )
                )
        reply = ExportTraceServiceResponse().SerializeToString()
        self.send_response(200)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)

    def log_message(self, *_: Any) -> None:
        """Write no line to stderr for each request."""


def _facts(attributes: Any) -> dict[str, Any]:
    return {one.key: _value(one) for one in attributes}


def _value(one: KeyValue) -> Any:
    kind = one.value.WhichOneof("value")
    if kind == "array_value":
        return [value.string_value for value in one.value.array_value.values]
    return getattr(one.value, str(kind))
