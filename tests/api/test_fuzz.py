"""Thousands of requests nobody should send: none costs a 5xx, a group, or much memory.

`LACHESIS_FUZZ_SEED` says where to start (`tests/seeds.py`).
"""

import asyncio
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from redis.asyncio import Redis

from app.store.redis.keys import RunKeys
from tests.api.atropos_calls import group, marks, registration, sequences
from tests.api.mutations import Request, mutated_request
from tests.properties import briefly_and_at_length
from tests.seeds import FUZZ, seed_of
from tests.services.accounting import books_once_settled

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
CONNECTIONS = 8
TRAINER_PAUSE_S = 0.2
MOST_GROWTH_KIB = 250 * 1024
"""Eight requests at once may each inflate to 40 MB before they are refused; what is kept is far less."""


@dataclass(frozen=True, slots=True)
class Service:
    """A service as operators start it, with one worker."""

    url: str
    process: "subprocess.Popen[str]"

    def resident_kib(self) -> int:
        """Memory its process has now, KiB."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0])


@pytest.fixture(scope="module")
def seed() -> int:
    """What this run's randomness starts from."""
    return seed_of(FUZZ)


@pytest.fixture(scope="module")
def service(redis_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    settings = {
        "LACHESIS_PORT": "0",
        "LACHESIS_WORKERS": "1",
        "LACHESIS_REDIS_URL": redis_url,
        "LACHESIS_HEADER_TIMEOUT_S": "2",
        "LACHESIS_BODY_TIMEOUT_S": "2",
        "LACHESIS_MAX_REFUSALS_PER_S": "1e9",  # most requests are wrong, and none of them has to wait
        "LACHESIS_INSECURE": "1",  # or the first token that the fuzzer creates would lock it out
        "PYTHONPATH": str(ROOT / "clients"),
    }
    log = tmp_path_factory.mktemp("fuzz") / "service.log"
    with log.open("w") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", "app", "serve"],
            cwd=ROOT,
            env=os.environ | settings,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )
    with process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert "listening on http" in line, log.read_text()
        yield Service(line.partition("listening on ")[2].split()[0], process)
        process.terminate()
    assert process.returncode == 0, log.read_text()


@dataclass(frozen=True, slots=True)
class Reply:
    """An HTTP reply, as far as it matters here."""

    status: int
    content_type: str
    body: bytes
    last: bool


@dataclass(slots=True)
class Tally:
    """What came of the requests.

    Attributes:
        replies: How many were answered with each status; 0 stands for none.
        accepted: Groups answered 200.
        wrong: The first wrong answers, each with its request.
    """

    replies: Counter[int] = field(default_factory=Counter)
    accepted: int = 0
    wrong: list[str] = field(default_factory=list)

    def note(self, request: Request, reply: Reply | None) -> None:
        self.replies[reply.status if reply else 0] += 1
        fault = fault_of(request, reply)
        if fault:
            self.wrong.append(f"{fault}\n  {request.kind}: {request.headers} {request.body[:1500]!r}\n  {reply}")
        elif reply and reply.status == 200:
            self.accepted += groups_accepted(request, json.loads(reply.body))


def fault_of(request: Request, reply: Reply | None) -> str | None:
    """Say what is wrong with an answer, or None."""
    if reply is None:
        return "no answer" if request.well_formed else None
    if reply.status == 200:
        return None if is_strict_json(request) else "accepted what is not JSON"
    if not 400 <= reply.status < 500:
        return f"status {reply.status}"
    if not request.well_formed:
        return None
    is_problem = reply.content_type == "application/problem+json" and json.loads(reply.body).get("code")
    return None if is_problem else "no problem details with a code"


def is_strict_json(request: Request) -> bool:
    """Return whether the standard library too finds JSON without NaN and infinities in the body as it is sent."""
    if any("encoding:" in header.lower() for header in request.headers) or not request.well_formed:
        return True
    try:
        json.loads(request.body, parse_constant=float.fromhex)
    except ValueError:
        return False
    return True


def groups_accepted(request: Request, answer: dict[str, Any]) -> int:
    if request.path == "/scored_data":
        return 1
    return int(answer["groups_processed"]) if request.path == "/scored_data_list" else 0


