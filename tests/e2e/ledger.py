"""Account for every group: what environments sent, what the trainer was served, what is still queued.

    acknowledged  <=  served + waiting  <=  attempted

An attempt without an answer (connection reset, rollout cancelled) may have arrived or not; nobody can know. All else
is exact.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Event = Mapping[str, Any]


def read_journal(path: Path) -> list[Event]:
    """Read the events that a client wrote down, oldest first."""
    written = path.read_text() if path.exists() else ""
    whole = written[: written.rfind("\n") + 1]  # the last line may be half written: its writer is still at it
    return [json.loads(line) for line in whole.splitlines()]


@dataclass
class Sent:
    """What one environment sent."""

    name: str
    size_of: dict[str, int] = field(default_factory=dict)
    attempts: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    acknowledged: set[str] = field(default_factory=set)
    open_attempts: int = 0
    quiet: bool = False

    @classmethod
    def read(cls, name: str, path: Path) -> "Sent":
        """Add up a journal."""
        sent = cls(name)
        underway: dict[str, list[Event]] = {}
        for event in read_journal(path):
            match event["event"]:
                case "attempt":
                    underway[event["attempt"]] = event["groups"]
                    sent.attempts.update(group["group"] for group in event["groups"])
                    sent.size_of |= {group["group"]: group["size"] for group in event["groups"]}
                    sent.open_attempts += 1
                case "answer":
                    groups = [group["group"] for group in underway[event["attempt"]]]
                    sent.acknowledged.update(groups if event["status"] in (200, 201) else [])
                    sent.refused.update(groups if 400 <= event["status"] < 500 else [])
                case "closed":
                    sent.open_attempts -= 1
                case "quiet":
                    sent.quiet = True
        return sent

    @property
    def retried(self) -> int:
        """Groups that were sent more than once."""
        return sum(1 for times in self.attempts.values() if times > 1)

    @property
    def most_attempts(self) -> int:
        """The largest number of times one group was sent."""
        return max(self.attempts.values(), default=0)


@dataclass(frozen=True)
class Batch:
    """One served batch: (fingerprint, size, environment id) of each group, and the status around it."""

    groups: tuple[tuple[str, int, int], ...]
    before: Event
    after: Event

    @property
    def sequences(self) -> int:
        """Sequences in all."""
        return sum(size for _, size, _ in self.groups)

    def sequences_of(self, env_id: int) -> int:
        """Sequences of one environment."""
        return sum(size for _, size, owner in self.groups if owner == env_id)


def read_batches(path: Path) -> list[Batch]:
    """Read the batches that the trainer wrote down, in the order served."""
    return [
        Batch(tuple((g["group"], g["size"], g["env_id"]) for g in e["groups"]), e["before"], e["after"])
        for e in read_journal(path)
        if e["event"] == "batch"
    ]


def without_redeliveries(batches: list[Batch]) -> Iterator[Batch]:
    """Leave out each batch that repeats the previous one: the same groups in the same order."""
    previous: Batch | None = None
    for batch in batches:
        if previous is None or batch.groups != previous.groups:
            yield batch
        previous = batch


@dataclass(frozen=True)
class Account:
    """The sums of one story."""

    sent: tuple[Sent, ...]
    batches: tuple[Batch, ...]
    redelivered: int
    waiting: int

    @classmethod
    def draw_up(cls, sent: list[Sent], batches: list[Batch], waiting: int) -> "Account":
        """Add up a story; ``waiting`` groups are queued or buffered at its end."""
        once = tuple(without_redeliveries(batches))
        return cls(tuple(sent), once, len(batches) - len(once), waiting)

    def served(self) -> Counter[str]:
        """How often each group was in a batch."""
        return Counter(group for batch in self.batches for group, _, _ in batch.groups)

    def complaints(self) -> list[str]:
        """Say what does not add up; empty when all is well."""
        served = self.served()
        attempts = Counter[str]()
        for sent in self.sent:
            attempts += sent.attempts - sent.refused
        acknowledged = set[str]().union(*(sent.acknowledged for sent in self.sent))
        unserved = len(acknowledged - set(served))
        unanswered = sum((attempts - Counter(acknowledged)).values())
        found = []
        if unknown := set(served) - set(attempts):
            found.append(f"{len(unknown)} served groups were never sent, or were changed on the way")
        if twice := {group for group, times in served.items() if times > attempts[group] and group not in unknown}:
            found.append(f"{len(twice)} groups were served more often than they were sent")
        if self.waiting < unserved:
            found.append(f"{unserved} acknowledged groups were not served, but only {self.waiting} are waiting")
        if sum(served.values()) + self.waiting > len(acknowledged) + unanswered:
            found.append(
                f"{sum(served.values())} served and {self.waiting} waiting are more than the {len(acknowledged)} "
                f"acknowledged and the {unanswered} sent without an answer"
            )
        return found

    def summary(self) -> str:
        """Say in one line what was accounted for."""
        acknowledged = sum(len(sent.acknowledged) for sent in self.sent)
        retried = sum(sent.retried for sent in self.sent)
        unanswered = sum(len(set(sent.attempts) - sent.acknowledged) for sent in self.sent)
        return (
            f"{len(self.batches)} batches, {sum(self.served().values())} groups served, {self.waiting} waiting, "
            f"{acknowledged} acknowledged, {unanswered} never answered, {retried} sent again, "
            f"{self.redelivered} batches redelivered"
        )
