"""The limit: what any service on this stack must at least do. It reads a body and stores bytes, unseen.

    POST /as-sent          stores the body as it came
    POST /pieces/K         stores the body cut into K values, in one transaction: one wait for the disk
    POST /as-stored/N      stores N bytes, as many as this service stores of such a group
    POST /answer           remembers the body as the answer of GET /batch
    GET /batch/K           reads K stored values and answers that

Run by ``uvicorn benchmarks.limit_app:app`` with ``LIMIT_REDIS_URL``.
"""

import itertools
import os
from functools import cache
from typing import Any

from redis.asyncio import Redis

redis = Redis.from_url(os.environ["LIMIT_REDIS_URL"])
serial = itertools.count()
answer: list[bytes] = [b""]


@cache
def filler(size: int) -> bytes:
    """Make bytes to store."""
    return os.urandom(size)


async def read_whole(receive: Any) -> bytes:
    """Read a request's body."""
    parts, more = [], True
    while more:
        message = await receive()
        parts.append(message.get("body", b""))
        more = message.get("more_body", False)
    return b"".join(parts)


async def store_pieces(body: bytes, count: int) -> None:
    """Store a body cut into pieces, as a frame of groups is."""
    size = -(-len(body) // count)
    pipe = redis.pipeline(transaction=True)
    for start in range(0, len(body), size):
        pipe.set(b"%d" % next(serial), body[start : start + size])
    await pipe.execute()


async def reply_to(path: str, receive: Any) -> bytes:
    """Do what a path says."""
    match path.split("/")[1:]:
        case ["as-sent"]:
            await redis.set(b"%d" % next(serial), await read_whole(receive))
        case ["pieces", count]:
            await store_pieces(await read_whole(receive), int(count))
        case ["as-stored", size]:
            await read_whole(receive)
            await redis.set(b"%d" % next(serial), filler(int(size)))
        case ["answer"]:
            answer[0] = await read_whole(receive)
        case ["batch", count]:
            await redis.mget([b"%d" % i for i in range(int(count))])
            return answer[0]
    return b'{"status": "received"}'


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Answer 200 to everything."""
    if scope["type"] != "http":
        return
    body = await reply_to(scope["path"], receive)
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})
