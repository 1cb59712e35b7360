"""Load the state of Atropos's CurriculumScheduler as a curriculum of Lachesis.

The scheduler has a moving average and a count for each item. The other numbers of an estimate are derived from them,
as if all rewards were 0 or 1 with that mean p. Each update counts as one reward of evidence and is forgotten like any
other. The last group's mean is the average, and mean |advantage| is 2 p (1 - p). Bins are ranks here, so the
scheduler's bin boundaries are not needed.
"""

import reprlib
from collections.abc import Mapping
from typing import Any

from app.core.curriculum.estimates import Estimate, pass_share
from app.core.curriculum.state import CurriculumHeader, load_settings, read_number, read_whole
from lachesis.wire.curricula import MAX_REWARD, CurriculumSettings
from lachesis.wire.errors import InvalidField

_SETTINGS = ("strategy", "n_bins", "temperature", "ema_alpha", "competence_threshold")
_LEFT_BEHIND = ("bin_boundaries", "last_rebin_count")


def load_atropos(document: Mapping[str, Any]) -> tuple[CurriculumHeader, dict[str, Estimate]]:
    """Read the scheduler's settings, and the estimate of each item that it scored, by key.

    Its ``competence_based`` gets the form `frontier`, which uses ``competence_threshold``.

    Args:
        document: ``{strategy, n_bins, temperature, ema_alpha, competence_threshold, item_scores: {key: [ema, count]},
            bin_boundaries, last_rebin_count}``.

    Raises:
        InvalidField: Something is missing, unknown, or out of range; `location` says where.
    """
    for name in document:
        if name not in (*_SETTINGS, *_LEFT_BEHIND, "item_scores"):
            raise InvalidField("is unknown", (name,))
    scores = document.get("item_scores")
    if not isinstance(scores, Mapping):
        raise InvalidField("should be an object", ("item_scores",))
    known = {name: document[name] for name in _SETTINGS if name in document}
    if known.get("strategy") == "competence_based":
        known["form"] = "frontier"
    settings = load_settings(known)
    items = {key: _estimate(settings, key, score) for key, score in scores.items()}
    updates = read_whole(sum(each.count for each in items.values()), ("item_scores",))
    return CurriculumHeader(settings, updates=updates), items


def _estimate(settings: CurriculumSettings, key: str, score: object) -> Estimate:
    if not isinstance(score, list | tuple) or len(score) != 2:
        raise InvalidField(f"is {reprlib.repr(score)}, not [ema, count]", ("item_scores", key))
    ema = read_number(score[0], ("item_scores", key, 0), MAX_REWARD)
    count = read_whole(score[1], ("item_scores", key, 1))
    if not count:
        return Estimate()
    share = pass_share(settings, ema)
    forgotten = settings.forgetting
    evidence = (1 - (1 - forgotten) ** count) / forgotten
    signal = 2 * share * (1 - share) * (settings.reward_max - settings.reward_min)
    return Estimate(ema, count, evidence * share, evidence * (1 - share), signal, last=ema)
