"""Describe an environment that is registered with a run, and decide whether it is alive."""

from dataclasses import dataclass

NEWCOMER_MS = 3000
"""How long a registration alone makes an environment bind, milliseconds of run clock. A client that gets the answer
gives a sign of life within one or two seconds. A client that never gets it must not delay batches."""


@dataclass(frozen=True, slots=True)
class EnvironmentRecord:
    """A producer registered with a run.

    Attributes:
        environment: Its id, ``>= 0``, unique in the run.
        desired_name: The name it asked for.
        name: Its name. For Atropos: ``<desired_name>_<n>``, which is its checkpoint folder; otherwise the desired one.
        group_size: Sequences it declared per group.
        max_token_length: Context length it declared, tokens.
        weight: Relative inference weight it declared.
        min_share: Promised fraction of each batch, 0 to 1, or None.
        max_share: Largest fraction of each batch, 0 to 1, or None.
        registered_ms: Run clock when it registered, or last came back, milliseconds.
        left_ms: Run clock when it, or the last of its members, left, milliseconds; None if it has not left.
        heard_ms: Run clock at its last sign of life since it registered, milliseconds, or None. The registration itself
            does not count: a client that never gets the answer registers again and gets another id.
        members: Worker processes that joined under its name and are alive. An environment of Atropos has none.
    """

    environment: int
    desired_name: str
    name: str
    group_size: int
    max_token_length: int
    weight: float
    min_share: float | None
    max_share: float | None
    registered_ms: int
    left_ms: int | None = None
    heard_ms: int | None = None
    members: int = 0

    @property
    def of_atropos(self) -> bool:
        """Whether a client of Atropos registered it. Otherwise workers join it under its name."""
        return self.name != self.desired_name

    @property
    def connected(self) -> bool:
        """Whether a member is alive, or it has not left, or it gave a sign of life after it left."""
        if self.members or self.left_ms is None:
            return True
        return self.heard_ms is not None and self.heard_ms > self.left_ms

    def alive(self, clock_ms: int, ttl_ms: int) -> bool:
        """Whether it binds at run clock ``clock_ms``.

        It is alive while a member is alive. Without members it must be connected, with a sign of life within
        ``ttl_ms``: a group, or a poll of Atropos. Before its first sign of life, it is alive for `NEWCOMER_MS` after it
        registered.
        """
        if self.members:
            return True
        since_ms = self.registered_ms if self.heard_ms is None else self.heard_ms
        patience_ms = min(ttl_ms, NEWCOMER_MS) if self.heard_ms is None else ttl_ms
        return self.connected and clock_ms - since_ms <= patience_ms

    @property
    def last_seen_ms(self) -> int:
        """Return the run clock at its last sign of life or, before the first one, at its registration, milliseconds."""
        return self.registered_ms if self.heard_ms is None else self.heard_ms
