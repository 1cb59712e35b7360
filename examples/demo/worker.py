"""A worker: sample answers with the newest policy, and submit them as groups. Any number of them share a kind.

python worker.py sum --policy policy.npz
"""

import argparse
import contextlib
import logging
import signal
import sys
import time
from pathlib import Path

import numpy as np
from policy import Policy, tokens_of
from task import KINDS, Task, tasks_of

from lachesis import Environment, Group, LachesisError


def rollout(task: Task, size: int, policy: Policy, rng: np.random.Generator) -> Group:
    """Answer a task several times."""
    answers, logprobs = policy.sample(task.prompt, size, rng)
    question = tokens_of(f"{task.prompt}=")
    nothing = [0.0] * len(question)
    return Group(
        tokens=[question + tokens_of(answer) for answer in answers],
        masks=[[-100] * len(question) + tokens_of(answer) for answer in answers],
        scores=[task.reward(answer) for answer in answers],
        inference_logprobs=[nothing + row.tolist() for row in logprobs],
        policy_version=policy.version,
        item=task.key,  # the curriculum of this name learns from the scores
        metadata={"prompt": task.prompt},
        messages=[
            [{"role": "user", "content": task.prompt}, {"role": "assistant", "content": answer}] for answer in answers
        ],
    )


def work(name: str, path: Path, seed: int) -> None:
    """Submit groups until a signal ends the process."""
    kind, tasks = KINDS[name], tasks_of(name)
    rng = np.random.default_rng(seed)
    while not path.exists():  # the trainer saves a policy once the run and its curricula exist
        time.sleep(0.1)
    policy = Policy.load(path)
    environment = Environment(name, group_size=max(kind.sizes), min_share=kind.min_share, wait_for_run_s=60, drain_s=10)
    with environment:  # at its end, all groups are sent, or it raises an error after `drain_s`
        items = environment.curriculum().items(prefetch=2)
        with contextlib.suppress(KeyboardInterrupt):
            while True:
                with environment.permit() as permit:  # waits until the trainer needs a group
                    if permit.policy_version > policy.version:
                        policy = Policy.load(path)
                    task, size = tasks[next(items).key], int(rng.choice(kind.sizes))
                    time.sleep(kind.pause_s)
                    environment.submit(rollout(task, size, policy, rng))
    print(dict(environment.outcomes), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--policy", type=Path, required=True, help="the file that the trainer writes")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    logging.basicConfig(format="%(levelname)s %(message)s", level=logging.WARNING)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: leave the run in order
    try:
        work(given.kind, given.policy, given.seed)
    except LachesisError as error:
        sys.exit(f"{given.kind}: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
