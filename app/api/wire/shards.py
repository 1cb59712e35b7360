"""Map a plan of dataset shards to its model."""

from dataclasses import asdict, replace

from app.datasets.episodes import DatasetFacts
from app.services.datasets import DatasetPlan
from lachesis.wire.shards import DatasetInfo, ImbalanceInfo, LengthsInfo, PlannedShard, ShardPlanInfo


def shown_plan(planned: DatasetPlan) -> ShardPlanInfo:
    """Return a plan without the episodes of each shard."""
    plan, balanced = planned.plan, planned.plan.balanced
    lengths = asdict(plan.lengths) | {"percentiles": {str(cut): at for cut, at in plan.lengths.percentiles.items()}}
    imbalances = {
        name: ImbalanceInfo(max_over_mean=found.max_over_mean, max_over_min=found.max_over_min)
        for name, found in (
            ("imbalance", balanced.imbalance),
            ("contiguous", balanced.contiguous),
            ("strided", balanced.strided),
            ("bound", balanced.bound),
        )
    }
    return ShardPlanInfo(
        dataset=None if planned.facts is None else _dataset(planned.facts),
        lengths=LengthsInfo(**lengths),
        cost=planned.terms.cost,
        ranks=planned.terms.ranks,
        equal_episodes=balanced.equal,
        method=balanced.method,
        **imbalances,
        pass_time=plan.pass_time,
        contiguous_pass_time=plan.contiguous_pass_time,
        speed_up=plan.speed_up,
        shards=[
            PlannedShard(rank=rank, count=shard.episodes, length=shard.length, cost=shard.cost, load=shard.load)
            for rank, shard in enumerate(plan.shards)
        ],
    )


def _dataset(facts: DatasetFacts) -> DatasetInfo:
    values = asdict(replace(facts, tasks=None)) | {"tasks": None if facts.tasks is None else dict(facts.tasks)}
    values.pop("unit")
    return DatasetInfo.model_validate(values | {"cameras": None if facts.cameras is None else [*facts.cameras]})
