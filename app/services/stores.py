"""Build the stores of one process, all on one connection."""

from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from functools import partial

from app.store.batches.store import BatchStore
from app.store.curriculum.items import ItemStore
from app.store.curriculum.state import CurriculumStateStore
from app.store.curriculum.store import CurriculumStore
from app.store.environments.members import MemberStore
from app.store.groups.store import GroupStore
from app.store.redis.client import RedisClient
from app.store.redis.notifications import changes
from app.store.replay.groups import EnteringStore
from app.store.replay.samples import SampleStore
from app.store.replay.snapshots import SnapshotStore
from app.store.replay.store import ReplayStore
from app.store.runs.store import RunStore

Changes = Callable[[str], AsyncGenerator[None, None]]


@dataclass(frozen=True, slots=True)
class Stores:
    """The stores that the use cases read and write.

    Attributes:
        changes: Yields whenever something may have changed in a run, and at least once a second.
    """

    runs: RunStore
    members: MemberStore
    groups: GroupStore
    batches: BatchStore
    replay: ReplayStore
    entering: EnteringStore
    samples: SampleStore
    snapshots: SnapshotStore
    curricula: CurriculumStore
    items: ItemStore
    curriculum_states: CurriculumStateStore
    changes: Changes

    @classmethod
    def on(cls, connection: RedisClient) -> "Stores":
        """Build the stores on a connection to Redis."""
        return cls(
            runs=RunStore(connection),
            members=MemberStore(connection),
            groups=GroupStore(connection),
            batches=BatchStore(connection),
            replay=ReplayStore(connection),
            entering=EnteringStore(connection),
            samples=SampleStore(connection),
            snapshots=SnapshotStore(connection),
            curricula=CurriculumStore(connection),
            items=ItemStore(connection),
            curriculum_states=CurriculumStateStore(connection),
            changes=partial(changes, connection),
        )
