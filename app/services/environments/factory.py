"""Build the use cases of environments."""

from dataclasses import dataclass

from app.services.batches.rewind import Retention
from app.services.environments.heartbeats import HeartbeatBuffer
from app.services.environments.registry import EnvironmentRegistry
from app.services.runs.warnings import RunWarnings
from app.services.stores import Stores


@dataclass(frozen=True, slots=True)
class EnvironmentServices:
    """The use cases of environments."""

    registry: EnvironmentRegistry
    heartbeats: HeartbeatBuffer

    @classmethod
    def create(
        cls, stores: Stores, retention: Retention, warnings: RunWarnings, environment_ttl_ms: int
    ) -> "EnvironmentServices":
        """Build the use cases on the stores."""
        heartbeats = HeartbeatBuffer()
        registry = EnvironmentRegistry(stores.runs, stores.members, retention, heartbeats, warnings, environment_ttl_ms)
        return cls(registry, heartbeats)
