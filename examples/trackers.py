"""Follow a run, and write a row of numbers for each trained batch to TensorBoard, Weights & Biases or trackio.

    LACHESIS_URL=http://127.0.0.1:8000 LACHESIS_RUN=demo python examples/trackers.py tensorboard

It needs `pip install tensorboardX`, `wandb` or `trackio`. All numbers come from the events of the run. The run keeps
about the last 1,000. The program ends when the run is deleted, or with Ctrl-C.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice

from lachesis import LachesisError, Trainer
from lachesis.wire.events import RunEvent

Row = dict[str, float]
Write = Callable[[int, Row], None]


class Numbers:
    """What the events so far add up to."""

    def __init__(self) -> None:
        self._latest: Row = {}
        self._totals: Counter[str] = Counter()
        self._alerts: set[str] = set()
        self._taken_s: dict[str, float] = {}

    def add(self, event: RunEvent) -> tuple[int, Row] | None:
        """Count an event. Return the step and the numbers if a batch was trained on, and None otherwise."""
        fields = event.model_dump()
        self._totals[f"events/{event.kind.replace(' ', '_')}"] += 1
        match event.kind:
            case "batch taken":
                self._taken_s[fields["batch"]] = event.time_s
                self._latest["batch/groups"] = fields["groups"]
            case "policy version set":
                self._latest["policy_version"] = fields["policy_version"]
            case "groups dropped":
                self._totals[f"dropped_groups/{fields['reason']}"] += fields["groups"]
            case "alert raised":
                self._alerts.add(fields["alert"])
            case "alert cleared":
                self._alerts.discard(fields["alert"])
            case "batch acknowledged":
                if (taken_s := self._taken_s.pop(fields["batch"], None)) is not None:
                    self._latest["batch/seconds_held"] = event.time_s - taken_s
                return fields["step"], {**self._latest, **self._totals, "alerts": len(self._alerts)}
        return None


@contextmanager
def tensorboard(run: str) -> Iterator[Write]:
    """Write to the folder `runs`, which `tensorboard --logdir runs` shows (`pip install tensorboard`)."""
    from tensorboardX import SummaryWriter

    with SummaryWriter(f"runs/{run}") as writer:

        def write(step: int, row: Row) -> None:
            for name, value in row.items():
                writer.add_scalar(name, value, step)

        yield write


@contextmanager
def wandb(run: str) -> Iterator[Write]:
    """Write to the project `lachesis`, or to the folder `wandb` with WANDB_MODE=offline."""
    import wandb

    with wandb.init(project="lachesis", name=run) as writer:
        writer.define_metric("*", step_metric="step")  # after a rewind, steps come again
        yield lambda step, row: writer.log({"step": step, **row})


@contextmanager
def trackio(run: str) -> Iterator[Write]:
    """Write to the project `lachesis`, which `trackio show` shows."""
    import trackio

    trackio.init(project="lachesis", name=run, resume="allow")
    try:
        yield lambda step, row: trackio.log(row, step=step)
    finally:
        trackio.finish()


TRACKERS = {tracker.__name__: tracker for tracker in (tensorboard, wandb, trackio)}


def follow(tracker: str, rows: int | None) -> None:
    """Write so many rows; None means all that ever come."""
    with Trainer() as trainer:
        trainer.status()  # before the tracker writes files: it fails if there is no such run
        run = trainer.settings.run
        with TRACKERS[tracker](run) as write:
            print(f"following the run {run}; end with Ctrl-C", flush=True)
            numbers = Numbers()
            found = filter(None, map(numbers.add, trainer.events(after="0")))
            for step, row in islice(found, rows):
                write(step, row)
                print(f"step {step}: {row}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tracker", choices=TRACKERS)
    parser.add_argument("--rows", type=int, help="end after so many")
    given = parser.parse_args()
    try:
        follow(given.tracker, given.rows)
    except LachesisError as error:
        sys.exit(f"{given.tracker}: {error}")
    except ModuleNotFoundError as missing:
        sys.exit(f"{given.tracker}: {missing}: run `pip install {missing.name}`")
    except KeyboardInterrupt:
        sys.exit(130)
