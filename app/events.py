"""The events of runs: each event is one class. It is a line of the log, and goes to those who follow the run.

Services call `emit`; rules in the core do not log. The API sets `caller` for each request (`app.api.http.caller`), so
that a line says who asked. A line without a caller is about something that the service did itself.
"""

import logging
import re
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from pydantic import BaseModel

from lachesis.wire.criteria import GroupCriteria

MOST_CHARACTERS = 200
"""Most characters of a name or reason in a line; longer ones are cut."""

Recorder = Callable[["Event"], None] | None
"""Takes an event; None: no one stores events."""

Caller = Callable[[], Mapping[str, str]] | None
"""Returns fields that describe who asked; None: the service acts by itself."""

caller: ContextVar[Caller] = ContextVar("caller", default=None)

stored_by: ContextVar["Recorder"] = ContextVar("stored_by", default=None)
"""Stores the events of this process for those who follow a run."""

happened: ContextVar[list[dict[str, Any]] | None] = ContextVar("happened", default=None)
"""What a request has changed so far, for the audit trail. None means that the request has no entry there."""

log = logging.getLogger("lachesis.events")


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened to a run. The message is the class's name in words; the fields follow it.

    Attributes:
        level: The level of its line in the log. Events of every batch are lines for debugging.
        is_logged: Whether it is in the log. Scripts add the others to the events of the run.
        is_stored: Whether those who follow the run get it.
    """

    level: ClassVar[int] = logging.INFO
    is_logged: ClassVar[bool] = True
    is_stored: ClassVar[bool] = True

    run: str

    @property
    def message(self) -> str:
        """Return the event in words, the same for all of its kind: ``run created``."""
        return re.sub(r"(?<!^)(?=[A-Z])", " ", type(self).__name__).lower()

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Return the names that its values may have."""
        return tuple(field.name for field in fields(cls))

    def named(self) -> dict[str, Any]:
        """Return its values by name; None stands for no value."""
        return {name: getattr(self, name) for name in self.names()}

    def values(self) -> dict[str, Any]:
        """Return its values, without those that are None."""
        return {name: _cut(value) for name, value in self.named().items() if value is not None}


def note(what: str, values: Mapping[str, Any]) -> None:
    """Add something that a request has changed to its entry in the audit trail, if there will be one."""
    noted = happened.get()
    if noted is not None:
        noted.append({"event": what} | dict(values))


def note_settings(of: str, named: Mapping[str, Any], old: BaseModel | None, new: BaseModel) -> None:
    """Add settings that a request has changed to its entry in the audit trail, with their new values.

    Args:
        of: What the settings are of.
        named: Its run and name.
        old: The settings before; None if it was created.
        new: The settings now.
    """
    values = new.model_dump(mode="json", exclude_unset=old is None)
    before = {} if old is None else old.model_dump(mode="json")
    changes = {name: value for name, value in values.items() if name not in before or before[name] != value}
    if changes or old is None:
        note(f"{of} {'created' if old is None else 'changed'}", dict(named) | {"changes": changes})


def emit(event: Event) -> None:
    """Write an event to the log, with who asked for it, and to the audit trail if the request has an entry there.

    Those who follow the run get it, too.
    """
    record = stored_by.get()
    if record is not None and event.is_stored:
        record(event)
    note(event.message, event.values())
    if not log.isEnabledFor(event.level):
        return
    describe = caller.get()
    by = {} if describe is None else {name: _cut(value) for name, value in describe().items()}
    log.log(event.level, event.message, extra={"fields": event.values() | by})


def _cut(value: Any) -> Any:
    return value[:MOST_CHARACTERS] + "…" if isinstance(value, str) and len(value) > MOST_CHARACTERS else value


# Runs


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCreated(Event):
    """A run was created; `changes` has the settings that the request named."""

    batch_size: int
    changes: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunChanged(Event):
    """Settings of a run were changed; `changes` has the new values."""

    changes: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReset(Event):
    """A client of Atropos reset a run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDeleted(Event):
    """A run was deleted with everything it owned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RewindCompleted(Event):
    """A trainer went back to `step`; `batches` are handed out again."""

    step: int
    batches: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunWarned(Event):
    """Something cannot work in a run, logged when first found; `kind` and `detail` are those of the status."""

    level: ClassVar[int] = logging.WARNING
    is_stored: ClassVar[bool] = False  # each process finds it; `AlertRaised` tells of it once

    kind: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertRaised(Event):
    """A run needs attention; `alert` is ``starvation``, ``scarce_environments``, or the kind of a warning."""

    is_logged: ClassVar[bool] = False

    alert: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertCleared(Event):
    """An alert has ended."""

    is_logged: ClassVar[bool] = False

    alert: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyVersionSet(Event):
    """The trainer set the policy version; `dropped_groups` were too old for it."""

    level: ClassVar[int] = logging.DEBUG

    policy_version: int
    before: int
    dropped_groups: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointReported(Event):
    """The trainer has saved its state after `step`; the run keeps `released_batches` no longer."""

    level: ClassVar[int] = logging.DEBUG

    step: int
    released_batches: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerRegistered(Event):
    """A trainer of Atropos registered; `config` is ``new`` or, after a restart, ``same``."""

    batch_size: int
    config: str


