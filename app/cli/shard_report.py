"""Describe a plan as text and tables."""

from collections.abc import Iterator
from math import ceil
from typing import TYPE_CHECKING

import numpy as np

from app.services.datasets import DatasetPlan
from lachesis._cli.output import table
from lachesis.wire.shards import ImbalanceInfo, ShardPlanInfo

if TYPE_CHECKING:
    from rich.table import Table

_BARS = "▁▂▃▄▅▆▇█"
_BINS = 40
_MOST_ROWS = 64
_MOST_TASKS = 5


def report(
    name: str, planned: DatasetPlan, summary: ShardPlanInfo, cost_per_s: float | None
) -> "Iterator[str | Table]":
    """Yield lines and tables about a dataset and its shards.

    Args:
        name: The name of the dataset.
        planned: The plan.
        summary: The summary of the plan.
        cost_per_s: The cost that a rank processes in a second. None: times are relative.
    """
    yield name
    yield from _facts(summary)
    yield ""
    yield from _lengths(planned, summary)
    yield ""
    yield from _shards(summary)
    yield ""
    yield from _worth(planned, summary, cost_per_s)


def _facts(summary: ShardPlanInfo) -> Iterator[str]:
    found = summary.dataset
    if found is None:
        return
    parts = [found.layout, f"{found.files:,} file{'s' * (found.files != 1)} read"]
    if found.robot is not None:
        parts.append(f"robot {found.robot}")
    if found.fps is not None:
        hours = summary.lengths.total / found.fps / 3600
        parts.append(f"{found.fps:g} fps ({hours:,.2f} h)")
    if found.action_dim is not None:
        parts.append(f"actions of {found.action_dim}")
    yield " · ".join(parts)
    if found.cameras is not None:
        yield f"cameras: {', '.join(found.cameras) or 'none'}"
    if found.tasks:
        shown = [f"{task[:60]} ({count:,})" for task, count in [*found.tasks.items()][:_MOST_TASKS]]
        more = f", and {len(found.tasks) - _MOST_TASKS:,} more" if len(found.tasks) > _MOST_TASKS else ""
        yield f"tasks: {', '.join(shown)}{more}"


def _lengths(planned: DatasetPlan, summary: ShardPlanInfo) -> Iterator[str]:
    found = summary.lengths
    yield f"{found.episodes:,} episodes, {found.total:,} {_unit(planned)}"
    yield (
        f"length: min {found.shortest:,} · mean {found.mean:,.1f} · max {found.longest:,} · "
        f"variation (std/mean) {found.variation:.3f}"
    )
    yield "percentiles: " + " · ".join(f"p{cut} {at:,.0f}" for cut, at in found.percentiles.items())
    if found.longest > found.shortest:
        counts, _ = np.histogram(planned.lengths, _BINS)
        bars = "".join(_bar(count / counts.max()) for count in counts.tolist())
        yield f"{found.shortest:,} {bars} {found.longest:,}"


def _unit(planned: DatasetPlan) -> str:
    return "steps" if planned.facts is None else planned.facts.unit


def _bar(share: float) -> str:
    return _BARS[ceil(share * len(_BARS)) - 1] if share else " "


def _shards(summary: ShardPlanInfo) -> "Iterator[str | Table]":
    rows = [
        (f"{shard.rank}", f"{shard.count:,}", f"{shard.length:,}", f"{shard.cost:,.6g}", f"{shard.load:.4f}")
        for shard in summary.shards[:_MOST_ROWS]
    ]
    yield table(("rank", "episodes", "length", "cost", "load"), rows)
    if len(summary.shards) > _MOST_ROWS:
        yield f"… and {len(summary.shards) - _MOST_ROWS:,} more; --json and --out have them all"
    idle = sum(not shard.count for shard in summary.shards)
    if idle:
        yield f"warning: {idle:,} of {summary.ranks:,} ranks get no episode"


def _worth(planned: DatasetPlan, summary: ShardPlanInfo, cost_per_s: float | None) -> "Iterator[str | Table]":
    equal = ", equally many episodes" if summary.equal_episodes else ""
    if planned.terms.equal_episodes and not summary.equal_episodes:
        yield f"{summary.lengths.episodes:,} episodes do not make {summary.ranks:,} equal shards: balanced freely"
    yield f"cost {summary.cost} · found by {summary.method}{equal}"
    header = ("", "imbalance (max/mean - 1)", "max/min", "pass time (1 = no rank waits)")
    plans = {
        "these shards": summary.imbalance,
        "contiguous (naive)": summary.contiguous,
        "strided": summary.strided,
        "lower bound": summary.bound,
    }
    rows = [
        (name, f"{found.max_over_mean:.4%}", _ratio(found), f"{1 + found.max_over_mean:.4f}")
        for name, found in plans.items()
    ]
    yield table(header, rows)
    possible = summary.contiguous_pass_time / planned.plan.bound_pass_time
    yield f"speed-up over contiguous shards: {summary.speed_up:.3f}x (at most {possible:.3f}x is possible)"
    if cost_per_s:
        mean_s = float(planned.plan.costs.sum()) / summary.ranks / cost_per_s
        times = (summary.pass_time * mean_s, summary.contiguous_pass_time * mean_s)
        yield f"estimated pass at {cost_per_s:g} cost/s a rank: {times[0]:,.1f} s, contiguous {times[1]:,.1f} s"


def _ratio(found: ImbalanceInfo) -> str:
    return "a rank without load" if found.max_over_min is None else f"{found.max_over_min:.4f}"
