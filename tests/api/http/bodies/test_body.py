"""Reading a body: bounded in size, ratio and patience, and refused as soon as that shows."""

import asyncio
import gzip
import json
import os
import subprocess
import sys
import tracemalloc
import zlib
from collections.abc import Iterable
from functools import partial
from itertools import repeat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import ClientDisconnect, Request
from starlette.types import Message

from app.api.http.bodies.body import read_body
from app.api.http.bodies.body_budget import UNCOUNTED_BYTES, BodyBudget, BodyShare
from app.api.http.connection.client_connection import CLIENT_CONNECTION, ClientConnection
from lachesis.wire.errors import (
    BodyTooLarge,
    InvalidInput,
    MalformedBody,
    RequestTimeout,
    UnsupportedEncoding,
)
from tests.clock import LoopClock
from tests.waiting import wait_until

ROOT = Path(__file__).parents[3]
MIB = 1024 * 1024


class Sender:
    """The client's side of a request, as an ASGI server hands it on; counts what was taken of it."""

    def __init__(
        self, chunks: Iterable[bytes], *, stalls: bool = False, leaves: bool = False, pause_s: float = 0
    ) -> None:
        self._chunks = iter(chunks)
        self._stalls = stalls
        self._leaves = leaves
        self._pause_s = pause_s
        self.taken_bytes = 0

    async def __call__(self) -> Message:
        if self._pause_s:
            await asyncio.sleep(self._pause_s)
        chunk = next(self._chunks, None)
        if chunk is not None:
            self.taken_bytes += len(chunk)
            return {"type": "http.request", "body": chunk, "more_body": True}
        if self._stalls:
            await asyncio.Event().wait()
        if self._leaves:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": b"", "more_body": False}


async def read(
    sender: Sender,
    share: BodyShare | None = None,
    *,
    limit_bytes: int = MIB,
    timeout_s: float = 5.0,
    arrived: bool = False,
    **headers: str,
) -> bytes:
    names = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    connection = ClientConnection(lambda: None, lambda: 0, lambda: None)
    connection.request_arrived = arrived
    request = Request({"type": "http", "method": "POST", "headers": names, CLIENT_CONNECTION: connection}, sender)
    return await read_body(request, share or BodyBudget(0).share("a"), limit_bytes=limit_bytes, timeout_s=timeout_s)


def pieces(body: bytes, size: int) -> list[bytes]:
    return [body[start : start + size] for start in range(0, len(body), size)]


@pytest.mark.parametrize("size", [1, 7, 10_000])
@pytest.mark.parametrize("encoding", ["", "identity", "gzip", "x-gzip", " GZIP "])
async def test_a_body_arrives_whole_whatever_its_pieces(encoding: str, size: int) -> None:
    body = json.dumps(list(range(500))).encode()
    sent = gzip.compress(body) if "gzip" in encoding.lower() else body
    assert await read(Sender(pieces(sent, size)), content_encoding=encoding) == body


async def test_a_body_that_has_come_whole_is_handed_on_as_it_is() -> None:
    body = os.urandom(50_000)
    assert await read(Sender([body]), arrived=True, content_length="50000") is body
    packed = gzip.compress(body)
    sent = await read(Sender([packed]), arrived=True, content_length=str(len(packed)), content_encoding="gzip")
    assert sent == body
    assert await read(Sender(pieces(body, 7000)), arrived=True) == body, "its length is not known"
    with pytest.raises(BodyTooLarge):
        await read(Sender([bytes(MIB + 1)]), arrived=True)
    with pytest.raises(ClientDisconnect):
        await read(Sender([], leaves=True), arrived=True, content_length="50000")


async def test_no_body_is_an_empty_body() -> None:
    assert await read(Sender([])) == b""


@given(parts=st.lists(st.binary(max_size=200), min_size=1, max_size=4), size=st.integers(1, 100))
async def test_a_gzip_body_of_many_members_is_one_body(parts: list[bytes], size: int) -> None:
    sent = b"".join(gzip.compress(part) for part in parts)
    assert await read(Sender(pieces(sent, size)), content_encoding="gzip") == b"".join(parts)


async def test_a_gzip_body_of_too_many_members_is_refused_however_small_they_are() -> None:
    """Each takes time to begin, also one that inflates to nothing."""
    few, many = gzip.compress(b"") * 10_000, gzip.compress(b"") * 10_001
    assert await read(Sender(pieces(few, 60_000)), content_encoding="gzip") == b""
    with pytest.raises(BodyTooLarge, match="more than 10000 members"):
        await read(Sender(pieces(many, 60_000)), content_encoding="gzip")


