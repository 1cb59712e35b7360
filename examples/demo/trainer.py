"""A rank of the trainer. It learns with GRPO: the advantage of an answer is its reward beside those of its siblings.

RANK=0 WORLD_SIZE=2 MASTER_PORT=29500 python trainer.py --policy policy.npz & RANK=1 ... python trainer.py ...

Each rank takes its own part of each batch, and all ranks add up their gradients. If a rank dies, start all of them
again: they continue after the last step of the saved policy.
"""

import argparse
import logging
import os
import sys
import time
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path

import numpy as np
from policy import Array, Policy
from task import KINDS, tasks_of

from lachesis import Batch, LachesisError, Rank, Replay, Trainer
from lachesis.wire.curricula import CurriculumStrategy
from lachesis.wire.filters import ZeroVarianceFilter

BATCH_SIZE = 144


def prepare(trainer: Trainer, strategy: CurriculumStrategy, seed: int) -> None:
    """Create the run, its replay buffer, and a curriculum for each environment. A repetition changes nothing."""
    trainer.create_run(
        batch_size=BATCH_SIZE,
        max_staleness=4,
        filter_zero_variance=ZeroVarianceFilter(),  # all right or all wrong: nothing to learn
    )
    with Replay() as replay:
        replay.set_up(groups=True, max_chunks=64, max_staleness=8, max_reuse=1)
    trainer.change_run(fresh_fraction=0.75)  # up to a quarter of a batch is replayed
    for kind in KINDS:
        curriculum = trainer.curriculum(kind)
        curriculum.set_up(strategy=strategy, arms="categories", temperature=0.1, in_flight_ttl_s=10, seed=seed)
        tasks = tasks_of(kind).values()
        curriculum.register({"key": task.key, "category": f"length {len(task.answer)}"} for task in tasks)


class Ranks:
    """All ranks, for sums over them. Rank 0 is in the middle; NCCL would do this between GPUs."""

    def __init__(self, rank: Rank, port: int) -> None:
        """Wait for all ranks."""
        self._others: list[Connection] = []
        if rank.rank == 0:
            with Listener(("127.0.0.1", port)) as listener:
                self._others = [listener.accept() for _ in range(1, rank.world_size)]
        self._first = _first_rank(port) if rank.rank else None

    def sum(self, numbers: Array) -> Array:
        """Return the sum of the numbers of all ranks.

        Raises:
            EOFError, OSError: A rank is gone.
        """
        if self._first is not None:
            self._first.send_bytes(numbers.tobytes())
            return np.frombuffer(self._first.recv_bytes())
        for other in self._others:
            numbers = numbers + np.frombuffer(other.recv_bytes())
        for other in self._others:
            other.send_bytes(numbers.tobytes())
        return numbers


def _first_rank(port: int) -> Connection:
    while True:
        try:
            return Client(("127.0.0.1", port))
        except ConnectionRefusedError:  # it prepares the run
            time.sleep(0.1)


def gradient_of(policy: Policy, batch: Batch) -> tuple[Array, int]:
    """Return the gradient of a rank's part of a batch, and its number of characters."""
    gradient, characters = np.zeros_like(policy.weights), 0
    for group in batch.groups:
        is_answer = group.masks != -100
        labels = group.masks[is_answer].reshape(group.info.size, -1)
        sampled = group.column("inference_logprobs")[is_answer].reshape(labels.shape)
        advantages = (group.scores - group.scores.mean()) / (group.scores.std() + 1e-4)
        gradient += policy.gradient(group.metadata["prompt"], labels, sampled, advantages)
        characters += labels.size
    return gradient, characters


def train(path: Path, strategy: CurriculumStrategy, groups: int, seed: int) -> None:
    """Learn until the environments have generated so many groups."""
    rank = Rank.from_env()
    leads = rank.rank == 0
    with Trainer(name=f"rank {rank.rank}") as trainer:
        if leads:
            prepare(trainer, strategy, seed)
            policy = Policy.load(path) if path.exists() else Policy(seed)
            policy.version = trainer.rewind(policy.step).policy_version  # later batches come again
            policy.save(path)
        ranks = Ranks(rank, int(os.environ["MASTER_PORT"]))
        policy = Policy.load(path)
        print(f"continues after step {policy.step}", flush=True)
        for batch in trainer.batches(prefetch=1, rank=rank):
            gradient, characters = gradient_of(policy, batch)
            print(f"step {batch.step}: {[group.id for group in batch.groups if not group.replayed]}", flush=True)
            enough = leads and trainer.status().groups.accepted >= groups
            *total, characters, enough = ranks.sum(np.array([*gradient.ravel(), characters, enough]))
            policy.descend(np.reshape(total, gradient.shape) / characters)
            policy.step, policy.version = batch.step, policy.version + 1
            batch.ack()
            if leads:
                trainer.set_policy_version(policy.version)
                policy.save(path)  # the weights with the step that they contain; workers read this file, too
                trainer.checkpoint(policy.step)
            if enough:
                break


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policy", type=Path, required=True, help="the file that workers read")
    parser.add_argument("--strategy", default="bandit", help="of the curricula; uniform means none")
    parser.add_argument("--groups", type=int, default=2000, help="stop when the environments have made so many")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    logging.basicConfig(format="%(levelname)s %(message)s", level=logging.WARNING)
    try:
        train(given.policy, given.strategy, given.groups, given.seed)
    except LachesisError as error:
        sys.exit(f"trainer: {error}")
    except (EOFError, OSError) as error:
        sys.exit(f"trainer: another rank is gone ({error!r})")
