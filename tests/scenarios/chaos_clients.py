"""Producers and a trainer that behave like Atropos clients, and a ledger of what they sent and got.

Each call is a new connection, and is tried again when it fails. Each *attempt* to send a group has a mark of its own,
so the ledger can tell a group that was served twice from one that its sender, left without an answer, sent twice.
"""

import asyncio
import socket
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from random import Random
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from tests.api.atropos_calls import group, marks, registration, sequences

_PATIENCE = aiohttp.ClientTimeout(total=60)  # on a busy machine, a killed process is replaced after 20 s
_PAUSE_S = (0.1, 0.6)


@dataclass(frozen=True, slots=True)
class Delivery:
    """A batch that the trainer received completely, and its delivery count."""

    batch_id: str
    delivery_count: int
    marks: tuple[int, ...]
    sequences: int


@dataclass(slots=True)
class Ledger:
    """What was sent, acknowledged and served, and how often calls failed.

    Attributes:
        phase: What is being done to the service now.
        failures: The most times that one call failed, by phase.
        reasons: How calls failed, by phase, in order.
        attempts: Groups sent so far, tries of the same one counted apart; marks are numbers below it.
        acknowledged: Marks of attempts that were answered 200.
        served: What the trainer got, in order.
        excuses: Kills and registrations: each may have one batch handed out again, the one that was not acknowledged.
    """

    phase: str = "calm"
    failures: Counter[str] = field(default_factory=Counter)
    reasons: list[tuple[str, str]] = field(default_factory=list)
    attempts: int = 0
    acknowledged: set[int] = field(default_factory=set)
    served: list[Delivery] = field(default_factory=list)
    excuses: int = 0

    def new_mark(self) -> int:
        self.attempts += 1
        return self.attempts - 1

    def faults(self, batch_sizes: Collection[int]) -> list[str]:
        """Say what was lost, doubled, torn or made up, once the queue has been drained."""
        first = {delivery.batch_id: delivery for delivery in reversed(self.served)}
        times = Counter(mark for delivery in first.values() for mark in delivery.marks)
        again = [delivery for delivery in self.served if delivery is not first[delivery.batch_id]]
        found = {
            "acknowledged, but not served": self.acknowledged - times.keys(),
            "served, but never sent": times.keys() - set(range(self.attempts)),
            "in more than one batch": [mark for mark, count in times.items() if count > 1],
            "not of the batch size": [d.batch_id for d in self.served if d.sequences not in batch_sizes],
            "changed when handed out again": [d.batch_id for d in again if d.marks != first[d.batch_id].marks],
            "handed out again without saying so": [d.batch_id for d in again if d.delivery_count < 2],
            "handed out again without an excuse": again[self.excuses :],
        }
        return [f"{what}: {list(which)[:20]}" for what, which in found.items() if which]


class Client:
    """What all clients share: calls that do not give up."""

    def __init__(self, url: str, ledger: Ledger, seed: int) -> None:
        self._url = url
        self._ledger = ledger
        self._random = Random(seed)

    async def call(self, method: str, path: str, make_body: Callable[[], Any] = lambda: None) -> tuple[Any, Any]:
        """Call until there is an answer; each attempt has a body of its own. Returns the answer and its headers.

        Raises:
            AssertionError: The answer is a 4xx: the service refused what it must accept.
        """
        failures: Counter[str] = Counter()
        while True:
            try:
                async with (
                    aiohttp.ClientSession(self._url, timeout=_PATIENCE) as session,
                    session.request(method, path, json=make_body()) as reply,
                ):
                    assert not 400 <= reply.status < 500, f"{method} {path}: {reply.status} {await reply.text()}"
                    reply.raise_for_status()
                    is_json = reply.content_type == "application/json"
                    return await reply.json() if is_json else await reply.text(), reply.headers
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                failures[self._ledger.phase] += 1
                self._ledger.reasons.append((self._ledger.phase, f"{method} {path}: {error!r}"))
                self._ledger.failures |= failures
                await asyncio.sleep(self._random.uniform(*_PAUSE_S))


class Producer(Client):
    """An environment."""

    async def run(self, name: str, sizes: Collection[int], minimum: float | None, stop: asyncio.Event) -> None:
        """Register, then poll and send, one group or a list, until told to stop."""
        env_id = await self._register(name, max(sizes), minimum)
        while not stop.is_set():
            await self.call("GET", "/status-env", lambda: {"env_id": env_id})
            await self.send([self._random.choice(list(sizes)) for _ in range(self._random.randint(0, 3))], env_id)

    async def send(self, sizes: list[int], env_id: int | None = None) -> None:
        """Send a group of each size as a list, or a single group of 4 if there is none."""
        tried: list[int] = []

        def next_attempt() -> Any:
            tried[:] = [self._ledger.new_mark() for _ in sizes or [4]]
            groups = [group(size, mark, env_id) for size, mark in zip(sizes or [4], tried, strict=True)]
            return groups if sizes else groups[0]

        await self.call("POST", "/scored_data_list" if sizes else "/scored_data", next_attempt)
        self._ledger.acknowledged.update(tried)

    async def _register(self, name: str, group_size: int, minimum: float | None) -> int:
        about = {"max_token_length": 512, "desired_name": name, "weight": 1.0, "group_size": group_size}
        while True:
            answer, _ = await self.call("POST", "/register-env", lambda: about | {"min_batch_allocation": minimum})
            if answer["status"] == "success":
                return int(answer["env_id"])
            await asyncio.sleep(self._random.uniform(*_PAUSE_S))


class Trainer(Client):
    """A trainer."""

    async def register(self, batch_size: int) -> None:
        await self.call("POST", "/register", lambda: registration(batch_size))

    async def take(self) -> bool:
        """Take a batch and record it; return False if there was none."""
        answer, headers = await self.call("GET", "/batch")
        groups = answer["batch"]
        if groups is None:
            return False
        self._ledger.served.append(
            Delivery(
                headers["Lachesis-Batch"],
                int(headers["Lachesis-Delivery-Count"]),
                tuple(marks(groups)),
                sequences(groups),
            )
        )
        return True

    async def give_up(self, after_s: float) -> None:
        """Ask for a batch and hang up ``after_s`` later without reading the reply."""
        url, loop = urlsplit(self._url), asyncio.get_running_loop()
        with socket.socket() as connection:  # not a stream: that would read what comes
            connection.setblocking(False)
            await loop.sock_connect(connection, (url.hostname, url.port))
            await loop.sock_sendall(connection, b"GET /batch HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            await asyncio.sleep(after_s)

    async def run(self, stop: asyncio.Event) -> None:
        """Take batches until told to stop."""
        while not stop.is_set():
            if not await self.take():
                await asyncio.sleep(self._random.uniform(0.01, 0.05))
