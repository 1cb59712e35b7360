"""The range of time of requests: seconds since 1970."""

from typing import Annotated

from fastapi import Query

from lachesis.wire.body import MAX_INTEGER

FromTime = Annotated[
    float | None,
    Query(
        alias="from",
        ge=0,
        le=MAX_INTEGER,
        description="Start of the range, seconds since 1970. Default: an hour before its end. If the history is "
        "younger: its start, and at least 2 min before the end.",
    ),
]
ToTime = Annotated[float | None, Query(alias="to", ge=0, le=MAX_INTEGER, description="End of the range. Default: now.")]
FormedFrom = Annotated[
    float | None,
    Query(alias="from", ge=0, le=MAX_INTEGER, description="Batches formed from this time on, seconds since 1970."),
]
FormedTo = Annotated[
    float | None, Query(alias="to", ge=0, le=MAX_INTEGER, description="Batches formed before this time.")
]
