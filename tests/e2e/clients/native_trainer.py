"""A trainer of the native API that writes down every batch.

``python native_trainer.py URL BATCH_SIZE JOURNAL DRAIN_FILE``, as `trainer.py`. It makes the run, under the name of the
one that environments of Atropos join at the service's root.
"""

import sys
from pathlib import Path
from typing import Any

from trainer import SETTLED_AFTER_NULLS, status
from witness import Journal, describe

from lachesis import GroupView, Settings, Trainer
from lachesis.wire.columns import COLUMNS, MEASURES, Ragged, lengths_name, nested

WAIT_S = 0.1


def as_scored(group: GroupView) -> dict[str, Any]:
    """Turn a group back into the lists that its environment had."""
    columns = {column.name: rows(group, column.name, column.depth) for column in COLUMNS if column.name in group}
    return {**group.details, **columns, "env_id": group.environment}


def rows(group: GroupView, name: str, depth: int) -> Any:
    """Give a column as lists within lists."""
    levels = []
    for level, measure in enumerate(MEASURES[: depth - 1]):
        own = lengths_name(name, level)
        levels.append(group.column(own if own in group else lengths_name(measure, level)))
    return listed(nested(Ragged(group.column(name), tuple(levels))))


def listed(cut: Any) -> Any:
    """Turn arrays, and lists of them, into lists."""
    return [listed(row) for row in cut] if isinstance(cut, list) else cut.tolist()


def train(url: str, batch_size: int, journal: Journal, drain_file: Path) -> None:
    """Take batches until told to drain and nothing more comes."""
    with Trainer(Settings(url=url), name="native") as trainer:
        trainer.create_run(batch_size)
        journal.write("registered")
        nulls = 0
        while nulls < SETTLED_AFTER_NULLS or not drain_file.exists():
            before = status(url)
            batch = trainer.take(WAIT_S)
            if batch is None:
                nulls += 1
                continue
            nulls = 0
            groups = describe(map(as_scored, batch.groups))
            journal.write("batch", groups=groups, before=before, after=status(url))
            batch.ack()


if __name__ == "__main__":
    train(sys.argv[1], int(sys.argv[2]), Journal(sys.argv[3]), Path(sys.argv[4]))
