import asyncio
import threading
from collections.abc import Callable

import numpy as np
import pytest
from starlette.types import Scope

from app.api.codec.decoder import Decoder
from app.api.codec.group_blob import decode_blobs
from app.store.groups.encoded_group import EncodedGroup
from lachesis.wire.frame import frame
from tests.api.codec.test_scored_data import body
from tests.api.native_groups import in_binary

ONE: Scope = {"client": ("10.0.0.1", 1)}
OTHER: Scope = {"client": ("10.0.0.2", 1)}
MANY_OBJECTS = body(images=[{}] * 10_000)
NOISE = np.random.default_rng(1).integers(0, 2**31, (1, 60_000)).tolist()


async def decoded_in(text: bytes) -> threading.Thread:
    return await Decoder().json(lambda _: threading.current_thread(), text, ONE)


@pytest.mark.parametrize("text", [body(), body(tokens=[[1] * 100_000], masks=[[1] * 100_000], scores=[1.0])])
async def test_small_bodies_and_plain_numbers_are_decoded_at_once(text: bytes) -> None:
    assert await decoded_in(text) is threading.current_thread()


@pytest.mark.parametrize("part", [{}, [], "", {"a": 1}, [[[]]]], ids=repr)
async def test_bodies_of_very_many_parts_do_not_block_the_event_loop(part: object) -> None:
    """They are small as sent: a gzip body of 1 kB held 333,000 objects, and everybody waited for 0.5 s."""
    assert await decoded_in(body(images=[part] * 10_000)) is not threading.current_thread()


@pytest.mark.parametrize(
    ("text", "threads"),
    [
        (in_binary({"tokens": NOISE, "masks": NOISE, "scores": [1.0]}), 0),
        (frame([in_binary({"tokens": [[1]], "masks": [[1]], "scores": [1.0]})] * 1000, "groups"), 1),
    ],
    ids=["numbers", "many headers"],
)
async def test_numbers_of_a_binary_body_are_no_parts(
    monkeypatch: pytest.MonkeyPatch, text: bytes, threads: int
) -> None:
    """The bytes of quotes and brackets are frequent among numbers."""
    started = []

    async def to_thread(decode: Callable[[bytes], list[EncodedGroup]], body: bytes) -> list[EncodedGroup]:
        started.append(body)
        return decode(body)

    monkeypatch.setattr(asyncio, "to_thread", to_thread)
    assert len(text) < 1024 * 1024
    assert await Decoder().binary(decode_blobs, text, ONE)
    assert len(started) == threads


async def test_a_sender_of_many_bodies_does_not_keep_others_waiting() -> None:
    """Many threads at a time would leave the event loop little time."""
    decoder, go_on, begun = Decoder(), threading.Event(), threading.Semaphore(0)

    def decode(text: bytes) -> None:
        begun.release()
        go_on.wait(timeout=10)

    async def begins() -> None:
        await asyncio.to_thread(begun.acquire)

    many = [asyncio.create_task(decoder.json(decode, MANY_OBJECTS, ONE)) for _ in range(4)]
    try:
        await begins()
        await begins()
        assert await decoder.json(len, MANY_OBJECTS, OTHER) == len(MANY_OBJECTS)
        assert not begun.acquire(blocking=False), "the sender has a third thread"
    finally:
        go_on.set()
        await asyncio.gather(*many)