# Environments and their members


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentJoined(Event):
    """An environment registered, or came back."""

    environment: int
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentLeft(Event):
    """An environment left."""

    environment: int
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentExpired(Event):
    """An environment was silent for too long."""

    environment: int
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberJoined(Event):
    """A worker process of an environment joined."""

    environment: int
    name: str
    member: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberLeft(Event):
    """A worker process of an environment left."""

    environment: int
    name: str
    member: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MembersLeft(Event):
    """All worker processes of an environment left: so many that they are only counted."""

    environment: int
    name: str
    members: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberExpired(Event):
    """A worker process of an environment was silent for too long."""

    environment: int
    name: str
    member: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MembersExpired(Event):
    """Worker processes of an environment were silent for too long: so many at once that they are only counted."""

    environment: int
    name: str
    members: int


# Groups


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupsDropped(Event):
    """Groups left the run untrained, at most one event per 5 s and reason; `environments` has them by id."""

    is_logged: ClassVar[bool] = False

    reason: str
    groups: int
    environments: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupsLost(Event):
    """Redis lost or changed the contents of acknowledged groups, so they were dropped; `first` is the id of one."""

    level: ClassVar[int] = logging.ERROR
    is_stored: ClassVar[bool] = False  # `GroupsDropped` counts them

    reason: str
    groups: int
    first: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDeleted(Event):
    """An operator deleted a waiting group."""

    group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupsDeleted(Event):
    """An operator deleted waiting groups by a filter; `groups` is how many, the other fields are the filter."""

    groups: int
    criteria: Mapping[str, Any]

    @classmethod
    def names(cls) -> tuple[str, ...]:
        return ("run", "groups", *GroupCriteria.model_fields)

    def named(self) -> dict[str, Any]:
        return {"run": self.run, "groups": self.groups, **self.criteria}


# Batches


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchTaken(Event):
    """A trainer took a new batch."""

    level: ClassVar[int] = logging.DEBUG

    batch: str
    step: int
    groups: int
    trainer: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchAcknowledged(Event):
    """A batch was trained on."""

    level: ClassVar[int] = logging.DEBUG

    batch: str
    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRelaxed(Event):
    """A batch does not keep every minimum; `owed_sequences` says what environments are owed now."""

    level: ClassVar[int] = logging.WARNING

    batch: str
    step: int
    owed_sequences: Mapping[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchGivenBack(Event):
    """A trainer or an operator gave a batch back."""

    batch: str
    step: int
    reason: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRedelivered(Event):
    """A batch was handed out again."""

    batch: str
    step: int
    delivery_count: int
    trainer: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchQuarantined(Event):
    """A batch was quarantined: its leases ran out as often as the run allows."""

    level: ClassVar[int] = logging.WARNING

    batch: str
    step: int
    delivery_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchDiscarded(Event):
    """An operator dropped a quarantined batch with its groups."""

    batch: str
    step: int


# Replay buffers


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayDeleted(Event):
    """A run's replay buffer was deleted with all it held."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaySessionStarted(Event):
    """A session of a replay buffer began; `retired_chunks` of earlier sessions were archived."""

    session: int
    retired_chunks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayChunksDeleted(Event):
    """Chunks of a replay buffer were deleted; `chunks` is how many, the other fields are the filter."""

    chunks: int
    worker: str | None
    session: int | None
    version: int | None
    below_version: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaySnapshotRestored(Event):
    """A replay buffer was replaced by a snapshot."""

    snapshot: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaySnapshotDeleted(Event):
    """A snapshot of a replay buffer was deleted."""

    snapshot: str


# Curricula


@dataclass(frozen=True, slots=True, kw_only=True)
class CurriculumDeleted(Event):
    """A curriculum was deleted with the records of its items."""

    curriculum: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CurriculumRestored(Event):
    """A curriculum was replaced by a saved state, or created from one."""

    curriculum: str
    items: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CurriculumItemDeleted(Event):
    """An item of a curriculum was deleted."""

    curriculum: str
    item: str
