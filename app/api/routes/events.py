"""The events of runs: as they happen, or page by page."""

import asyncio
import logging
import re
from collections.abc import AsyncGenerator
from typing import Annotated

from fastapi import APIRouter, Header, Query, Request, Response

from app.api.deps import MOST_SHOWN, NamedRun, Services, ServicesDep
from app.api.http.access import Waiting
from app.api.http.event_stream import HEARTBEAT, EventStream, frame
from app.api.http.negotiation import accepts_events
from app.api.http.openapi import Responses, read_responses
from app.api.http.replies import large_json_reply
from app.api.http.routing import NativeRoute, requires
from app.core.access.permissions import Permission
from app.services.events.following import FellBehind
from lachesis.wire import errors
from lachesis.wire.errors import InvalidField, LachesisError
from lachesis.wire.events import EVENT_ID, EVENT_STREAM, RunEvents

_HEARTBEAT_S = 15.0
_RETRY_MS = 2000

_AS_TEXT = {"schema": {"type": "string", "description": "Server-sent events."}}
_STREAM: Responses = {200: {"content": {EVENT_STREAM: _AS_TEXT}}}

log = logging.getLogger("lachesis.events.stored")

router = APIRouter(prefix="/v1/runs", tags=["runs"], route_class=NativeRoute)

AfterEvent = Annotated[str | None, Query(pattern=f"^{EVENT_ID}$", description="Only events after this id or time.")]


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
    after: AfterEvent = None,
    limit: Annotated[int, Query(ge=1, le=1000, description="Maximum number of events of a page in JSON.")] = 100,
    last_event_id: Annotated[str | None, Header(description="As `after`, which it takes precedence over.")] = None,
) -> Response:
    """Return a page of the events of a run, oldest first: those that are kept, or those after `after`.

    With `Accept: text/event-stream`, the service sends the events as they happen: server-sent events with the fields
    `id`, `event` (the kind) and `data`. Without `after`, the stream begins with the next event. It ends when the run is
    deleted. A client whose connection breaks asks again with the id of its last event in `Last-Event-ID`.

    An event `gap` says that events are missing: a run keeps `LACHESIS_RUN_EVENTS` of them.
    """
    await services.runs.administration.check(run)
    after = checked_id(last_event_id) if last_event_id else after
    if after is not None and "-" not in after:
        after += "-0"
    if accepts_events(request):
        return EventStream(_pieces(services, run, after), Waiting(request))
    page = await services.events.feeds.page(run, after, limit)
    following = page[-1].event_id if page else after or "0-0"
    text = b'{"events":[%b],"next_after":"%b"}' % (b",".join(event.text for event in page), following.encode())
    return await large_json_reply(request, text)


def checked_id(event_id: str) -> str:
    """Return the id in a header.

    Raises:
        InvalidField: It is not the id of an event.
    """
    if re.fullmatch(EVENT_ID, event_id) is None:
        raise InvalidField(f"{event_id[:MOST_SHOWN]!r} is not the id of an event", ("header", "last-event-id"))
    return event_id


async def _pieces(services: Services, run: str, after: str | None) -> AsyncGenerator[bytes, None]:
    """Yield what is sent, until no more events come, the client is too slow, or Redis does not answer."""
    async with services.events.feeds.following(run, after) as follower:
        # Without data this is no event: a client that loses the connection before the first one goes on from this id.
        yield b"retry: %d\nid: %b\n\n" % (_RETRY_MS, follower.last.encode())
        coming = asyncio.create_task(follower.next())
        try:
            while True:
                await asyncio.wait({coming}, timeout=_HEARTBEAT_S)
                if not coming.done():
                    yield HEARTBEAT
                    continue
                events = coming.result()
                if not events:
                    return
                coming = asyncio.create_task(follower.next())
                yield b"".join(frame(event.event_id, event.kind, event.text) for event in events)
        except (FellBehind, LachesisError) as error:
            log.debug("a stream of events of run %s ends: %r", run, error)
        finally:
            coming.cancel()
            await asyncio.wait({coming})
