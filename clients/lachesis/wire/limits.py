"""Limits of requests: sizes and waits, rates of tokens and runs, and how much of the rates is used."""

from pydantic import BaseModel, ConfigDict, Field

from lachesis.wire.body import MAX_INTEGER

MAX_BATCH_SIZE = 131_072
"""Maximum number of sequences in a batch, and in a declared group. Memory to form a batch grows with this number."""

MAX_WAIT_S = 600.0
"""Longest long poll, seconds: for a batch, for a sample, and for room in a replay buffer."""

MAX_ANNOTATIONS = 8
"""Maximum number of annotations of a group."""

BURST_S = 2.0
"""How much of a limit may be used at once, in seconds of it."""


class RateLimitSettings(BaseModel):
    """How much a token or a run may send per second. A sender that waits may use two seconds of a limit at once."""

    model_config = ConfigDict(frozen=True)

    max_requests_per_s: float | None = Field(
        default=None,
        ge=0.001,
        le=MAX_INTEGER,
        description="Maximum mean rate, requests per second. Two seconds of the rate may come at once. The service "
        "refuses further requests (`rate_limited`). Null means no limit.",
    )
    max_bytes_per_s: float | None = Field(
        default=None,
        ge=1,
        le=MAX_INTEGER,
        description="Maximum mean rate of bodies as sent, bytes per second. Two seconds of the rate may come at once. "
        "A larger body is accepted after a pause. The next one then waits longer. Null means no limit.",
    )
    max_groups_per_s: float | None = Field(
        default=None,
        ge=0.001,
        le=MAX_INTEGER,
        description="Maximum mean rate, submitted groups per second. Two seconds of the rate may come at once. "
        "A larger submission is accepted after a pause. The next one then waits longer. Null means no limit.",
    )


class RunLimitSettings(RateLimitSettings):
    """How much all senders of a run may do together: rates and open connections."""

    max_connections: int | None = Field(
        default=None,
        ge=1,
        le=MAX_INTEGER,
        description="Maximum number of open connections to each API process whose last request in a run was for this "
        "run. The service refuses further connections (`too_many_connections`). Null means no limit.",
    )


class QueueLimitSettings(BaseModel):
    """How much a token may have in the queue of each run. A group counts until a batch takes it or it is dropped."""

    model_config = ConfigDict(frozen=True)

    max_queued_groups: int | None = Field(
        default=None,
        ge=1,
        le=MAX_INTEGER,
        description="Maximum number of groups of the token in the queue of a run. The service refuses further groups "
        "(`queue_full`) until a batch takes some. A larger submission is accepted if the token has none there. "
        "Null means no limit.",
    )
    max_queued_bytes: int | None = Field(
        default=None,
        ge=1,
        le=MAX_INTEGER,
        description="The same for the payload of these groups, bytes. Null means no limit.",
    )


class RateUse(BaseModel):
    """A limit of a rate, and how much of it is used now."""

    name: str = Field(description="`max_requests_per_s`, `max_bytes_per_s` or `max_groups_per_s`.")
    per_s: float = Field(description="The limit.")
    used: float = Field(
        description="Used part of the burst, from 0. At 1 the service refuses requests. A large "
        "body or submission can bring it above 1."
    )
