"""The events of runs: as they happen, or page by page."""

import asyncio
import logging
import re
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import AsyncExitStack
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request, Response

from app.api.deps import MOST_SHOWN, NamedRun, Services, ServicesDep
from app.api.http.access.control import Waiting
from app.api.http.event_stream import HEARTBEAT, EventStream, frame
from app.api.http.negotiation import accepts_events
from app.api.http.openapi import Responses, read_responses
from app.api.http.replies import large_json_reply
from app.api.http.routing import NativeRoute, requires
from app.core.access.permissions import Permission
from app.services.events.changes import WatchedRun
from app.services.events.following import FellBehind, Follower
from lachesis.wire import errors
from lachesis.wire.errors import InvalidField, LachesisError
from lachesis.wire.events import EVENT_ID, EVENT_STREAM, RunEvents

_HEARTBEAT_S = 15.0
_RETRY_MS = 2000

_AS_TEXT = {"schema": {"type": "string", "description": "Server-sent events."}}
_STREAM: Responses = {200: {"content": {EVENT_STREAM: _AS_TEXT}}}

log = logging.getLogger("lachesis.events.stored")

router = APIRouter(prefix="/v1/runs", tags=["runs"], route_class=NativeRoute)


@router.get(
    "/{run}/events",
    summary="Follow the events of a run",
    response_model=RunEvents,
    responses=read_responses(errors.RunNotFound, errors.NotAcceptable) | _STREAM,
)
@requires(Permission.READ)
async def get_events(
    run: NamedRun,
    services: ServicesDep,
    request: Request,
    after: Annotated[
        str | None,
        Query(
            description="Only events after this id, or after this time in ms since 1970.",
            json_schema_extra={"pattern": f"^{EVENT_ID}$"},
        ),
    ] = None,
    limit: Annotated[int, Query(ge=1, le=1000, description="Maximum number of events of a page in JSON.")] = 100,
    changes: Annotated[
        bool, Query(description="Whether a stream also tells when the run has changed, with `changed`.")
    ] = False,
    last_event_id: Annotated[str | None, Header(description="As `after`, which it takes precedence over.")] = None,
) -> Response:
    """Return a page of the events of a run, oldest first: those that are kept, or those after `after`.

    With `Accept: text/event-stream`, the service sends the events as they happen: server-sent events with the fields
    `id`, `event` (the kind) and `data`. Without `after`, the stream begins with the next event. It ends when the run is
    deleted. A client whose connection breaks asks again with the id of its last event in `Last-Event-ID`.

    An event `gap` says that events are missing: a run keeps `LACHESIS_RUN_EVENTS` of them.

    With `changes=true`, a stream also has `changed`. It comes at the beginning, and within 2 s of any change that a
    status shows, such as a new group or a heartbeat. It has no id. Its data has the `revision` of the run. A
    request with `Cache-Control: revision=REVISION` gets an answer that has the change. Requests with the same revision
    share one answer.
    """
    await services.runs.administration.check(run)
    if last_event_id:
        after = checked_id(last_event_id, ("header", "last-event-id"))
    elif after is not None:
        after = checked_id(after, ("query", "after"))
    if after is not None and "-" not in after:
        after += "-0"
    if accepts_events(request):
        return EventStream(_pieces(services, run, after, changes=changes), Waiting(request))
    page = await services.events.feeds.page(run, after, limit)
    following = page[-1].event_id if page else after or "0-0"
    text = b'{"events":[%b],"next_after":"%b"}' % (b",".join(event.text for event in page), following.encode())
    return await large_json_reply(request, text)


def checked_id(event_id: str, place: tuple[str, str]) -> str:
    """Return the id of an event, or a time.

    Raises:
        InvalidField: It is neither.
    """
    if re.fullmatch(EVENT_ID, event_id) is None:
        wrong = f"{event_id[:MOST_SHOWN]!r} is neither the id of an event nor a time in ms since 1970"
        raise InvalidField(wrong, place)
    return event_id


Source = Callable[[], Coroutine[Any, Any, bytes]]
"""Waits for the next piece of a stream. An empty one means that no more come."""


async def _pieces(services: Services, run: str, after: str | None, *, changes: bool) -> AsyncGenerator[bytes, None]:
    """Yield what is sent, until no more events come, the client is too slow, or Redis does not answer."""
    async with AsyncExitStack() as stack:
        follower = await stack.enter_async_context(services.events.feeds.following(run, after))
        sources: list[Source] = [partial(_next_events, follower)]
        if changes:
            watched = await stack.enter_async_context(services.events.changes.watching(run))
            sources.append(_Changes(watched).next)
        # Without data this is not an event. A client that loses the connection before the first continues from this id.
        yield b"retry: %d\nid: %b\n\n" % (_RETRY_MS, follower.last.encode())
        coming = {asyncio.create_task(source()): source for source in sources}
        try:
            while True:
                done, _ = await asyncio.wait(coming, timeout=_HEARTBEAT_S, return_when=asyncio.FIRST_COMPLETED)
                if not done:
                    yield HEARTBEAT
                for task in done:
                    source, piece = coming.pop(task), task.result()
                    if not piece:
                        return
                    coming[asyncio.create_task(source())] = source
                    yield piece
        except (FellBehind, LachesisError) as error:
            log.debug("a stream of events of run %s ends: %r", run, error)
        finally:
            for task in coming:
                task.cancel()
            if coming:
                await asyncio.wait(coming)


async def _next_events(follower: Follower) -> bytes:
    return b"".join(frame(event.event_id, event.kind, event.text) for event in await follower.next())


class _Changes:
    """The changes of a run, for one reader."""

    def __init__(self, watched: WatchedRun) -> None:
        self._watched = watched
        self._sent_revision: str | None = None

    async def next(self) -> bytes:
        """Wait for the next one. Without an id, `Last-Event-ID` stays that of the last event."""
        self._sent_revision = await self._watched.next(self._sent_revision)
        return b'event: changed\ndata: {"kind":"changed","revision":"%b"}\n\n' % self._sent_revision.encode()
