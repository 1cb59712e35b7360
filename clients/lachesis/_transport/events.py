"""Follow the events of a run over connections that may break."""

from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress

from pydantic import ValidationError

from lachesis._transport.http import Sender
from lachesis._transport.run_calls import RunCalls
from lachesis.errors import LachesisError, RunNotFound
from lachesis.wire.events import RunEvent

_PAGE = 1000
_PAUSE_S = 1.0

RUN_DELETED = "run deleted"
"""The kind of the last event of a run."""


async def followed(sender: Sender, calls: RunCalls, after: str | None) -> AsyncGenerator[RunEvent, None]:
    """Yield the events of a run after ``after``, or (None) those from now on, until the run is deleted.

    Each broken connection is followed by pages with what came in the meantime. These have the patience and the errors
    of every other call.

    Raises:
        ServiceError, Unreachable: As for `Sender.send`.
    """
    await sender.send(calls.events(after, 1))  # whether it can be followed at all
    async with aclosing(_endless(sender, calls, after)) as events:
        with suppress(RunNotFound):  # it was deleted while the connection was broken
            async for event in events:
                yield event
                if event.kind == RUN_DELETED:
                    return


async def _endless(sender: Sender, calls: RunCalls, after: str | None) -> AsyncGenerator[RunEvent, None]:
    while True:
        while after is not None:
            page = await sender.send(calls.events(after, _PAGE))
            for event in page.events:
                yield event
            after = page.next_after
            if len(page.events) < _PAGE:
                break
        try:
            async with aclosing(sender.lines(calls.event_stream(after))) as lines:
                event_id = data = None
                async for line in lines:
                    name, _, value = line.partition(": ")
                    if name == "id":
                        event_id = value
                    elif name == "data":
                        data = value
                    elif not line and data is not None:  # only now it is whole: the connection may break before
                        event, data = RunEvent.model_validate_json(data), None
                        after = event_id or after
                        yield event
        except RunNotFound:
            raise
        except LachesisError as error:
            if after is None:  # else the next page says what is wrong
                sender.log_trouble(error, f"The events are asked for again in {_PAUSE_S:g} s")
        except ValidationError:
            pass  # the next page has the event
        await sender.sleep(_PAUSE_S)
