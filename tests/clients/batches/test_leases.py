"""When a lease is extended: at the real service, with pauses that are recorded and not waited for."""

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from opentelemetry.sdk.trace import TracerProvider

from lachesis import AsyncEnvironment, LeaseLost, Settings
from lachesis._prefetch.leased import HeldLease
from lachesis._transport.http import Sender
from lachesis._transport.protocol import LeaseCalls
from lachesis._transport.run_calls import RunCalls, Taken
from lachesis.wire.batches import TakeBatch
from tests.clients.run import group, submitted
from tests.waiting import wait_until

Refusal = tuple[int, dict[str, Any], dict[str, str]]
"""Status, body and headers."""

LEASE_S = 90.0


def busy(retry_after_s: int) -> Refusal:
    problem = {"code": "store_unavailable", "detail": "Redis does not answer"}
    return 503, problem, {"Retry-After": str(retry_after_s)}


class Gate:
    """A gateway before the service. It answers the first requests with refusals, and forwards the others.

    Attributes:
        requests: Path and body of each request.
        traced: Whether each request names a span.
        pauses_s: The pauses of the SDK.
        is_over: Set before the last pause, which does not end.
    """

    def __init__(self, upstream: str, refusals: Sequence[Refusal], pauses: int) -> None:
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.traced: list[bool] = []
        self.pauses_s: list[float] = []
        self.is_over = asyncio.Event()
        self._upstream = upstream
        self._refusals = list(refusals)
        self._pauses = pauses

    async def sleep(self, pause_s: float) -> None:
        self.pauses_s.append(pause_s)
        if len(self.pauses_s) == self._pauses:
            self.is_over.set()
            await asyncio.Event().wait()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        (length,) = [int(line.partition(":")[2]) for line in head if line.lower().startswith("content-length:")]
        path, body = head[0].split()[1], json.loads(await reader.readexactly(length))
        self.requests.append((path, body))
        self.traced.append(any(line.lower().startswith("traceparent:") for line in head))
        status, reply, headers = self._refusals.pop(0) if self._refusals else await self._forwarded(path, body)
        sent = json.dumps(reply).encode()
        lines = [f"HTTP/1.1 {status} Said", f"Content-Length: {len(sent)}", "Connection: close"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        writer.write("\r\n".join([*lines, "", ""]).encode() + sent)
        await writer.drain()
        writer.close()

    async def _forwarded(self, path: str, body: dict[str, Any]) -> Refusal:
        async with httpx.AsyncClient(base_url=self._upstream, trust_env=False) as client:
            reply = await client.post(path, json=body)
        return reply.status_code, reply.json(), {}


@pytest.fixture
async def held(run: Settings) -> tuple[str, LeaseCalls]:
    """Return the URL of the service and the lease of a batch, for 90 s."""
    async with AsyncEnvironment("math", run) as environment:
        await submitted(environment, [group(1), group(2)])
    calls = RunCalls("math")
    async with Sender(run) as sender:
        taken = await sender.send(calls.take(TakeBatch(lease_s=LEASE_S), 5))
    assert isinstance(taken, Taken)
    return run.url, calls.lease(taken.info.batch, taken.info.lease)


@asynccontextmanager
async def kept(
    held: tuple[str, LeaseCalls], *refusals: Refusal, pauses: int, asked_s: float | None = None
) -> AsyncIterator[tuple[HeldLease, Gate]]:
    """Keep extending a lease through a gateway."""
    gate = Gate(held[0], refusals, pauses)
    server = await asyncio.start_server(gate.answer, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server, Sender(Settings(url, run="math"), sleep=gate.sleep) as sender:
        lease = HeldLease(held[1], LEASE_S, sender, asked_s)
        yield lease, gate
        lease.forget()


async def test_a_lease_is_extended_when_a_third_of_it_has_passed(held: tuple[str, LeaseCalls]) -> None:
    async with kept(held, pauses=3, asked_s=120.0) as (lease, gate):
        await asyncio.wait_for(gate.is_over.wait(), 90)
        assert lease.held
    assert gate.pauses_s == pytest.approx([30, 40, 40])
    assert gate.requests == [(f"{held[1].path}/extend", {"lease": held[1].lease, "lease_s": 120.0})] * 2


async def test_an_extension_that_was_refused_for_a_moment_is_tried_again_after_a_second(
    held: tuple[str, LeaseCalls],
) -> None:
    """The gateway asks for more patience than the lease has: the request is not repeated, but the next one comes."""
    async with kept(held, busy(retry_after_s=1000), pauses=3, asked_s=120.0) as (lease, gate):
        await asyncio.wait_for(gate.is_over.wait(), 90)
        assert lease.held
    assert gate.pauses_s == pytest.approx([30, 1, 40])


@pytest.mark.parametrize(("retry_after_s", "repeated"), [(59, True), (61, False)])
async def test_an_extension_is_repeated_only_while_the_lease_lasts(
    held: tuple[str, LeaseCalls], retry_after_s: int, repeated: bool
) -> None:
    """Of 90 s, 60 are left when it is extended."""
    async with kept(held, busy(retry_after_s), pauses=3, asked_s=120.0) as (_, gate):
        await asyncio.wait_for(gate.is_over.wait(), 90)
    first, between, last = gate.pauses_s
    assert (first, last) == (pytest.approx(30), pytest.approx(40))
    assert 59 <= between <= 59.1 if repeated else between == 1


async def test_extensions_do_not_belong_to_the_span_in_which_the_lease_began(held: tuple[str, LeaseCalls]) -> None:
    with TracerProvider().get_tracer("tests").start_as_current_span("step"):
        async with kept(held, pauses=2) as (lease, gate):
            await asyncio.wait_for(gate.is_over.wait(), 90)
            await lease.ack()
    assert [path.rpartition("/")[2] for path, _ in gate.requests] == ["extend", "ack"]
    assert gate.traced == [False, True]


async def test_a_lease_that_was_lost_is_not_extended_any_more(held: tuple[str, LeaseCalls], run: Settings) -> None:
    async with Sender(run) as other:
        await other.send(held[1].nack("by another process"))
    async with kept(held, pauses=3) as (lease, gate):
        await asyncio.wait_for(lease._extending, 90)
        assert not lease.held
        assert len(gate.requests) == 1
        with pytest.raises(LeaseLost, match="was put back"):
            await lease.ack()


async def test_a_step_that_blocks_the_event_loop_is_logged_once_for_all_leases(
    held: tuple[str, LeaseCalls], run: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    async with Sender(run) as sender:
        leases = [HeldLease(held[1], 0.3, sender, None) for _ in range(2)]
        await asyncio.sleep(0)  # they begin to wait for a third of that
        time.sleep(0.5)  # noqa: ASYNC251 - as a step does that is not in a thread
        await wait_until(lambda: "s ago: the event loop was blocked" in caplog.text)
        for lease in leases:
            lease.forget()
    (line,) = [record.getMessage() for record in caplog.records if "should have been extended" in record.getMessage()]
    assert re.match(r"a lease of 0\.3 s should have been extended \d+\.\d s ago: ", line)


async def test_an_extension_that_was_refused_is_tried_again_while_the_lease_lasts(
    held: tuple[str, LeaseCalls], caplog: pytest.LogCaptureFixture
) -> None:
    """A token may end before its successor is written, and a gateway may answer while the service restarts."""
    unauthorized = (401, {"code": "unauthorized", "detail": "the token has ended"}, {})
    from_gateway = (404, {"message": "no such page"}, {})
    async with kept(held, unauthorized, from_gateway, pauses=4, asked_s=120.0) as (lease, gate):
        await asyncio.wait_for(gate.is_over.wait(), 90)
        assert lease.held
    assert gate.pauses_s == pytest.approx([30, 1, 1, 40])
    assert caplog.text.count("The lease is extended again in 1 s") == 1


async def test_a_lease_whose_run_was_deleted_is_not_extended_any_more(held: tuple[str, LeaseCalls]) -> None:
    refusal = (404, {"code": "run_not_found", "detail": "there is no run math"}, {})
    async with kept(held, refusal, pauses=3) as (lease, gate):
        await asyncio.wait_for(lease._extending, 90)
        assert not lease.held
    assert gate.pauses_s == pytest.approx([30])
