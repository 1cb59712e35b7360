"""Who sends a request, as the service has verified it."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Literal

from app.core.access.queue_limits import LimitedAccount
from lachesis.wire.access import ALL_RUNS, Role
from lachesis.wire.limits import QueueLimitSettings, RateLimitSettings

IdentityKind = Literal["token", "file", "jwt", "certificate", "open"]

_MOST_SHOWN = 200


@dataclass(frozen=True)
class Identity:
    """Who sends a request, and what for. It holds no secret.

    Attributes:
        name: A name for people: that of the token, the subject of a JWT or a certificate.
        kind: How the sender was identified. ``file``: by the token in LACHESIS_ADMIN_TOKEN_FILE. ``open``: it was not,
            because the service has no authentication.
        token_id: The id of the token; None for other kinds.
        role: The role.
        runs: The runs that the identity is for: names, or patterns in which ``*`` stands for any characters.
        environment: The only environment that it may act for, by name; None for any.
        contents: Whether a viewer may read contents of groups.
        limits: What its account may send per second; None for no limits.
        queue_limits: What its account may have in the queue of each run; None for no limits.
        expires_at_s: When it expires, by the clock of Redis, seconds since 1970; None for never.
        digest: The SHA-256 of the token that was shown; None for other kinds.
    """

    name: str
    kind: IdentityKind
    role: Role
    runs: tuple[str, ...]
    token_id: str | None = None
    environment: str | None = None
    contents: bool = False
    limits: RateLimitSettings | None = None
    queue_limits: QueueLimitSettings | None = None
    expires_at_s: float | None = None
    digest: str | None = field(default=None, repr=False)

    @cached_property
    def account(self) -> str | None:
        """The account that all requests of this sender count for; None without an identity. Addresses do not matter.

        Senders of different kinds never share it, whatever their names are.
        """
        if self.kind == "open":
            return None
        return f"{self.kind} {self.name}" if self.token_id is None else account_of_token(self.token_id)

    @property
    def account_name(self) -> str:
        """The account in messages: the id of a token, the name of others. An issuer may choose any name."""
        if self.token_id is not None:
            return account_of_token(self.token_id)
        return f"{self.kind} {self.name[:_MOST_SHOWN]!r}"

    @property
    def owner(self) -> str:
        """The owner of the limits of the account, in Redis. Names are hashed, because they may be long and odd."""
        if self.token_id is not None:
            return owner_of_token(self.token_id)
        return f"{self.kind}:{hashlib.sha256(self.name.encode()).hexdigest()[:32]}"

    @property
    def queue(self) -> LimitedAccount | None:
        """What limits the groups of the account in the queue; None for no limits."""
        if self.queue_limits is None:
            return None
        account_id = self.owner if self.token_id is None else self.token_id
        return LimitedAccount(account_id, self.account_name, self.environment, self.queue_limits)

    @property
    def has_all_runs(self) -> bool:
        """Whether the identity is for every run, also for those that are made later."""
        return ALL_RUNS in self.runs

    def has_run(self, run: str) -> bool:
        """Return whether the identity is for a run."""
        return self.has_all_runs or _matches_any(self.runs, run)

    def own(self, runs: Iterable[str]) -> list[str]:
        """Return those of the runs that the identity is for."""
        return [run for run in runs if self.has_run(run)]


def account_of_token(token_id: str) -> str:
    """Return the account of all who send a token."""
    return f"token {token_id}"


def owner_of_token(token_id: str) -> str:
    """Return the owner of the limits of a token, as `Identity.owner`."""
    return f"token:{token_id}"


OPEN = Identity("anyone", "open", "operator", (ALL_RUNS,), contents=True)
"""The identity of every request while the service has no authentication."""


def matches(pattern: str, name: str) -> bool:
    """Return whether a name matches a pattern. ``*`` stands for any characters, and all others for themselves.

    The cost is linear in the length of the name for each part of the pattern, so no pattern can take long.
    """
    first, *rest = pattern.split("*")
    if not rest:
        return name == first
    *middle, last = rest
    if len(name) < len(first) + len(last) or not (name.startswith(first) and name.endswith(last)):
        return False
    at, end = len(first), len(name) - len(last)
    for part in middle:  # the leftmost place of each part leaves the most room for the next ones
        found = name.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return True


@lru_cache(maxsize=1024)
def _matches_any(patterns: tuple[str, ...], run: str) -> bool:
    return any(matches(pattern, run) for pattern in patterns)
