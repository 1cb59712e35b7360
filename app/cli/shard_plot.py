"""Draw a plan: the lengths of episodes, and the loads of ranks before and after."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from app.cli.output import NotWritten
from app.services.datasets import DatasetPlan

try:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
except ImportError:
    raise NotWritten(
        "plots are drawn with matplotlib, which is not installed: python -m pip install matplotlib (the extra `shards`)"
    ) from None

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SUFFIXES = (".png", ".svg", ".pdf")
_CONTIGUOUS, _BALANCED, _PLAIN = "#c44e52", "#4c72b0", "#8c8c8c"
_MOST_BARS = 128  # more ranks are drawn as a line


def check_plot(path: Path) -> None:
    """Make sure that a picture can be written under this name.

    Raises:
        NotWritten: Its suffix is not in `SUFFIXES`, or its folder does not exist.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise NotWritten(f"{path}: a plot is written as {', '.join(SUFFIXES)}")
    if not path.parent.is_dir():
        raise NotWritten(f"{path}: there is no folder {path.parent}")


def draw(planned: DatasetPlan, path: Path) -> None:
    """Draw a plan into a file. The suffix of the path chooses the format.

    Raises:
        NotWritten: See `check_plot`.
    """
    check_plot(path)
    figure = Figure(figsize=(11, 4), layout="constrained")
    FigureCanvasAgg(figure)
    lengths, loads = figure.subplots(1, 2, width_ratios=(2, 3))
    _draw_lengths(planned, lengths)
    _draw_loads(planned, loads)
    figure.savefig(path, dpi=110)


def _draw_lengths(planned: DatasetPlan, axes: "Axes") -> None:
    found = planned.plan.lengths
    axes.hist(planned.lengths, bins=60, color=_PLAIN)
    axes.axvline(found.mean, color="black", linewidth=1, label=f"mean {found.mean:,.0f}")
    axes.axvline(found.percentiles[95], color="black", linewidth=1, linestyle=":", label="95 % are shorter")
    unit = "steps" if planned.facts is None else planned.facts.unit
    axes.set(title=f"{found.episodes:,} episodes, variation {found.variation:.2f}", xlabel=unit, ylabel="episodes")
    axes.legend(frameon=False)


def _draw_loads(planned: DatasetPlan, axes: "Axes") -> None:
    plan = planned.plan
    mean = float(plan.balanced.loads.mean()) or 1.0
    contiguous, balanced = plan.contiguous_loads / mean, plan.balanced.loads / mean
    ranks = np.arange(len(balanced))
    labels = (f"contiguous: {plan.contiguous_pass_time - 1:+.1%}", f"balanced: {plan.pass_time - 1:+.2%}")
    if len(ranks) > _MOST_BARS:
        axes.plot(ranks, contiguous, color=_CONTIGUOUS, label=labels[0])
        axes.plot(ranks, balanced, color=_BALANCED, label=labels[1])
    else:
        axes.bar(ranks - 0.2, contiguous, 0.4, color=_CONTIGUOUS, label=labels[0])
        axes.bar(ranks + 0.2, balanced, 0.4, color=_BALANCED, label=labels[1])
    axes.axhline(1, color="black", linewidth=1)
    axes.set(title=f"load of each rank, {plan.speed_up:.2f}x faster", xlabel="rank", ylabel="load over mean load")
    axes.set_ylim(0, max(contiguous.max(), balanced.max()) * 1.2)
    axes.legend(frameon=False, loc="upper right", ncols=2)
