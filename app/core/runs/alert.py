"""Say when an operator should look at a run: nothing trainable arrives, or an environment sends too little."""

from collections.abc import Mapping
from dataclasses import dataclass

from app.core.environments.scarcity import alarming, relaxed_in_ms
from app.core.runs.settings import DROPPING_SETTINGS, settings_to_change
from app.core.runs.view import RunView
from app.core.wording import listed


@dataclass(frozen=True, slots=True)
class RunAlert:
    """A problem of a run.

    Attributes:
        age_ms: How long it has lasted, ``>= 0``.
        sequences: Sequences in the groups that could not be trained on.
        dropped: Number of these groups, by the reason why they were dropped.
        environments: Ids of the environments that send too little.
        detail: The problem as a sentence.
    """

    age_ms: int
    sequences: int
    dropped: Mapping[str, int]
    environments: tuple[int, ...]
    detail: str


def causes(view: RunView) -> dict[str, str]:
    """Return the details of a run's alert by its causes, ``starvation`` and ``scarce_environments``.

    Args:
        view: The run.
    """
    return _causes(view, alarming(view))


def _causes(view: RunView, scarce: Mapping[int, int]) -> dict[str, str]:
    found = {}
    if view.alarming_starvation is not None:
        found["starvation"] = str(view.alarming_starvation)
    if scarce:
        minimums = _minimums(view)
        details = [_scarce_detail(view, key, ms, minimums.get(key, 0)) for key, ms in scarce.items()]
        found["scarce_environments"] = listed(details, "; ")
    return found


def alert_of(view: RunView) -> RunAlert | None:
    """Return the alert that nothing trainable arrives, or that an environment sends too little; None if neither.

    Args:
        view: The run.
    """
    starvation, scarce = view.alarming_starvation, alarming(view)
    if starvation is None and not scarce:
        return None
    since_ms = min([*scarce.values(), *([] if starvation is None else [starvation.since_ms])])
    return RunAlert(
        age_ms=max(0, view.clock_ms - since_ms),
        sequences=0 if starvation is None else starvation.sequences,
        dropped={} if starvation is None else starvation.dropped,
        environments=tuple(scarce),
        detail="; ".join(_causes(view, scarce).values()),
    )


def _minimums(view: RunView) -> dict[int, int]:
    """Return the sequences of a batch that are promised to each live environment."""
    return {key: bound.minimum for key, bound in view.bounds.items()}


def _scarce_detail(view: RunView, key: int, since_ms: int, minimum: int) -> str:
    left_ms = relaxed_in_ms(view, since_ms)
    ends = "while it is live: relax_scarce_after_s is null" if left_ms is None else f"for {left_ms / 1000:.1f} s more"
    waits = "no longer wait" if left_ms == 0 else f"wait {ends}"
    seconds = (view.clock_ms - since_ms) / 1000
    part = "its minimum" if minimum else "its part of a batch"
    said = f"{view.named(key)} has sent too little for {part} for {seconds:.0f} s: batches {waits}"
    return f"{said}{_silence(view, key)}{_dropped(view, key, since_ms)}"


def _silence(view: RunView, key: int) -> str:
    """Say when an environment stops being live, if it has given no sign of life for a quarter of that time."""
    silent_s = (view.clock_ms - view.environments[key].last_seen_ms) / 1000
    ttl_s = view.environment_ttl_ms / 1000
    if silent_s < ttl_s / 4:
        return ""
    return f". It gave its last sign of life {silent_s:.0f} s ago, and is live for {ttl_s:.0f} s after it"


def _dropped(view: RunView, key: int, since_ms: int) -> str:
    """Name the settings that drop groups of an environment, if it has sent some since batches wait for it."""
    if key not in view.sent or view.sent[key].last_ms < since_ms:
        return ""
    counts = {reason: count for (reason, of), count in sorted(view.dropped.items(), key=str) if of == key and count}
    by_settings = {reason: count for reason, count in counts.items() if reason in DROPPING_SETTINGS}
    if not by_settings:
        return ""
    which = listed([f"{reason} {count}" for reason, count in by_settings.items()])
    change = settings_to_change(by_settings, view.policy)
    kept = f"The run has queued {view.sent[key].sequences} of its sequences so far"
    return f". {kept}, and dropped {sum(by_settings.values())} of its groups: {which}. Change {change}"
