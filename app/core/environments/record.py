"""Describe an environment that is registered with a run, and decide whether it is alive."""

from dataclasses import dataclass

from lachesis.wire.problems import MAX_NAME, shortened

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
    def short_name(self) -> str:
        """Its name in a sentence. Its sender chose it: a long one is cut, so that the rest stays readable."""
        return shortened(self.name, MAX_NAME)

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
        """Return whether it binds at run clock ``clock_ms``.

        It is alive while a member is alive. Without members it must be connected, with a sign of life within
        ``ttl_ms``: a group, or a poll of Atropos. Before its first sign of life, it is alive for `NEWCOMER_MS` after it
        registered.
        """
        return self.members > 0 or is_alive(self, self.heard_ms, clock_ms, ttl_ms)

    def with_activity(self, heard_ms: int | None, members: int) -> "EnvironmentRecord":
        """Return the record with other activity. `dataclasses.replace` takes twice as long, for thousands of them."""
        return EnvironmentRecord(
            self.environment,
            self.desired_name,
            self.name,
            self.group_size,
            self.max_token_length,
            self.weight,
            self.min_share,
            self.max_share,
            self.registered_ms,
            self.left_ms,
            heard_ms,
            members,
        )

    @property
    def last_seen_ms(self) -> int:
        """Return the run clock at its last sign of life or, before the first one, at its registration, milliseconds."""
        return self.registered_ms if self.heard_ms is None else self.heard_ms


def is_alive(record: EnvironmentRecord, heard_ms: int | None, clock_ms: int, ttl_ms: int) -> bool:
    """Return whether an environment without members is alive, if this was its last sign of life."""
    if record.left_ms is not None and (heard_ms is None or heard_ms <= record.left_ms):
        return False
    return clock_ms <= alive_until_ms(record, heard_ms, ttl_ms)


def alive_until_ms(record: EnvironmentRecord, heard_ms: int | None, ttl_ms: int) -> int:
    """Return the last moment at which it is alive, if it has neither members nor left."""
    return record.registered_ms + min(ttl_ms, NEWCOMER_MS) if heard_ms is None else heard_ms + ttl_ms
