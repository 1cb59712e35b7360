"""Define the settings of a run as the rules read them."""

from collections.abc import Iterable, Mapping
from functools import cached_property

from app.core.wording import listed
from lachesis.wire.filters import RunFilters
from lachesis.wire.runs import AtroposSettings, BatchSize, RunSettings
from lachesis.wire.states import FILTERS

SHORTEST_MEMORY_MS = 120_000
"""How long a run remembers a request at least, milliseconds of run clock: as long as its client may repeat it."""

DROPPING_SETTINGS: Mapping[str, str] = {
    "stale": "max_staleness",
    "expired": "max_age_s",
    "future_version": "future_versions",
    "too_long": "max_sequence_tokens",
    **{name: f"filter_{name}" for name in FILTERS},
}
"""The setting of the run that drops groups, by reason."""


class RunConfig(AtroposSettings):
    """The settings that a trainer of Atropos registers. `AtroposSettings` defines all but the size of batches."""

    batch_size: BatchSize


class Policy(RunSettings):
    """All other settings of a run. `RunSettings` defines each with its bounds and meaning.

    The defaults are those of a run that nobody created under ``/v1``: a trainer of Atropos registered it. Such a run
    keeps no batches, because its trainer cannot rewind it.
    """

    keep_batches: int = 0

    @cached_property
    def filters_groups(self) -> bool:
        """Whether the run looks at the rewards of groups when they arrive."""
        return any(getattr(self, name) is not None for name in RunFilters.model_fields)

    @property
    def history_ms(self) -> int:
        """How long the run remembers what happened to its groups, milliseconds of run clock."""
        return round(self.history_retention_s * 1000)

    @property
    def dedup_ms(self) -> int:
        """How long after its admission the run recognises a group that has left, milliseconds of run clock."""
        return round(self.dedup_window_s * 1000)

    @property
    def request_memory_ms(self) -> int:
        """How long the run remembers requests and silent workers of replay buffers, milliseconds of run clock."""
        return max(self.dedup_ms, SHORTEST_MEMORY_MS)

    @property
    def remembered_ms(self) -> int:
        """How long the run remembers a group that has left, milliseconds of run clock."""
        return max(self.history_ms, self.dedup_ms)


def sequence_limit(config: RunConfig | None, policy: Policy) -> int | None:
    """Return the most tokens of a sequence that a run takes; None: there is no limit.

    A trainer of Atropos gives a limit when it registers (``max_token_len``). The run's own setting has precedence.
    """
    if policy.max_sequence_tokens is not None:
        return policy.max_sequence_tokens
    return config.max_token_len if config is not None and config.max_token_len > 0 else None


def settings_to_change(reasons: Iterable[str], policy: Policy) -> str:
    """Name the settings to change if batches wait for groups that the run drops for these reasons."""
    dropping = listed([DROPPING_SETTINGS[reason] for reason in reasons])
    return dropping if policy.relax_scarce_after_s is not None else f"{dropping} or set relax_scarce_after_s"
