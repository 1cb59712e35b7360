"""The picture of `docs/how-to/curriculum.md`: how a simulated learner learns by each strategy, and when it is done."""

from pathlib import Path

from benchmarks.curriculum import CURVE, SPEED, STRATEGIES, TARGET, TOTAL_STEPS
from benchmarks.results import Results

COLORS = ("#3b6ea5", "#d99a3d", "#8a8a8a")


def plot(results: Results, file: Path) -> None:
    """Draw pass rates by step, and speeds beside uniform sampling with their confidence intervals."""
    import matplotlib  # late: half a second that only this needs

    matplotlib.use("svg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4.6), layout="constrained")
    for name, color in zip(STRATEGIES, matplotlib.color_sequences["tab10"], strict=True):
        steps = results.contestants(CURVE.key)
        rates = [results.median(CURVE.key, name, step) for step in steps]
        style = {"color": "black", "linestyle": "--"} if name == "uniform" else {"color": color}
        left.plot([int(step) for step in steps], rates, label=name, linewidth=1.2, **style)
    left.axhline(TARGET, color="black", linewidth=0.6)
    left.set_xlabel("steps")
    left.set_ylabel("mean pass rate")
    left.set_title("A simulated learner: all items can be learnt", fontsize=9)
    left.legend(frameon=False, fontsize=7)
    names = [name for name in STRATEGIES if name != "uniform"]
    for number, (case, color) in enumerate(zip(TOTAL_STEPS, COLORS, strict=True)):
        middles, lows, highs = (
            [results.median(SPEED.key, name, case + end) or 0.0 for name in names] for end in ("", ", from", ", to")
        )
        places = [place + (number - 1) * 0.24 for place in range(len(names))]
        errors = [
            [a - b for a, b in zip(middles, lows, strict=True)],
            [a - b for a, b in zip(highs, middles, strict=True)],
        ]
        right.errorbar(middles, places, xerr=errors, fmt="o", color=color, markersize=4, capsize=2, label=case)
    right.axvline(1, color="black", linewidth=0.8)
    right.set_yticks(range(len(names)), names, fontsize=8)
    right.invert_yaxis()
    right.set_xlabel("times as fast as uniform sampling, 95 % confidence")
    right.set_title("Steps to the target", fontsize=9)
    right.legend(frameon=False, fontsize=7)
    figure.savefig(file, metadata={"Date": None})
    pyplot.close(figure)
