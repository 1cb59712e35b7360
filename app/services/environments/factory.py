"""Build the use cases of environments."""

from dataclasses import dataclass

from app.services.batches.retention import Retention
from app.services.environments.allowances import Allowances
from app.services.environments.demand import SharedDemand
from app.services.environments.heartbeats import HeartbeatBuffer
from app.services.environments.new_environment_limit import NewEnvironmentLimit
from app.services.environments.registry import EnvironmentRegistry
from app.services.runs.warnings import RunWarnings
from app.services.stores import Stores


@dataclass(frozen=True, slots=True)
class EnvironmentServices:
    """The use cases of environments."""

    registry: EnvironmentRegistry
    allowances: Allowances
    heartbeats: HeartbeatBuffer
    demand: SharedDemand

    @classmethod
    def create(
        cls, stores: Stores, retention: Retention, warnings: RunWarnings, new_each_minute: int
    ) -> "EnvironmentServices":
        """Build the use cases on the stores."""
        heartbeats = HeartbeatBuffer()
        demand = SharedDemand(stores.runs)
        registry = EnvironmentRegistry(
            stores.runs,
            stores.environments,
            stores.members,
            retention,
            heartbeats,
            warnings,
            NewEnvironmentLimit(new_each_minute),
        )
        return cls(registry, Allowances(stores.members, demand, heartbeats), heartbeats, demand)
