"""`python -m app shards plan`: analyse a dataset of episodes and divide it between ranks."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from app.cli.output import NotWritten, fail, show, show_json
from lachesis._exit_codes import WRONG_USE
from lachesis.wire.errors import DatasetNotFound, InvalidField, LachesisError
from lachesis.wire.shards import MAX_SHARDS

if TYPE_CHECKING:  # numpy and its users are loaded when needed, so that other commands start fast
    from app.services.datasets import DatasetPlan, ShardPlanSpec

shards_cli = typer.Typer(help="Divide datasets of episodes between the ranks of a trainer.", no_args_is_help=True)


@shards_cli.callback()
def _shards() -> None:
    """Divide datasets of episodes between the ranks of a trainer."""


@shards_cli.command()
def plan(
    path: Annotated[
        Path,
        typer.Argument(help="A LeRobot dataset (2.x, 3.0); a .jsonl or .parquet file; or a folder of .safetensors."),
    ],
    ranks: Annotated[int, typer.Option(min=1, max=MAX_SHARDS, help="Ranks to divide the episodes between.")],
    cost: Annotated[
        str,
        typer.Option(
            help="What an episode of length L costs: tokens (L); 24576*L+L^2, or linear=24576,quadratic=1; "
            "frames*action_dim*cameras; column:NAME, a column of costs; declared, short for column:cost."
        ),
    ] = "tokens",
    equal_episodes: Annotated[
        bool, typer.Option("--equal-episodes", help="Put the same number of episodes on every rank, if possible.")
    ] = False,
    length: Annotated[
        str | None,
        typer.Option("--length", help="Column of lengths (default: length), or the tensor as long as the episode."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write a manifest for each rank, and summary.json, there.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing plan.")] = False,
    plot: Annotated[Path | None, typer.Option(help="Draw lengths and loads into this file (.png, .svg, .pdf).")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
    cost_per_s: Annotated[
        float | None, typer.Option(help="Cost that a rank processes per second: adds times in seconds.", min=0.0)
    ] = None,
) -> None:
    """Show the lengths of episodes, a balanced division between ranks, and its gain.

    Exits with 1 if the dataset cannot be read, and with 2 after wrong use.
    """
    from app.services.datasets import ShardPlanSpec

    try:
        _plan(path, ShardPlanSpec(ranks, cost, equal_episodes, length), out, force, plot, json, cost_per_s)
    except (InvalidField, NotWritten) as error:
        fail(str(error), WRONG_USE)
    except DatasetNotFound as error:
        fail(error.detail)  # what the service advises is about its own folder
    except LachesisError as error:
        fail(str(error))
    except OSError as error:
        fail(f"{error.filename}: {error.strerror}" if error.filename else str(error))


def _plan(
    path: Path,
    terms: "ShardPlanSpec",
    out: Path | None,
    force: bool,
    plot: Path | None,
    json: bool,
    cost_per_s: float | None,
) -> None:
    from app.api.wire.shards import shown_plan
    from app.cli.shard_manifests import check_target, write_manifests
    from app.cli.shard_report import report

    if plot is not None:
        from app.cli.shard_plot import check_plot, draw  # so that missing parts are reported before the work is done

        check_plot(plot)
    if out is not None:
        check_target(out, force)
    planned = _read(path, terms)
    summary = shown_plan(planned)
    if json:
        show_json(summary.model_dump_json(indent=2, exclude_none=True))
    else:
        show(report(str(path), planned, summary, cost_per_s))
    if plot is not None:
        draw(planned, plot)
    if out is not None:
        write_manifests(planned, out, force)


def _read(path: Path, terms: "ShardPlanSpec") -> "DatasetPlan":
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    from app.services.datasets import plan_dataset

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as shown:
        reading = shown.add_task("reading", total=None)
        return plan_dataset(
            path, terms, progress=lambda done, total: shown.update(reading, completed=done, total=max(total, 1))
        )
