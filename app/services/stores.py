"""Build the stores of one process, all on one connection."""

from dataclasses import dataclass
from functools import partial

from app.store.access.audit import AuditStore
from app.store.access.rate_limits import LimitStore
from app.store.access.store import AccessStore
from app.store.batches.records import BatchRecordStore
from app.store.batches.store import BatchStore
from app.store.curriculum.items import ItemStore
from app.store.curriculum.state import CurriculumStateStore
from app.store.curriculum.store import CurriculumStore
from app.store.environments.members import MemberStore
from app.store.environments.store import EnvironmentStore
from app.store.events.store import MOST_EVENTS, EventStore
from app.store.groups.annotations import AnnotationStore
from app.store.groups.garbage import GarbageStore
from app.store.groups.known import KnownGroupStore
from app.store.groups.listing import GroupListStore
from app.store.groups.store import GroupStore
from app.store.history.store import HistoryStore
from app.store.redis.client import RedisClient
from app.store.redis.notifications import Listen, listen
from app.store.replay.groups import GroupInsertionStore
from app.store.replay.samples import SampleStore
from app.store.replay.snapshots import SnapshotStore
from app.store.replay.store import ReplayStore
from app.store.runs.damage import DamageStore
from app.store.runs.processes import ProcessStore
from app.store.runs.revision import RevisionStore
from app.store.runs.sleeps import SleepStore
from app.store.runs.store import RunStore
from app.store.runs.turns import TurnStore
from app.store.traces.store import TraceStore


@dataclass(frozen=True, slots=True)
class Stores:
    """The stores that the use cases read and write.

    Attributes:
        listen: Listens for news of a run.
    """

    access: AccessStore
    audit: AuditStore
    limits: LimitStore
    processes: ProcessStore
    events: EventStore
    runs: RunStore
    damage: DamageStore
    revisions: RevisionStore
    sleeps: SleepStore
    turns: TurnStore
    environments: EnvironmentStore
    members: MemberStore
    groups: GroupStore
    known_groups: KnownGroupStore
    listed_groups: GroupListStore
    garbage: GarbageStore
    annotations: AnnotationStore
    batches: BatchStore
    batch_records: BatchRecordStore
    replay: ReplayStore
    group_insertions: GroupInsertionStore
    samples: SampleStore
    snapshots: SnapshotStore
    curricula: CurriculumStore
    items: ItemStore
    curriculum_states: CurriculumStateStore
    histories: HistoryStore
    traces: TraceStore
    listen: Listen

    @classmethod
    def on(cls, connection: RedisClient, environment_ttl_ms: int, most_events: int = MOST_EVENTS) -> "Stores":
        """Build the stores on a connection to Redis; about ``most_events`` of each run are kept."""
        groups = GroupStore(connection)
        return cls(
            access=AccessStore(connection),
            audit=AuditStore(connection),
            limits=LimitStore(connection),
            processes=ProcessStore(connection),
            events=EventStore(connection, most_events),
            runs=RunStore(connection, environment_ttl_ms, most_events),
            damage=DamageStore(connection),
            revisions=RevisionStore(connection),
            sleeps=SleepStore(connection),
            turns=TurnStore(connection),
            environments=EnvironmentStore(connection),
            members=MemberStore(connection),
            groups=groups,
            known_groups=KnownGroupStore(connection, groups),
            listed_groups=GroupListStore(connection),
            garbage=GarbageStore(connection),
            annotations=AnnotationStore(connection),
            batches=BatchStore(connection),
            batch_records=BatchRecordStore(connection),
            replay=ReplayStore(connection),
            group_insertions=GroupInsertionStore(connection),
            samples=SampleStore(connection),
            snapshots=SnapshotStore(connection),
            curricula=CurriculumStore(connection),
            items=ItemStore(connection),
            curriculum_states=CurriculumStateStore(connection),
            histories=HistoryStore(connection),
            traces=TraceStore(connection),
            listen=partial(listen, connection),
        )