async def test_a_large_compressed_body_in_one_piece_is_inflated_exactly() -> None:
    body = os.urandom(3 * MIB) + b"\0" * (3 * MIB + 1)
    assert await read(Sender([gzip.compress(body)]), limit_bytes=8 * MIB, content_encoding="gzip") == body


@given(position=st.integers(0, 10_000), bit=st.integers(0, 7), size=st.integers(1, 500))
async def test_a_damaged_gzip_body_is_refused_or_read_as_zlib_reads_it(position: int, bit: int, size: int) -> None:
    """A flipped bit in the header may be harmless; one in the data or the checksum never passes."""
    body = json.dumps(list(range(300))).encode()
    sent = bytearray(gzip.compress(body))
    sent[position % len(sent)] ^= 1 << bit
    try:
        expected: object = gzip.decompress(sent)
    except (OSError, EOFError, zlib.error):
        expected = MalformedBody
    try:
        got: object = await read(Sender(pieces(bytes(sent), size)), content_encoding="gzip")
    except InvalidInput as error:
        got = type(error)
    assert got == expected


@pytest.mark.parametrize("cut", [0, 1, 9, 10, 50, -8, -4, -1])
async def test_a_gzip_body_that_is_cut_off_is_refused(cut: int) -> None:
    with pytest.raises(MalformedBody, match="cut off"):
        await read(Sender([gzip.compress(os.urandom(100))[:cut]]), content_encoding="gzip")


@pytest.mark.parametrize(
    "junk",
    [b"x", b"\0" * 20, b"{}", gzip.compress(b"x")[:-1]],
    ids=["a byte", "zeros", "JSON", "a member cut short"],
)
async def test_what_follows_the_last_member_is_refused(junk: bytes) -> None:
    with pytest.raises(MalformedBody):
        await read(Sender([gzip.compress(b"{}") + junk]), content_encoding="gzip")


@pytest.mark.parametrize("encoding", ["br", "deflate", "zstd", "gzip, gzip", "gzip,", "identity, gzip", "x"])
async def test_other_encodings_are_refused_unread(encoding: str) -> None:
    sender = Sender([b"x"])
    with pytest.raises(UnsupportedEncoding):
        await read(sender, content_encoding=encoding)
    assert sender.taken_bytes == 0


@pytest.mark.parametrize("length", [str(MIB + 1), "9" * 5000])
async def test_a_body_announced_too_large_is_refused_unread(length: str) -> None:
    sender = Sender([b"x"])
    with pytest.raises(BodyTooLarge):
        await read(sender, content_length=length)
    assert sender.taken_bytes == 0


async def test_a_body_that_grows_too_large_is_refused_while_reading() -> None:
    sender = Sender([bytes(64 * 1024)] * 1000)
    with pytest.raises(BodyTooLarge):
        await read(sender)
    assert sender.taken_bytes == MIB + 64 * 1024


async def test_a_body_of_just_the_limit_is_read() -> None:
    assert len(await read(Sender([bytes(MIB)]), content_length=str(MIB))) == MIB
    assert len(await read(Sender([gzip.compress(bytes(MIB))]), content_encoding="gzip")) == MIB


@pytest.fixture(scope="module")
def bomb() -> bytes:
    """64 MiB of nothing in 64 KiB of gzip."""
    return gzip.compress(bytes(64 * MIB))


async def test_a_body_that_inflates_too_large_is_refused_with_little_memory(bomb: bytes) -> None:
    """Fault 18: 306 kB of gzip took 600 MB of memory."""
    tracemalloc.start()
    try:
        with pytest.raises(BodyTooLarge, match="inflates to more"):
            await read(Sender([bomb]), limit_bytes=4 * MIB, content_encoding="gzip")
        assert tracemalloc.get_traced_memory()[1] < 16 * MIB
    finally:
        tracemalloc.stop()


async def test_a_bomb_is_refused_by_its_ratio_long_before_the_limit(bomb: bytes) -> None:
    with pytest.raises(BodyTooLarge, match="at most 100 times"):
        await read(Sender(pieces(bomb, 4096)), limit_bytes=1024 * MIB, content_encoding="gzip")
    # A MiB costs 2 ms to inflate and to parse.
    with pytest.raises(BodyTooLarge, match="beyond 4194304 bytes"):
        await read(Sender([gzip.compress(bytes(5 * MIB))]), content_encoding="gzip", limit_bytes=1024 * MIB)
    assert (
        len(await read(Sender([gzip.compress(bytes(4 * MIB))]), content_encoding="gzip", limit_bytes=8 * MIB))
        == 4 * MIB
    )


