"""A learner that gets better with what it tries, and a curriculum that follows it.

    LACHESIS_URL=http://127.0.0.1:8000 LACHESIS_RUN=demo python examples/curriculum.py --strategy learnability

It tries 200 tasks; later ones are harder. It learns most from tasks that it nearly solves.
Try other strategies, also while it runs, and `uniform` to see what they are worth.
With tokens it needs one of role `operator`, because it deletes the curriculum of an earlier start.
"""

import argparse
import contextlib
import math
import random
import sys

from lachesis import LachesisError, Trainer
from lachesis.errors import CurriculumNotFound
from lachesis.wire.curricula import CurriculumStrategy

TASKS = 200
GROUP_SIZE = 8


class Learner:
    """Stands for a model. The further its ability is above the number of a task, the more often it solves it."""

    def __init__(self) -> None:
        self.ability = 10.0
        self.attempts = 0
        self._luck = random.Random(1)

    def attempt(self, task: int) -> list[float]:
        """Try a task as often as a group has sequences, and learn from what differs between them."""
        self.attempts += 1
        chance = 1 / (1 + math.exp((task - self.ability) / 10))
        rewards = [float(self._luck.random() < chance) for _ in range(GROUP_SIZE)]
        self.ability += 4 * chance * (1 - chance)
        return rewards


def main(strategy: CurriculumStrategy, attempts: int) -> None:
    """Let a learner try so many tasks."""
    learner = Learner()
    with Trainer() as trainer:
        trainer.create_run(batch_size=16, max_staleness=4)  # as examples/trainer.py has it
        curriculum = trainer.curriculum("tasks")
        with contextlib.suppress(CurriculumNotFound):
            curriculum.delete()  # another learner has other difficulties
        curriculum.set_up(strategy=strategy, total_steps=attempts)
        curriculum.register({"key": str(task), "metadata": {"number": task}} for task in range(TASKS))
        items = curriculum.items(prefetch=8, step=lambda: learner.attempts)
        for done, item in enumerate(items, start=1):
            assert item.metadata is not None
            curriculum.observe(item, learner.attempt(item.metadata["number"]))
            if done % max(1, attempts // 4) == 0:
                curriculum.flush()
                seen = curriculum.info().items_seen
                print(f"{done} attempts: ability {learner.ability:.0f}, {seen} of {TASKS} tasks seen")
            if done == attempts:
                break


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strategy", default="learnability")
    parser.add_argument("--attempts", type=int, default=400)
    given = parser.parse_args()
    try:
        main(given.strategy, given.attempts)
    except LachesisError as error:
        sys.exit(f"curriculum: {error}")