async def read_reply(reader: asyncio.StreamReader) -> Reply | None:
    """Read one reply; None if the server hung up instead."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").strip().split("\r\n")
        fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        body = await reader.readexactly(int(fields.get("content-length", 0)))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    return Reply(int(first.split()[1]), fields.get("content-type", ""), body, fields.get("connection") == "close")


async def send_all(url: str, base: str, requests: Iterator[Request], tally: Tally) -> None:
    """Send requests over one connection at a time, a new one where the server ends it or may have lost its place."""
    parts = urlsplit(url)
    writer: asyncio.StreamWriter | None = None
    for request in requests:
        if writer is None:
            reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        writer.write(request.wire(base))
        reply = await asyncio.wait_for(read_reply(reader), 30)
        tally.note(request, reply)
        if len(tally.wrong) >= 5:
            break
        if reply is None or reply.last or reply.status >= 500 or not request.well_formed:
            writer.close()
            writer = None
    if writer is not None:
        writer.close()


@briefly_and_at_length("count", 1_500, 20_000)
async def test_no_mutated_request_is_a_5xx_or_leaves_a_trace(
    service: Service, redis_url: str, seed: int, count: int
) -> None:
    run, rnd, tally = f"fuzz-{seed}-{count}", Random(seed), Tally()
    base = f"/runs/{run}/atropos"
    before_kib = service.resident_kib()
    requests = (mutated_request(rnd) for _ in range(count))
    async with httpx.AsyncClient(base_url=service.url + base, timeout=30) as trainer:
        training = asyncio.create_task(train(trainer))
        await asyncio.gather(*(send_all(service.url, base, requests, tally) for _ in range(CONNECTIONS)))
        assert not tally.wrong, "\n".join(tally.wrong)
        assert not training.done(), training.exception()
        training.cancel()
        await asyncio.wait({training})
    assert tally.replies.total() == count
    assert 0.1 < tally.replies[200] / count < 0.7, f"neither all refused nor all let through: {tally.replies}"
    assert service.resident_kib() - before_kib < MOST_GROWTH_KIB

    async with Redis.from_url(redis_url) as redis, httpx.AsyncClient(base_url=service.url + base, timeout=30) as client:
        books = await books_once_settled(redis, run)
        held = len(books["queued"] | books["buffered"] | books["leased"])
        dropped = (await client.get("/status")).json()["dropped"]
        assert dropped.keys() <= {"too_long"}, "of Atropos, sequences over max_token_len"
        assert held + books["delivered"] + sum(dropped.values()) == tally.accepted
        assert await redis.zcount(RunKeys(run).unreferenced, 0, "+inf") == 0, (
            "something was reserved for what was refused"
        )
        await everything_accepted_can_be_served(client)
        await books_once_settled(redis, run)
        await a_good_batch_is_served(client)


async def train(client: httpx.AsyncClient) -> None:
    """Take batches, so that requests also meet leases of every state."""
    while True:
        reply = await client.get("/batch")
        assert reply.status_code == 200, reply.text
        await asyncio.sleep(TRAINER_PAUSE_S)


async def everything_accepted_can_be_served(client: httpx.AsyncClient, batch_size: int = 256) -> None:
    """Take batches until there is none: each must be strict JSON, exact, and with all keys."""
    for environment in (await client.get("/status")).json()["environments"]:
        await client.post("/disconnect-env", json={"env_id": environment["id"]})
    await client.post("/register", json=registration(batch_size))
    served = 0
    while True:
        reply = await client.get("/batch")
        assert reply.status_code == 200, reply.text
        groups = json.loads(reply.content, parse_constant=float.fromhex)["batch"]
        if groups is None:
            break
        served += len(groups)
        assert sequences(groups) == batch_size
        assert {len(a_group) for a_group in groups} == {14}
    assert served > 0


async def a_good_batch_is_served(client: httpx.AsyncClient) -> None:
    await client.get("/reset_data")
    assert (await client.post("/register", json=registration(8))).status_code == 200
    for mark in range(2):
        assert (await client.post("/scored_data", json=group(4, mark))).status_code == 200
    assert marks((await client.get("/batch")).json()["batch"]) == [0, 1]


@briefly_and_at_length(
    ("phases", "examples", "cases"), ("examples,fuzzing", 2, 200), ("examples,coverage,fuzzing", 60, 4_000)
)
def test_replies_follow_the_schema(
    service: Service, seed: int, tmp_path: Path, phases: str, examples: int, cases: int
) -> None:
    """Schemathesis, every operation, valid data and invalid.

    Four checks are off: that all that the schema forbids is refused (numbers as strings are welcome), and that all it
    allows is accepted (rows that do not belong together are not; JSON Schema cannot say so), and that
    another method is 405, and `Allow` as the schema says (to DELETE the batch `explain` is 422, and allowed;
    `test_native_contract.py` looks at the others).
    """
    report = tmp_path / "report.json"
    (tmp_path / "schemathesis.toml").write_text('[parameters]\n"query.wait_s" = 0\n')  # nobody waits for nothing
    command = [sys.executable, "-m", "schemathesis.cli", "run", f"{service.url}/openapi.json", "--no-color"]
    command += ["--seed", str(seed), "--max-examples", str(examples), "--workers", "1", "--generation-database", "none"]
    command += ["--phases", phases, "--mode", "all", "--request-timeout", "30"]
    command += [
        "--checks",
        "all",
        "--exclude-checks",
        "negative_data_rejection,positive_data_acceptance,unsupported_method,allow_header_conformance",
    ]
    command += ["--report", "json", "--report-json-path", str(report)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    found = json.loads(report.read_text())
    assert found["operations"]["tested"] == found["operations"]["total"] > 0
    assert found["test_cases"]["generated"] >= cases
