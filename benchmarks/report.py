"""Results for people: a page of tables, and a picture."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks import balance, curriculum, curriculum_plot, lookahead, ranks_plot
from benchmarks.results import US, Results, Table


def write(folder: Path, results: Results, machine: Mapping[str, Any]) -> None:
    """Write ``benchmarks.md`` and pictures into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "benchmarks.md").write_text(page(results, machine))
    plot(results, folder / "benchmarks.svg")
    if {balance.EQUAL.key, lookahead.SLOWER.key} <= results.tables.keys():
        ranks_plot.plot(results, folder / "ranks.svg")
    if curriculum.SPEED.key in results.tables:
        curriculum_plot.plot(results, folder / "curriculum.svg")


def page(results: Results, machine: Mapping[str, Any]) -> str:
    """Write the page."""
    named = "\n".join(f"| {name} | {value} |" for name, value in machine.items())
    head = f"""# Benchmarks

Measured by `make bench`. Servers, Redis and the load generator share one machine's cores. The contestants get the same
bodies in interleaved rounds. A figure is the median of its rounds, with the lowest and the highest in brackets.
`make bench` also keeps every round, as JSON. "vs" is the ratio of two medians, and says how many times better this
service is: below 1 x it is worse. Rates change with the day and the machine, ratios much less.

| machine | |
| --- | --- |
{named}

- **lachesis**: this service with its default settings: one API process, and an embedded Valkey that fsyncs every write
  before it answers.
- **lachesis, everysec**: the same with `LACHESIS_FSYNC=everysec`: its Redis fsyncs once a second.
- **atropos**: the server of `atroposlib` from PyPI, as its own command starts it. It keeps everything in its memory and
  waits for no disk. One request at a time, this service cannot be faster than one wait for the disk allows.
- **bare, as sent**: the limit of the stack. An ASGI endpoint that stores each body in the same kind of Redis, unread.
- **bare, as stored**: the same, storing as many bytes as this service stores of that group (they are fewer).
- **redis alone**: the same bytes written to Redis without HTTP.
- **dm-reverb**: its server and one client, in a virtual environment of their own. It keeps everything in the memory of
  a C++ process, and waits for no disk.

| what each keeps of what it has acknowledged | its process is killed | its Redis is killed | the power fails |
| --- | --- | --- | --- |
| lachesis, bare, redis alone | all | all | all |
| lachesis, everysec | all | all but up to 2 s | all but up to 2 s |
| atropos, dm-reverb | nothing | has none | nothing |

Where the native API is measured, **lachesis** speaks safetensors, **lachesis, JSON** its JSON, and **bare** stores the
same bytes.

![Ratios](benchmarks.svg)
"""
    return head + "".join(section(results, table) for table in results.tables.values())


def section(results: Results, table: Table) -> str:
    """Write one table."""
    who = results.contestants(table.key)
    columns = [table.unit, *who, *(f"vs {other}" for other in table.versus)]
    lines = [columns, ["---", *["---:"] * (len(columns) - 1)]]
    for case in results.values[table.key]:
        medians = [median_and_range(results, table, case, name) for name in who]
        ratios = [times(results.ratio(table.key, case, other)) for other in table.versus]
        lines.append([case, *medians, *ratios])
    rows = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"\n## {table.title}\n\n{table.note}\n\n{rows}\n"


def median_and_range(results: Results, table: Table, case: str, contestant: str) -> str:
    """Write the median of the rounds and, in brackets, the lowest and the highest."""
    median, extremes = results.median(table.key, case, contestant), results.extremes(table.key, case, contestant)
    return number(median) + (f" ({number(extremes[0])} to {number(extremes[1])})" if extremes else "")


def number(value: float | None) -> str:
    """Write a value with three significant digits."""
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def times(ratio: float | None) -> str:
    """Write a ratio."""
    if ratio is None:
        return ""
    return f"{ratio:,.0f} x" if ratio >= 100 else f"{ratio:.2g} x"


def plot(results: Results, file: Path) -> None:
    """Draw how many times better than Atropos this service is, case by case."""
    import matplotlib  # late: half a second that only this needs

    matplotlib.use("svg")
    from matplotlib import pyplot

    bars = [
        (f"{table.title}: {case}", ratio)
        for table in results.tables.values()
        for case in results.values[table.key]
        if (ratio := results.ratio(table.key, case, "atropos")) is not None
    ]
    figure, axes = pyplot.subplots(figsize=(10, 1 + 0.28 * len(bars)), layout="constrained")
    drawn = axes.barh([name for name, _ in bars], [ratio for _, ratio in bars], color="#3b6ea5")
    axes.bar_label(drawn, [times(ratio) for _, ratio in bars], padding=3)
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_xscale("log")
    axes.margins(x=0.15)
    axes.invert_yaxis()
    axes.set_xlabel(f"times better than Atropos ({US} at 1 worker; logarithmic)")
    figure.savefig(file, metadata={"Date": None})
    pyplot.close(figure)
