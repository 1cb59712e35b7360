"""Say what happened to every token that a run has generated.

At all times, exactly: ``generated = trained + queued + leased + stale + filtered + dropped + surplus``.

The store counts what is generated, leased and trained, and what is dropped by reason, in the scripts that move groups.
Tokens that wait are the rest. Tokens that are trained on again from the replay buffer count once. Fragments that
workers send straight to a replay buffer are not in groups, and do not count.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Literal, get_args

from lachesis.wire.states import FILTERS

WasteKind = Literal["stale", "filtered", "dropped", "surplus"]
"""Why tokens are never trained on.

``surplus`` are tokens of sound groups: an operator deleted them, or no batch took them within `max_age_s`. ``dropped``
are those that could not be used: too long, of a refused version, of quarantined batches, lost or damaged.
"""

WASTE: Mapping[str, WasteKind] = {
    "stale": "stale",
    **dict.fromkeys(FILTERS, "filtered"),
    "deleted": "surplus",
    "expired": "surplus",
    "too_long": "dropped",
    "future_version": "dropped",
    "quarantined": "dropped",
    "payload_lost": "dropped",
    "corrupt": "dropped",
}
"""The kind of waste of each reason why groups are dropped."""

_WASTE_KINDS: tuple[WasteKind, ...] = get_args(WasteKind)
_MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class TokenLedger:
    """Tokens of groups by what happened to them. ``generated`` is the sum of the others, all of them ``>= 0``."""

    generated: int = 0
    trained: int = 0
    queued: int = 0
    leased: int = 0
    stale: int = 0
    filtered: int = 0
    dropped: int = 0
    surplus: int = 0

    def by_state(self) -> dict[str, int]:
        """Return the tokens by state, without ``generated``: each token once."""
        return {state: getattr(self, state) for state in _STATES}

    def cost(self, per_million_tokens: float) -> dict[str, float]:
        """Return what the tokens cost, with ``generated`` first, in the unit of the price."""
        tokens = {"generated": self.generated, **self.by_state()}
        return {name: count * per_million_tokens / _MILLION for name, count in tokens.items()}


_STATES = tuple(field.name for field in fields(TokenLedger) if field.name != "generated")


def ledger_of(tokens: Mapping[str, int]) -> TokenLedger:
    """Return the ledger of tokens by state: ``generated``, ``leased``, ``trained``, or why they were dropped."""
    generated, leased, trained = tokens.get("generated", 0), tokens.get("leased", 0), tokens.get("trained", 0)
    waste: dict[WasteKind, int] = dict.fromkeys(_WASTE_KINDS, 0)
    for reason, count in tokens.items():
        if (kind := WASTE.get(reason)) is not None:
            waste[kind] += count
    queued = generated - leased - trained - sum(waste.values())
    return TokenLedger(generated=generated, trained=trained, queued=queued, leased=leased, **waste)


def ledger_of_run(tokens: Mapping[tuple[str, int | None], int]) -> TokenLedger:
    """Return the ledger of a run, from tokens by state and environment (None: no environment)."""
    totals: dict[str, int] = {}
    for (state, _), count in tokens.items():
        totals[state] = totals.get(state, 0) + count
    return ledger_of(totals)
