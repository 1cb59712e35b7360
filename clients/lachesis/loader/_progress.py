"""The progress bar of a loop."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def bar(shown: bool, total_samples: int | None) -> Iterator[Callable[[int], None]]:
    """Show a bar on stderr while the block runs. Yield a function that moves it by a number of samples.

    Args:
        shown: Whether to show the bar.
        total_samples: Samples of the loop. None: the loop does not end.

    Raises:
        ModuleNotFoundError: ``shown`` is set, and rich is not installed.
    """
    if not shown:
        yield lambda _: None
        return
    require_rich()
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("samples"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("", total=total_samples)
        yield lambda samples: progress.advance(task, samples)


def require_rich() -> None:
    """Check that rich is installed.

    Raises:
        ModuleNotFoundError: rich is not installed.
    """
    try:
        import rich.progress  # noqa: F401
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("a progress bar needs rich: pip install rich") from error
