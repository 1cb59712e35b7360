"""Traces lead from a permit to the acknowledgement of a batch, through two services, to a real collector."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import Tracer

from app.store.server.embedded import EmbeddedRedis
from lachesis import Environment, Group, Settings, Trainer
from tests.collector import Collector, collector
from tests.e2e.processes import wait_until
from tests.process.test_serve import ROOT, Serve, Served, serve

__all__ = ["serve"]  # a fixture
pytestmark = pytest.mark.long


@pytest.fixture
def collecting() -> Iterator[Collector]:
    with collector() as made:
        yield made


@pytest.fixture
def services(serve: Serve, tmp_path: Path, collecting: Collector) -> Iterator[tuple[Served, Served]]:
    """Two services on one Redis, which send traces to the collector."""
    to_collector = {"OTEL_EXPORTER_OTLP_ENDPOINT": collecting.url, "OTEL_BSP_SCHEDULE_DELAY": "50"}
    with EmbeddedRedis.start(tmp_path / "redis") as redis:
        one, other = (serve(["app", "serve"], LACHESIS_REDIS_URL=redis.url, **to_collector) for _ in range(2))
        yield one, other
        one.end()
        other.end()


def tracer(provider: TracerProvider | None = None) -> Tracer:
    return (provider or TracerProvider()).get_tracer("tests")


def group(number: int) -> Group:
    return Group(tokens=[[1, 2, 3]] * 2, masks=[[1, 2, 3]] * 2, scores=[0.0, 1.0], id=f"group-{number}")


def rollouts(url: str, traced: Tracer, numbers: range) -> dict[str, str]:
    """Make groups, each with a permit and in a span of its own. Return the spans' ids by those of their traces."""
    spans = {}
    with Environment("gsm8k", Settings(url, run="math")) as environment:
        for number in numbers:
            with traced.start_as_current_span("rollout") as span, environment.permit():
                environment.submit(group(number))
            context = span.get_span_context()
            spans[f"{context.trace_id:032x}"] = f"{context.span_id:016x}"
        environment.flush()
    return spans


def test_a_trace_leads_from_the_permit_to_the_acknowledgement(
    services: tuple[Served, Served], collecting: Collector
) -> None:
    intake, outlet = services
    traced, unseen = tracer(), tracer(TracerProvider(sampler=ALWAYS_OFF))
    with Trainer(Settings(outlet.url, run="math")) as trainer:
        trainer.create_run(batch_size=6)
        spans = rollouts(intake.url, traced, range(2))
        rollouts(intake.url, unseen, range(2, 3))
        with traced.start_as_current_span("step") as step:
            batch = trainer.take()
            batch.ack()
        wait_until("all have come", lambda: len(collecting.spans) == 6)
    submissions, (taken,) = collecting.named("submit groups"), collecting.named("take batch")
    assert {one.trace: one.parent for one in submissions} == spans, "each has its rollout's span, others are not sent"
    assert [one.facts["lachesis.group_ids"] for one in submissions] == [["group-0"], ["group-1"]]
    permits = collecting.named("heartbeat")  # a run with room grants each at once
    assert {one.trace: one.parent for one in permits} == spans, "a heartbeat without a permit is in no trace"
    (acknowledged,) = collecting.named("acknowledge batch")
    in_step = f"{step.get_span_context().trace_id:032x}", f"{step.get_span_context().span_id:016x}"
    assert {(one.trace, one.parent) for one in (taken, acknowledged)} == {in_step}
    assert taken.links == {one.id for one in submissions}
    assert acknowledged.links == {taken.id}
    assert taken.facts["lachesis.batch"] == acknowledged.facts["lachesis.batch"]
    assert (taken.facts["lachesis.step"], taken.facts["lachesis.groups"]) == (1, 3)
    assert taken.facts["http.response.status_code"] == 201
    assert {one.service["process.pid"] for one in submissions} != {taken.service["process.pid"]}
    assert {one.service["service.name"] for one in collecting.spans} == {"lachesis"}


def test_requests_without_a_trace_begin_their_own_and_errors_are_noted(
    services: tuple[Served, Served], collecting: Collector
) -> None:
    url = services[0].url
    with httpx.Client(base_url=url, trust_env=False) as client:
        assert client.post("/v1/runs", json={"name": "math", "batch_size": 2}).status_code == 201
        sent = {"id": "a", "tokens": [[1]] * 2, "masks": [[1]] * 2, "scores": [0, 1]}
        for header in ("", "nonsense", "00-" + "0" * 32 + "-" + "0" * 16 + "-01", "x" * 8000):
            reply = client.post("/v1/runs/math/groups", json=sent, headers={"traceparent": header})
            assert reply.status_code == 201, reply.text
        assert client.post("/v1/runs/math/groups", json={"id": "b"}).status_code == 422
        assert client.post("/v1/runs/other/groups", json=sent).status_code == 404
        assert client.post("/v1/runs/math/batches/0f/ack", json={"lease": "x"}).status_code == 404
        assert client.post("/v1/runs/math/batches/None/ack", json={"lease": "x"}).status_code == 422
        taken = client.post("/v1/runs/math/batches")
        assert taken.status_code == 201
        assert client.post("/v1/runs/math/batches").status_code == 204
        wait_until("all have come", lambda: len(collecting.spans) == 10)
    submissions = collecting.named("submit groups")
    assert {one.parent for one in collecting.spans} == {""}
    assert len({one.trace for one in collecting.spans}) == len(collecting.spans)
    statuses = [one.facts["http.response.status_code"] for one in submissions]
    assert statuses == [201, 201, 201, 201, 422, 404]
    assert [one.facts.get("error.type") for one in submissions[4:]] == ["invalid_field", "run_not_found"]
    acknowledged = collecting.named("acknowledge batch")
    assert [one.facts.get("error.type") for one in acknowledged] == ["batch_not_found", "invalid_field"]
    assert not any(one.failed for one in collecting.spans), "the service has not failed"
    batch, waiting = collecting.named("take batch")
    assert batch.links == {submissions[3].id}, "the last submission of a group counts"
    assert (waiting.facts["http.response.status_code"], waiting.links) == (204, frozenset())


def test_a_service_without_a_collector_loads_nothing_and_a_wrong_protocol_is_said(serve: Serve) -> None:
    service = serve(
        ["app", "serve"], OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9", OTEL_EXPORTER_OTLP_PROTOCOL="grpc"
    )
    assert "only http/protobuf is supported" in service.complained
    code = (
        "import lachesis, sys; print('opentelemetry' in sys.modules); "
        "import app.main; print('opentelemetry.exporter' in sys.modules)"  # redis-py loads the rest
    )
    env = os.environ | {"PYTHONPATH": "clients"}
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=env, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_a_collector_that_is_away_delays_nothing(serve: Serve) -> None:
    service = serve(["app", "serve"], OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9", OTEL_BSP_SCHEDULE_DELAY="50")
    with httpx.Client(base_url=service.url, trust_env=False) as client:
        assert client.post("/v1/runs", json={"name": "math", "batch_size": 2}).status_code == 201
        sent = {"id": "a", "tokens": [[1]] * 2, "masks": [[1]] * 2, "scores": [0, 1]}
        assert client.post("/v1/runs/math/groups", json=sent).status_code == 201
        assert client.post("/v1/runs/math/batches").status_code == 201
        wait_until("the log says that spans are lost", lambda: "opentelemetry.exporter" in service.complained)
    service.process.terminate()
    assert service.process.wait(20) == 0