async def test_a_body_that_stops_arriving_is_given_up() -> None:
    with pytest.raises(RequestTimeout, match="after 3 bytes"):
        await read(Sender([b"abc"], stalls=True), timeout_s=0.05)


async def test_a_body_that_drips_forever_is_refused() -> None:
    """Each byte is progress, but at this rate a connection would be held for days."""
    with pytest.raises(RequestTimeout):
        await read(Sender(repeat(b"x"), pause_s=0.02), timeout_s=0.2)


def waits(budget: BodyBudget) -> bool:
    return budget.waiting == 1


async def test_a_body_without_room_waits_unread_and_that_time_does_not_count(
    monkeypatch: pytest.MonkeyPatch, loop_clock: LoopClock
) -> None:
    """Not more of it is taken than is never counted."""
    monkeypatch.setattr(
        "app.api.http.bodies.body._SLOWEST_BYTES_PER_S", 10**9
    )  # so that any time that counted would be too slow
    large = os.urandom(3 * MIB)
    for sent, headers in (
        (large, {"content_length": str(len(large))}),
        (large, {}),
        (gzip.compress(large), {"content_encoding": "gzip"}),
    ):
        budget = BodyBudget(0)
        oldest = budget.share("a")
        await oldest.claim(4 * MIB)
        sender = Sender(pieces(sent, 64 * 1024))
        reading = asyncio.create_task(read(sender, budget.share("a"), limit_bytes=4 * MIB, timeout_s=100, **headers))
        await wait_until(partial(waits, budget))
        await loop_clock.advance(300)
        assert sender.taken_bytes <= UNCOUNTED_BYTES + 64 * 1024
        oldest.release()
        assert await reading == large
        assert 3 * MIB <= budget.held_bytes <= 3 * MIB + UNCOUNTED_BYTES


async def test_a_body_that_announces_much_and_sends_little_holds_little() -> None:
    budget = BodyBudget(256 * MIB)
    sender = Sender([bytes(MIB)] * 2, stalls=True)
    length = str(200 * MIB)
    with pytest.raises(RequestTimeout):
        await read(sender, budget.share("a"), limit_bytes=256 * MIB, timeout_s=0.1, content_length=length)
    assert budget.held_bytes == 2 * MIB


def holds(budget: BodyBudget, held_bytes: int) -> bool:
    return budget.held_bytes == held_bytes


async def test_a_slow_body_is_evicted_when_another_needs_its_room() -> None:
    """It gets its own error, and the other is read although the slow ones never end."""
    budget = BodyBudget(8 * MIB, patience_s=0.0)
    slow, room = [], 0
    for address in "oab":
        sender = Sender([bytes(MIB)] * 4, stalls=True)
        slow.append(asyncio.create_task(read(sender, budget.share(address), limit_bytes=8 * MIB, timeout_s=60)))
        room += 4 * MIB
        await wait_until(partial(holds, budget, room))
    prompt = budget.share("p")
    await prompt.claim(MIB)  # the oldest that is not slow, so that the next one is not spared
    body = os.urandom(4 * MIB)
    async with asyncio.timeout(60):
        assert await read(Sender(pieces(body, MIB)), budget.share("n"), limit_bytes=8 * MIB) == body
        with pytest.raises(RequestTimeout, match="waited for memory"):
            await slow[1]
    assert (slow[0].done(), slow[2].done()) == (False, False), "the oldest stays, and the faster one"
    assert (budget.evicted, budget.waiting) == (1, 0)
    for task in slow:
        task.cancel()


async def test_a_bomb_claims_no_more_than_has_gone_off(bomb: bytes) -> None:
    budget = BodyBudget(0)
    with pytest.raises(BodyTooLarge, match="inflates to more"):
        await read(Sender([bomb]), budget.share("a"), limit_bytes=3 * MIB, content_encoding="gzip")
    assert budget.held_bytes <= 4 * MIB


async def test_a_client_that_leaves_is_not_a_body() -> None:
    with pytest.raises(ClientDisconnect):
        await read(Sender([b"abc"], leaves=True))


@pytest.mark.slow
def test_results_are_the_same_where_isal_has_no_wheel() -> None:
    """This file's tests of gzip pass with the standard library's zlib in its place."""
    script = (
        "import sys; sys.modules['isal'] = None\n"
        "import pytest\n"
        "code = pytest.main(['-q', '-p', 'no:cacheprovider', sys.argv[1], '-k', 'gzip or inflates or bomb'])\n"
        "import zlib, app.api.http.bodies.inflate as inflate; assert inflate.zlib is zlib\n"
        "sys.exit(code)"
    )
    command = [sys.executable, "-c", script, __file__]
    run = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
