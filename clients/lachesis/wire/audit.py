"""The audit trail (`GET /v1/audit`)."""

from typing import Any

from pydantic import BaseModel, Field


class AuditEntry(BaseModel):
    """A request that changed something for others, or tried to."""

    id: str = Field(description="Id of the entry.")
    at_s: float = Field(description="When, by the clock of Redis, seconds since 1970.")
    run: str | None = Field(default=None, description="The run. Null for requests about the service, such as tokens.")
    method: str = Field(description="Method of the request; `CLI` for the command line on the server.")
    path: str = Field(description="Path and query of the request, or the command.")
    status: int = Field(description="Status of the answer.")
    code: str | None = Field(default=None, description="Code of the error, if the request was refused.")
    identity: str | None = Field(
        default=None, description="Name of the token, subject of the JWT or the certificate. Null if nobody was asked."
    )
    kind: str | None = Field(
        default=None,
        description="How the sender was identified: `token`, `file` (the token of the administrator), `jwt`, "
        "`certificate`, or `open` if nobody was asked. Null for the command line.",
    )
    role: str | None = Field(default=None, description="The role.")
    token: str | None = Field(default=None, description="Id of the token.")
    caller: str = Field(description="Address of the sender, or user and host of the command line.")
    forwarded_for: str | None = Field(
        default=None, description="The client behind a proxy, as the proxy says. Anybody can send this header."
    )
    agent: str | None = Field(default=None, description="Software of the sender, as it says.")
    changes: list[dict[str, Any]] = Field(default=[], description="What changed.")
    count: int = Field(
        default=1, description="How many equal requests of this sender the entry stands for. It describes the newest."
    )


class AuditEntries(BaseModel):
    """Entries, newest first."""

    entries: list[AuditEntry]
    next_before: str | None = Field(
        description="Send this value as `before` to get older entries. Null if there are none."
    )
