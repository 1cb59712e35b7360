"""What `doctor` finds out: on a trainer machine (`python -m lachesis`) and on the server (`python -m app`)."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class Finding(BaseModel):
    """The result of one check."""

    model_config = ConfigDict(frozen=True)

    check: str = Field(description="What was checked.")
    state: Literal["ok", "warning", "problem"] = Field(
        description="`warning`: it works now, and may not later. `problem`: something does not work, or loses data."
    )
    detail: str = Field(description="What was found, with its values.")
    remedy: str | None = Field(default=None, description="What to type or to change. Null if all is well.")


def ok(check: str, detail: str) -> Finding:
    """Return a finding that all is well."""
    return Finding(check=check, state="ok", detail=detail)


def warning(check: str, detail: str, remedy: str) -> Finding:
    """Return a finding of something that works now, and may not later."""
    return Finding(check=check, state="warning", detail=detail, remedy=remedy)


def problem(check: str, detail: str, remedy: str) -> Finding:
    """Return a finding of something that does not work."""
    return Finding(check=check, state="problem", detail=detail, remedy=remedy)


def finding_lines(found: Finding) -> list[str]:
    """Return a finding as lines for people."""
    lines = [f"{found.state:<8} {found.check}: {found.detail}"]
    return lines if found.remedy is None else [*lines, f"{'':<8} → {found.remedy}"]
