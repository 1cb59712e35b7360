"""Tokens, as they are made, listed and rotated under ``/v1/tokens``."""

import re
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from lachesis.wire.body import Body
from lachesis.wire.limits import QueueLimitSettings, RateLimitSettings, RateUse
from lachesis.wire.runs import YEAR_S

AccessMode = Literal["authenticated", "loopback", "insecure"]
Role = Literal["environment", "trainer", "viewer", "operator", "metrics"]
TokenState = Literal["active", "expired", "revoked"]

MAX_TOKENS = 10_000
MAX_PATTERNS = 100
ALL_RUNS = "*"
TOKEN_ID = r"[0-9a-f]{12}"  # noqa: S105 - a pattern
MAX_ROTATION_S = 30 * 24 * 3600.0

_EVERYWHERE: tuple[Role, ...] = ("operator", "metrics")

RunPattern = Annotated[str, Field(pattern=r"^[A-Za-z0-9._*-]{1,64}$")]
TokenName = Annotated[str, Field(min_length=1, max_length=128)]
LifetimeSeconds = Annotated[float, Field(gt=0, le=10 * YEAR_S)]


_SHOWN_TOKEN = re.compile(rf"lch_[a-z]+_{TOKEN_ID}_[A-Za-z0-9_-]+")


def masked(text: str) -> str:
    """Return a text without the tokens in it."""
    return _SHOWN_TOKEN.sub("lch_…", text)


class TokenScope(BaseModel):
    """What a token allows."""

    role: Role = Field(description="What the token allows (docs/security.md).", examples=["environment"])
    runs: tuple[RunPattern, ...] = Field(
        default=(),
        max_length=MAX_PATTERNS,
        description="The runs that the token is for: names, or patterns in which `*` stands for any characters. Roles "
        "`operator` and `metrics` without patterns are for all runs. Other roles need at least one.",
        examples=[["math-*"]],
    )
    environment: TokenName | None = Field(
        default=None, description="Role `environment`: the only environment that the token may act for, by name."
    )
    contents: bool = Field(default=False, description="Role `viewer`: whether the token may read contents of groups.")

    @model_validator(mode="after")
    def _fits_the_role(self) -> "TokenScope":
        if not self.runs and self.role not in _EVERYWHERE:
            raise ValueError(f"role {self.role} needs runs: names, patterns such as 'math-*', or '*' for all")
        if self.environment is not None and self.role != "environment":
            raise ValueError(f"role {self.role} takes no environment")
        if self.contents and self.role != "viewer":
            raise ValueError(f"role {self.role} takes no contents=true: it is for role viewer only")
        return self


class LimitedScope(Body, TokenScope, RateLimitSettings, QueueLimitSettings):
    """What a token or a rule for other credentials allows, with limits."""


class TokenCreate(LimitedScope):
    """A token to be made."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"role": "environment", "runs": ["math-*"], "environment": "gsm8k", "expires_s": 2592000}]
        }
    )

    name: str = Field(default="", max_length=128, description="A name for people.", examples=["gpu-7"])
    expires_s: LifetimeSeconds | None = Field(
        default=None, description="Seconds until the token expires. Null means never.", examples=[2592000]
    )


class QueuedInRun(BaseModel):
    """What a token has in the queue of a run."""

    run: str = Field(description="The run.")
    groups: int = Field(description="Its groups.")
    bytes: int = Field(description="Their payload.")


class TokenInfo(TokenScope, QueueLimitSettings):
    """A token, without its secret."""

    id: str = Field(description="The id of the token. It is a part of the token.", examples=["0f3a5c7e9b1d"])
    name: str = Field(description="The name that its creator chose.")
    state: TokenState = Field(description="Whether the token is valid.")
    created_age_s: float = Field(description="Seconds since the token was created.")
    expires_s: float | None = Field(description="Seconds until the token expires. Null means never.")
    last_used_age_s: float | None = Field(
        description="Seconds since the last use, to the minute. Null means that the token was never used."
    )
    rotation_ends_s: float | None = Field(
        default=None, description="Seconds for which the secret before the last rotation stays valid. Null: it is not."
    )
    limits: list[RateUse] = Field(default=[], description="Its rate limits, and how much of each is used.")
    queued: list[QueuedInRun] = Field(
        default=[],
        description="What it has in the queues of runs, by run, if `max_queued_groups` or `max_queued_bytes` limits "
        "that.",
    )
    connections: int | None = Field(
        default=None,
        description="Open connections whose last request had the token, of the process that answers. Null on the "
        "command line, which asks no process.",
    )


class TokenCreated(TokenInfo):
    """A new token, or a token with a new secret. The service shows the secret this once."""

    token: str = Field(description="The token. The service keeps only its SHA-256.")


class Tokens(BaseModel):
    """The tokens, by id."""

    tokens: list[TokenInfo] = Field(description="All tokens, also those that expired or were revoked lately.")


class OwnIdentity(BaseModel):
    """Who sends the request, and what it may do (`GET /v1/identity`)."""

    name: str = Field(description="Name of the token, subject of the JWT or certificate. `anyone` if nobody was asked.")
    kind: str = Field(
        description="How the sender was identified: `token`, `file` (the token of the administrator), `jwt`, "
        "`certificate`, or `open` if nobody was asked."
    )
    role: Role = Field(description="The role.")
    runs: tuple[str, ...] = Field(description="The runs that the identity is for: names or patterns. `*` means all.")
    environment: str | None = Field(description="The only environment that it may act for, by name. Null means any.")
    permissions: list[str] = Field(
        description="What it may do in the service and in its runs, such as `read`, `train` or `operate` "
        "(docs/security.md)."
    )


class TokenRotate(Body):
    """A new secret for a token."""

    overlap_s: float = Field(
        default=3600.0,
        ge=0,
        le=MAX_ROTATION_S,
        description="Seconds for which the current secret stays valid after the new one is made.",
        examples=[3600],
    )
