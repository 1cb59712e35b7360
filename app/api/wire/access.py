"""Tokens as requests ask for them and as replies show them."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from app.core.access.rate_limits import LimitUse, limits_of
from app.core.runs.capacity import WaitingGroups
from app.services.access.tokens import NewToken, TokenFacts
from lachesis.wire.access import QueuedInRun, TokenCreate, TokenCreated, TokenInfo, TokenState
from lachesis.wire.limits import QueueLimitSettings, RateLimitSettings, RateUse


def scope_of(asked: TokenCreate) -> NewToken:
    """Return what a token is to be for."""
    return NewToken(
        role=asked.role,
        runs=asked.runs,
        name=asked.name,
        environment=asked.environment,
        contents=asked.contents,
        limits=limits_of(RateLimitSettings, asked),
        queue_limits=limits_of(QueueLimitSettings, asked),
    )


def shown_token(facts: TokenFacts, connections: int | None = None) -> TokenInfo:
    """Describe a token without its secret. ``connections`` are those that it has open here."""
    return TokenInfo.model_validate(_fields(facts) | {"connections": connections})


def created_token(facts: TokenFacts, text: str) -> TokenCreated:
    """Describe a token with its secret, for the client that has just made it."""
    return TokenCreated.model_validate(_fields(facts) | {"token": text})


def shown_uses(uses: Sequence[LimitUse]) -> list[RateUse]:
    """Describe how much of each rate limit is used."""
    return [RateUse(**asdict(use)) for use in uses]


def _queued(queued: Mapping[str, WaitingGroups]) -> list[QueuedInRun]:
    return [QueuedInRun(run=run, groups=there.groups, bytes=there.payload_bytes) for run, there in queued.items()]


def _fields(facts: TokenFacts) -> dict[str, Any]:
    record, now_ms = facts.record, facts.now_ms
    expired = record.expires_ms is not None and record.expires_ms <= now_ms
    state: TokenState = "expired" if expired else "active"
    ends_ms = [secret.ends_ms for secret in record.secrets if secret.ends_ms is not None and secret.ends_ms > now_ms]
    return {
        "id": record.token_id,
        "name": record.name,
        "role": record.role,
        "runs": record.runs,
        "environment": record.environment,
        "contents": record.contents,
        "state": "revoked" if record.revoked_ms is not None else state,
        "created_age_s": max(0, now_ms - record.created_ms) / 1000,
        "expires_s": None if record.expires_ms is None else max(0, record.expires_ms - now_ms) / 1000,
        "last_used_age_s": None if facts.used_ms is None else max(0, now_ms - facts.used_ms) / 1000,
        "limits": shown_uses(facts.limits),
        **(record.queue_limits or QueueLimitSettings()).model_dump(),
        "queued": _queued(facts.queued),
        "rotation_ends_s": (ends_ms[0] - now_ms) / 1000 if ends_ms else None,
    }
