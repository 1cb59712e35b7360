"""Build the use cases of events."""

from dataclasses import dataclass

from app.services.events.alerts import AlertWatch
from app.services.events.changes import ChangeWatch
from app.services.events.following import EventFeeds
from app.services.events.recording import EventRecorder
from app.services.stores import Stores


@dataclass(frozen=True, slots=True)
class EventServices:
    """The use cases of events."""

    recorder: EventRecorder
    feeds: EventFeeds
    changes: ChangeWatch
    alerts: AlertWatch

    @classmethod
    def create(cls, stores: Stores) -> "EventServices":
        """Build the use cases."""
        store = stores.events
        changes, alerts = ChangeWatch(stores.revisions), AlertWatch(store)
        return cls(EventRecorder(store), EventFeeds(store), changes, alerts)

    async def stop(self) -> None:
        """Write what waits, and end all tasks."""
        await self.feeds.stop()
        await self.changes.stop()
        await self.recorder.stop()
