"""How far a loop is, for people."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def bar(shown: bool, total_samples: int | None) -> Iterator[Callable[[int], None]]:
    """Show a bar on stderr while the block lasts, and give what moves it by so many samples.

    Args:
        shown: Whether there is one.
        total_samples: Of the loop, or None where it has no end.

    Raises:
        ModuleNotFoundError: There is to be one, and rich is not installed.
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
    """See whether there can be a bar.

    Raises:
        ModuleNotFoundError: rich is not installed.
    """
    try:
        import rich.progress  # noqa: F401
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("a progress bar needs rich: pip install rich") from error
