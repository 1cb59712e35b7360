"""The picture of `docs/how-to/ranks.md`: what dividing by cost buys, and what a lookahead adds."""

from pathlib import Path

from benchmarks import balance, lookahead
from benchmarks.results import US, Results

WAYS = {
    "contiguous": "in training order",
    "strided": "in turns",
    "KK": "Karmarkar-Karp",
    US: "by this service",
}
GREYS_AND_OURS = ("#d5d5d5", "#b0b0b0", "#d99a3d", "#3b6ea5")
BLUES = ("#c9d9ea", "#92b4d4", "#5c8cbb", "#2d5f93")


def plot(results: Results, file: Path) -> None:
    """Draw how much longer than the mean a step takes, by way of dividing and by depth of lookahead."""
    import matplotlib  # late: half a second that only this needs

    matplotlib.use("svg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4), layout="constrained")
    depths = {name: name for name in results.contestants(lookahead.SLOWER.key)}
    for axes, table, names, colors in (
        (left, balance.EQUAL.key, WAYS, GREYS_AND_OURS),
        (right, lookahead.SLOWER.key, depths, BLUES),
    ):
        cases = list(results.values[table])
        width = 0.8 / len(names)
        for number, (who, label) in enumerate(names.items()):
            heights = [1 + (results.median(table, case, who) or 0.0) / 100 for case in cases]
            places = [place + (number - (len(names) - 1) / 2) * width for place in range(len(cases))]
            axes.bar(places, heights, width, label=label, color=colors[number])
        axes.axhline(1, color="black", linewidth=0.8)
        axes.set_xticks(range(len(cases)), [_broken(case) for case in cases])
        axes.tick_params(axis="x", labelsize=7)
        axes.legend(frameon=False, fontsize=8)
    left.set_ylabel("time of a step over that of perfect balance")
    left.set_title("One batch, the same number of sequences on each rank", fontsize=9)
    right.set_title("150 batches from a queue, groups whole", fontsize=9)
    figure.savefig(file, metadata={"Date": None})
    pyplot.close(figure)


def _broken(case: str) -> str:
    for before, after in ((" on ", "\non "), (" in ", "\nin "), (", ", ",\n")):
        case = case.replace(before, after)
    return case
