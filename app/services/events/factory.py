"""Build the use cases of events."""

from dataclasses import dataclass

from app.services.events.alerts import AlertWatch
from app.services.events.following import EventFeeds
from app.services.events.recording import EventRecorder
from app.store.events.store import EventStore


@dataclass(frozen=True, slots=True)
class EventServices:
    """The use cases of events."""

    recorder: EventRecorder
    feeds: EventFeeds
    alerts: AlertWatch

    @classmethod
    def create(cls, store: EventStore, environment_ttl_ms: int) -> "EventServices":
        """Build the use cases."""
        return cls(EventRecorder(store), EventFeeds(store), AlertWatch(store, environment_ttl_ms))

    async def stop(self) -> None:
        """Write what waits, and end all tasks."""
        await self.feeds.stop()
        await self.recorder.stop()
