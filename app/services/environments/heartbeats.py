"""Collect heartbeats of environments and members in memory, to be written once a second.

An environment polls several times a second. A durable write for each poll would cost more than the poll.
"""

from collections import defaultdict
from dataclasses import dataclass, field

from app.store.runs.tick import PendingHeartbeats


@dataclass(frozen=True, slots=True)
class _Heartbeats:
    environments: dict[int, int] = field(default_factory=dict)
    members: set[tuple[int, str]] = field(default_factory=set)


class HeartbeatBuffer:
    """The environments and members that sent a heartbeat since they were last written, by run."""

    def __init__(self) -> None:
        self._heard: defaultdict[str, _Heartbeats] = defaultdict(_Heartbeats)

    def heard(self, run: str, environment: int, clock_ms: int) -> None:
        """Record a heartbeat of an environment without members, at this run clock."""
        known = self._heard[run].environments
        known[environment] = max(clock_ms, known.get(environment, 0))

    def heard_member(self, run: str, environment: int, member: str) -> None:
        """Record a heartbeat of a member."""
        self._heard[run].members.add((environment, member))

    def forget(self, run: str, environment: int) -> None:
        """Discard the heartbeats of an environment since they were last written."""
        if run in self._heard:
            self._heard[run].environments.pop(environment, None)

    def runs(self) -> list[str]:
        """Return the runs in which anything was heard, sorted."""
        return sorted(self._heard)

    def drain(self, run: str) -> PendingHeartbeats:
        """Return the heartbeats of a run, and forget them."""
        heard = self._heard.pop(run, _Heartbeats())
        return PendingHeartbeats(heard.environments, heard.members)

    def put_back(self, run: str, heard: PendingHeartbeats) -> None:
        """Put back what `drain` returned, because it could not be written."""
        for environment, clock_ms in heard.environments.items():
            self.heard(run, environment, clock_ms)
        self._heard[run].members.update(heard.members)
