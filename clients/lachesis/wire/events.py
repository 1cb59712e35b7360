"""The events of a run (`GET /v1/runs/{run}/events`)."""

from pydantic import BaseModel, ConfigDict, Field

EVENT_ID = r"[0-9]{1,15}(-[0-9]{1,10})?"
"""Matches the id of an event, or a time in milliseconds since 1970."""

EVENT_STREAM = "text/event-stream"
"""Media type of events that are sent as they happen."""


class RunEvent(BaseModel):
    """Something that happened to a run. Its other fields depend on its kind."""

    model_config = ConfigDict(extra="allow", frozen=True)

    id: str = Field(
        description="Its id. Later events have larger ids. Two ids are compared number by number.",
        examples=["1763859600123-0"],
    )
    time_s: float = Field(description="When it happened, by the clock of Redis, seconds since 1970.")
    kind: str = Field(
        description="What happened, in words. `gap`: events after this id are no longer kept.", examples=["batch taken"]
    )


class RunEvents(BaseModel):
    """Some events of a run, oldest first."""

    events: list[RunEvent]
    next_after: str = Field(description="Send this value as `after` to get later events.")
