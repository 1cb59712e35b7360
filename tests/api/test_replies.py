"""A reply that must know whether it arrived."""

import asyncio

from starlette.types import Message

from app.api.replies import WatchedReply


async def test_a_reply_whose_sending_is_cancelled_has_broken_off() -> None:
    """As when the service stops while a client is slow to read; else its batch would be taken for on its way."""
    heard: list[str] = []
    is_behind = asyncio.Event()

    async def sent() -> None:
        heard.append("sent")

    async def broke_off() -> None:
        heard.append("broke off")

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(_: Message) -> None:
        is_behind.set()
        await asyncio.Event().wait()

    reply = WatchedReply([b"a batch"], {}, sent, broke_off)
    sending = asyncio.create_task(reply({"type": "http"}, receive, send))
    await is_behind.wait()
    sending.cancel()
    await asyncio.wait({sending})
    assert sending.cancelled()
    assert heard == ["broke off"]
