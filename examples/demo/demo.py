"""Watch a policy learn: a service, workers of three environments and a trainer of two ranks, all on this machine.

    make demo        or: python examples/demo/demo.py

It trains a policy on a number of groups, first with a curriculum and then without one, and compares the two. While it
runs, kill what you like: whatever dies starts again, and no acknowledged group is lost. Ctrl-C ends all of it.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before numpy is imported: the processes are the parallelism

from policy import Policy
from supervisor import StopSignals, Team, running
from task import KINDS, tasks_of

from lachesis import LachesisError, Settings, Trainer
from lachesis.wire.status import RunStatus

HERE = Path(__file__).parent
WORKERS, RANKS = 2, 2
TELL_EVERY_S = 3.0

Numbers = dict[str, float]


def reward_of(policy: Policy) -> float:
    """Return the expected reward of a policy over all tasks: the share that it solves."""
    tasks = [task for kind in KINDS for task in tasks_of(kind).values()]
    return sum(policy.chance(task.prompt, task.answer) for task in tasks) / len(tasks)


def places_of(status: RunStatus) -> Numbers:
    """Return where all groups of a run are."""
    groups, dropped = status.groups, dict(status.dropped)
    return {
        "groups": groups.accepted,
        "trained on": groups.delivered,
        "equal rewards": dropped.pop("zero_variance", 0),
        "too old": dropped.pop("stale", 0),
        "left over": groups.queued + groups.buffered + groups.leased,
        "other": sum(dropped.values()),
    }


def sentence(policy: Policy, before: float, places: Numbers) -> str:
    """Say how far a run is."""
    solved, taught, equal = reward_of(policy), places["trained on"], places["equal rewards"]
    updates = "1 update" if policy.updates == 1 else f"{policy.updates} updates"
    return (
        f"after {updates}, the policy solves {solved:.0%} of all tasks ({before:.0%} at first). Of "
        f"{places['groups']:,} groups, {taught:,} taught it something, and {equal:,} had equal rewards."
    )


class Demo:
    """The service, and runs that use it one after the other."""

    def __init__(self, folder: Path, port: int, groups: int, seed: int) -> None:
        self._signals = StopSignals()
        self.url = f"http://127.0.0.1:{port}"
        self._folder = folder
        self._groups = groups
        self._seed = seed
        env = {"LACHESIS_HOST": "127.0.0.1", "LACHESIS_PORT": str(port), "LACHESIS_WORKERS": "1"}
        env |= {"LACHESIS_REDIS_URL": "", "LACHESIS_DATA_DIR": str(folder / "data")}  # a Valkey of its own
        self.service = Team("service", [[sys.executable, "-m", "app", "serve"]], folder, env)

    def wait_for_service(self) -> None:
        """Wait until the service listens."""
        while "listening on" not in self.service.output():
            if not self.service.is_alive:
                sys.exit(self.service.output())
            self._signals.pause()

    def play(self, run: str, strategy: str) -> Numbers:
        """Train a policy until the environments have made enough groups. Return rewards, and where the groups are."""
        path = self._folder / run / "policy.npz"
        path.parent.mkdir(exist_ok=True)
        trainer, *workers = self._teams(run, strategy, path)
        before, began = reward_of(Policy(self._seed)), time.monotonic()
        told = began
        with running(trainer, *workers):
            while not trainer.has_finished:
                for team in (self.service, trainer, *workers):
                    team.keep_alive()
                if time.monotonic() > told + TELL_EVERY_S and path.exists() and (status := self._status(run)):
                    told = time.monotonic()
                    print(
                        f"{told - began:3.0f} s: {sentence(Policy.load(path), before, places_of(status))}", flush=True
                    )
                self._signals.pause()
        while (status := self._status(run)) is None:
            self.service.keep_alive()
            self._signals.pause()
        policy = Policy.load(path)
        after = {"reward before": before, "reward after": reward_of(policy), "updates": policy.updates}
        return after | places_of(status)

    def _teams(self, run: str, strategy: str, path: Path) -> list[Team]:
        """Return the trainer and the workers of a run."""

        def team(name: str, size: int, program: str, *arguments: object, ends: bool = False) -> Team:
            command = [sys.executable, str(HERE / program), *map(str, arguments), "--policy", str(path)]
            return Team(name, [command] * size, path.parent, {"LACHESIS_URL": self.url, "LACHESIS_RUN": run}, ends)

        plan = ("--strategy", strategy, "--groups", self._groups, "--seed", self._seed)
        workers = [
            team(f"worker {kind} {number}", 1, "worker.py", kind, "--seed", self._seed + number)
            for kind in KINDS
            for number in range(WORKERS)
        ]
        return [team("trainer", RANKS, "trainer.py", *plan, ends=True), *workers]

    def _status(self, run: str) -> RunStatus | None:
        try:
            with Trainer(Settings(self.url, run=run, timeout_s=5, retry_budget_s=0)) as asking:
                return asking.status()
        except LachesisError:
            return None  # the service starts again, or the trainer has not created the run yet


def show(results: dict[str, Numbers]) -> None:
    """Print a table with a row for each run."""
    print("", " " * 20, *next(iter(results.values())), sep=" | ", end=" |\n")
    for title, numbers in results.items():
        cells = [
            f"{value:{len(name)}.0%}" if name.startswith("reward") else f"{value:{len(name)},}"
            for name, value in numbers.items()
        ]
        print("", f"{title:20}", *cells, sep=" | ", end=" |\n")


def main(folder: Path, port: int, groups: int, seed: int, compare: bool) -> None:
    """Run all of it."""
    folder.mkdir(parents=True, exist_ok=True)
    demo = Demo(folder, port, groups, seed)
    with running(demo.service):
        demo.wait_for_service()
        print(f"Watch it: {demo.url}/runs/demo/now\nOutput of all programs: {folder}", flush=True)
        results = {"with a curriculum": demo.play("demo", "bandit")}
        if compare:
            print(f"The same again without a curriculum: {demo.url}/runs/demo-uniform/now", flush=True)
            results["without a curriculum"] = demo.play("demo-uniform", "uniform")
    (folder / "results.json").write_text(json.dumps(results))
    show(results)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groups", type=int, default=1000, help="for the environments to make in each run")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--port", type=int, default=os.environ.get("LACHESIS_PORT", "8000"), help="of the service")
    parser.add_argument("--folder", type=Path, help="keep data, weights and output here; without it, they are deleted")
    parser.add_argument("--no-comparison", action="store_true", help="leave out the run without a curriculum")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lachesis-demo-") as temporary:
        try:
            folder = (given.folder or Path(temporary)).absolute()
            main(folder, given.port, given.groups, given.seed, not given.no_comparison)
        except KeyboardInterrupt:
            sys.exit(130)
