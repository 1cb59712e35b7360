"""Give several readers the same answer, if they accept one that is some seconds old (RFC 9111, 5.2.1.1).

A request says so with ``Cache-Control: max-age=1``. All others get a new answer. So clients that write and then read
see what they wrote, and ten open pages cost about as much as one.

A reader that knows a newer revision of a run asks with ``Cache-Control: revision=REVISION``, an extension (RFC 9111,
5.2.3). It gets an answer that began after somebody had asked with this revision, so it has the change.
"""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from fastapi import Request, Response

from app.api.http.compression import accepts_gzip
from app.api.http.replies import compressed, large_json_reply

OLDEST_S = 10.0
"""An answer is forgotten this long after its computing began, whatever age requests accept."""

_MOST = 100  # answers that are kept
_MOST_BYTES = 1024 * 1024  # of an answer that is kept, as it is sent; all that are kept have at most 100 MiB
_REVISION = re.compile(r"(?:^|,)\s*revision=([0-9a-f]{1,64})\s*(?:,|$)")
_MAX_AGE = re.compile(r"(?:^|,)\s*max-age=(\d{1,9})\s*(?:,|$)", re.IGNORECASE)

Compute = Callable[[], Awaitable[bytes]]
_Key = tuple[str, bytes, bool, str]
_Content = tuple[bytes, dict[str, str]]


@dataclass(frozen=True, slots=True)
class _SharedAnswer:
    """An answer, or the task that computes it. It shows what was true when its computing began."""

    began_s: float
    content: asyncio.Task[_Content]


class SharedAnswers:
    """The latest answers of this process that several readers may get. Its callers have checked who asks.

    An answer above 1 MiB is given to all who ask while it is computed, and then forgotten.

    Args:
        clock: Returns the time now, seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._answers: dict[_Key, _SharedAnswer] = {}  # the oldest first
        self._sweep: asyncio.TimerHandle | None = None

    async def reply(self, request: Request, compute: Compute) -> Response:
        """Answer with JSON: of another request for the same address if the request accepts that, or a new one.

        Args:
            request: The request. Its path and query say what is asked for.
            compute: Compute the answer. It must depend on the address alone.
        """
        accepted_s, revision = _accepted(request.headers.get("cache-control") or "")
        if not accepted_s:
            return await large_json_reply(request, await compute())
        key = request.scope["path"], request.scope["query_string"], _takes_gzip(request), revision
        now_s, found = self._clock(), self._answers.get(key)
        if found is None or now_s - found.began_s > accepted_s:
            self._answers.pop(key, None)  # so that the new answer is the newest
            found = self._answers[key] = _SharedAnswer(now_s, asyncio.create_task(_computed(request, compute)))
            found.content.add_done_callback(partial(self._on_computed, key, found))
            self._forget_old()
        body, headers = await asyncio.shield(found.content)
        age = {"Age": str(int(self._clock() - found.began_s))}
        return Response(body, headers=headers | age, media_type="application/json")

    def _on_computed(self, key: _Key, answer: _SharedAnswer, content: asyncio.Task[_Content]) -> None:
        """Forget an answer that failed or is large. Who waits for it gets it all the same."""
        is_kept = not content.cancelled() and content.exception() is None and len(content.result()[0]) <= _MOST_BYTES
        if not is_kept and self._answers.get(key) is answer:
            del self._answers[key]

    def _forget_old(self) -> None:
        """Forget answers that are too old, and all but the newest. While there are any, come back in time."""
        now_s = self._clock()
        newest = list(self._answers)[-_MOST:]
        self._answers = {key: self._answers[key] for key in newest if now_s - self._answers[key].began_s < OLDEST_S}
        if self._answers and self._sweep is None:
            oldest = next(iter(self._answers.values()))
            self._sweep = asyncio.get_running_loop().call_later(oldest.began_s + OLDEST_S - now_s, self._on_sweep)

    def _on_sweep(self) -> None:
        self._sweep = None
        self._forget_old()


async def _computed(request: Request, compute: Compute) -> _Content:
    return await compressed(request, await compute())


def _takes_gzip(request: Request) -> bool:
    return accepts_gzip(request.headers.get("accept-encoding") or "")


def _accepted(cache_control: str) -> tuple[float, str]:
    """Return how old an answer may be, seconds, and the revision that its reader must have known; empty if any."""
    if (known := _REVISION.search(cache_control)) is not None:
        return OLDEST_S, known[1]
    found = _MAX_AGE.search(cache_control)
    return (min(float(found[1]), OLDEST_S) if found else 0.0), ""
