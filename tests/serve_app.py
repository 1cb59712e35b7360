"""A small application and a way to serve it as a process, for `test_serve.py`.

``GET /pid`` answers this process's id, and ``GET /grace`` a setting of it. ``GET /slow/<seconds>`` sets the key
``begun``, takes that long, then writes to Redis: its 200 proves that Redis was still there. It does not start while
there is a file ``FAIL_IF``. On SIGURG the first process writes its stack to stderr.
"""

import asyncio
import faulthandler
import os
import signal
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any

from redis.asyncio import Redis

from app.process.serve import serve
from app.settings import ServiceSettings

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


class Application:
    """An application with the settings of its service."""

    def __init__(self, settings: ServiceSettings) -> None:
        self._settings = settings
        self._fails = Path(os.environ.get("FAIL_IF", "/nowhere")).exists()

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await lifespan(receive, send, self._fails)
            return
        _, what, *seconds = scope["path"].split("/")
        assert self._settings.redis_url is not None
        async with Redis.from_url(self._settings.redis_url.get_secret_value()) as client:
            if what == "slow":
                await client.set("begun", 1)
                await asyncio.sleep(float(seconds[0]))
            await client.incr("requests")
        answer = self._settings.shutdown_grace_s if what == "grace" else os.getpid()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": str(answer).encode()})


async def lifespan(receive: Receive, send: Send, fails: bool) -> None:
    await receive()
    if fails:
        await send({"type": "lifespan.startup.failed", "message": "as told"})
        return
    await send({"type": "lifespan.startup.complete"})
    await receive()
    await send({"type": "lifespan.shutdown.complete"})


if __name__ == "__main__":
    faulthandler.register(signal.SIGURG)
    sys.exit(serve(ServiceSettings(), "tests.serve_app:Application"))
