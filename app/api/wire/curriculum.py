"""Map settings, items and samples of curricula to the models of replies."""

from typing import Any

import orjson

from app.core.curriculum.indexes import ItemIndex
from app.core.curriculum.rewards import reward_edges
from app.services.curriculum.curricula import CurriculumFacts
from app.services.curriculum.items import InFlight, ItemFacts, ItemPage
from app.services.curriculum.observing import ObservationReceipt
from app.services.curriculum.sampling import CurriculumSample, DrawnItem
from app.services.curriculum.what_if import StrategyComparison, StrategyOutcome
from lachesis.wire.curricula import CurriculumInfo


def shown_curriculum(facts: CurriculumFacts) -> CurriculumInfo:
    """Describe a curriculum."""
    counts = facts.census.counts
    return CurriculumInfo(
        name=facts.view.name,
        settings=facts.view.settings,
        items=counts.length(ItemIndex.MEAN_REWARD) + counts.length(ItemIndex.UNSEEN),
        items_seen=counts.seen,
        in_flight=facts.census.in_flight,
        observations=facts.census.updates,
        samples=counts.samples,
        bins=list(facts.bins),
        reward_edges=reward_edges(facts.view.settings),
        items_by_reward=list(counts.spans),
        items_unseen=counts.length(ItemIndex.UNSEEN),
        categories=dict(counts.categories),
    )


def item_values(facts: ItemFacts) -> dict[str, Any]:
    """Describe an item (`lachesis.wire.curriculum_items.Item`)."""
    item = facts.stored
    estimate = item.estimate
    return {
        "key": item.key,
        "bin": facts.bin,
        "mean_reward": None if item.prior is None and not estimate.count else estimate.ema,
        "count": estimate.count,
        "pass_rate": facts.pass_rate,
        "passed": estimate.passed,
        "failed": estimate.failed,
        "signal": estimate.signal,
        "prior": item.prior,
        "category": facts.category,
        "metadata": _metadata(item.metadata),
    }


def item_json(facts: ItemFacts, flight: InFlight) -> bytes:
    """Describe an item with its history."""
    more = {"history": facts.stored.history, "drawn": flight.drawn, "in_flight_s": flight.in_flight_s}
    return orjson.dumps(item_values(facts) | more)


def page_json(page: ItemPage) -> bytes:
    """Describe a page of items."""
    return orjson.dumps({"items": list(map(item_values, page.items)), "cursor": page.cursor})


def receipt_json(receipt: ObservationReceipt) -> bytes:
    """Describe what happened to observations."""
    observed = [
        {"item": one.key, "bin": one.bin, "mean_reward": one.estimate.ema, "count": one.estimate.count}
        for one in receipt.items
    ]
    return orjson.dumps({"observed": observed})


def sample_json(sample: CurriculumSample) -> bytes:
    """Describe a sample."""
    return orjson.dumps(
        {
            "strategy": sample.strategy,
            "sample": sample.sample_id or None,
            "items": list(map(_sampled, sample.items)),
            "bins": sample.bins,
            "in_flight": sample.in_flight,
            "in_flight_ttl_s": sample.in_flight_ttl_s,
            "missing": sample.missing,
            "retry_after_s": sample.free_s if sample.missing else None,
        }
    )


def comparison_json(comparison: StrategyComparison) -> bytes:
    """Describe two strategies side by side."""
    sides = {"current": comparison.current, "alternative": comparison.alternative}
    shown = {name: _alternative(side) for name, side in sides.items()}
    return orjson.dumps({**shown, "difference": comparison.difference})


def _alternative(side: StrategyOutcome) -> dict[str, Any]:
    items = list(map(_sampled, side.items))
    return {"strategy": side.strategy, "bins": side.bins, "entropy": side.entropy, "items": items}


def _sampled(sampled: DrawnItem) -> dict[str, Any]:
    return {
        "key": sampled.item.key,
        "bin": sampled.bin,
        "probability": sampled.probability,
        "why": sampled.why,
        "metadata": _metadata(sampled.item.metadata),
    }


def _metadata(text: str) -> orjson.Fragment | None:
    return orjson.Fragment(text) if text else None
