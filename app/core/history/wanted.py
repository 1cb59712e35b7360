"""Say what of a history somebody wants to see, so that nothing else is read."""

from dataclasses import dataclass

SKETCHES = ("reward_in", "reward_out", "length_in", "length_out", "staleness_out", "waiting_s")
"""Values of groups that are summarised, by name."""


@dataclass(frozen=True, slots=True)
class WantedHistory:
    """What of a history is wanted.

    Attributes:
        run: Names of series of the run. None for all.
        environments: Names of series of environments. None for all.
        environment: The name of the only environment. None for all.
    """

    run: tuple[str, ...] | None = None
    environments: tuple[str, ...] | None = None
    environment: str | None = None

    @property
    def has_environments(self) -> bool:
        """Return whether any series of environments are wanted."""
        return self.environments is None or bool(self.environments)


EVERYTHING = WantedHistory()
