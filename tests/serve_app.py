"""A small application and a way to serve it as a process, for `test_serve.py`.

``GET /pid`` answers this process's id. ``GET /slow/<seconds>`` sets the key ``begun``, takes that long, then writes to
Redis: its 200 proves that Redis was still there. On SIGURG the first process writes its stack to stderr.
"""

import asyncio
import faulthandler
import os
import signal
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from redis.asyncio import Redis

from app.process.serve import serve
from app.settings import ServiceSettings

Send = Callable[[dict[str, Any]], Awaitable[None]]


async def app(scope: MutableMapping[str, Any], receive: Callable[[], Awaitable[dict[str, Any]]], send: Send) -> None:
    if scope["type"] == "lifespan":
        await lifespan(receive, send)
        return
    _, what, *seconds = scope["path"].split("/")
    async with Redis.from_url(os.environ["LACHESIS_REDIS_URL"]) as client:
        if what == "slow":
            await client.set("begun", 1)
            await asyncio.sleep(float(seconds[0]))
        await client.incr("requests")
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": str(os.getpid()).encode()})


async def lifespan(receive: Callable[[], Awaitable[dict[str, Any]]], send: Send) -> None:
    await receive()
    if os.environ.get("FAIL_AT_START"):
        await send({"type": "lifespan.startup.failed", "message": "as told"})
        return
    await send({"type": "lifespan.startup.complete"})
    await receive()
    await send({"type": "lifespan.shutdown.complete"})


if __name__ == "__main__":
    faulthandler.register(signal.SIGURG)
    sys.exit(serve(ServiceSettings(), "tests.serve_app:app"))
