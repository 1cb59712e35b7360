"""The time limits that settings give."""

from dataclasses import dataclass

from app.settings import ServiceSettings


@dataclass(frozen=True, slots=True)
class Timing:
    """The time limits of this process, milliseconds on the run clock.

    Attributes:
        environment_ttl_ms: Silence after which an environment counts as dead.
        relax_after_ms: Wait after which conflicting minimums are relaxed, unless the run has its own limit.
        buffer_release_ms: Wait in the set buffer after which a group joins the queue.
        orphan_ttl_ms: Age after which a payload that no group names is removed.
    """

    environment_ttl_ms: int
    relax_after_ms: int
    buffer_release_ms: int
    orphan_ttl_ms: int

    @classmethod
    def of(cls, settings: ServiceSettings) -> "Timing":
        """Return the limits that the settings of the process give."""
        return cls(
            environment_ttl_ms=round(settings.environment_ttl_s * 1000),
            relax_after_ms=round(settings.relax_after_s * 1000),
            buffer_release_ms=round(settings.buffer_release_s * 1000),
            orphan_ttl_ms=round(settings.orphan_ttl_s * 1000),
        )
