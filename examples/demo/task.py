"""Tasks of three kinds, 1 to 8 characters long: the longer, the harder. Only an answer without a mistake gets a reward.

`sum 120 313` is 433: digits are added column by column, and none is above 3. `reverse abcd` is dcba. `shift abcd` is
bcda: each letter becomes the next one.
"""

import random
from dataclasses import dataclass

ALPHABET = "0123456abcd"
LONGEST, TASKS_PER_LENGTH = 8, 12


@dataclass(frozen=True)
class Kind:
    """A kind of tasks, and how its environment generates: sizes of groups, minimum share, seconds for each group."""

    sizes: tuple[int, ...]
    min_share: float | None = None
    pause_s: float = 0.0


KINDS = {
    "sum": Kind(sizes=(24,), min_share=0.25),
    "reverse": Kind(sizes=(16, 24, 32)),
    "shift": Kind(sizes=(24,), pause_s=0.05),  # a slow one
}


@dataclass(frozen=True)
class Task:
    """A task: what the policy reads, and the answer that gets a reward."""

    key: str
    prompt: str
    answer: str

    def reward(self, answer: str) -> float:
        """Return 1 for the right answer, and 0 for any other."""
        return float(answer == self.answer)


def tasks_of(kind: str) -> dict[str, Task]:
    """Return all tasks of a kind by key. They are the same in every process."""
    lengths = (length for length in range(1, LONGEST + 1) for _ in range(TASKS_PER_LENGTH))
    tasks = (_task(kind, length, f"{kind}/{number}") for number, length in enumerate(lengths))
    return {task.key: task for task in tasks}


def _task(kind: str, length: int, key: str) -> Task:
    chance = random.Random(key)
    letters = "".join(chance.choices("abcd", k=length))
    if kind == "reverse":
        return Task(key, f"reverse {letters}", letters[::-1])
    if kind == "shift":
        return Task(key, f"shift {letters}", letters.translate(str.maketrans("abcd", "bcda")))
    columns = [(chance.randint(0, 3), chance.randint(0, 3)) for _ in range(length)]
    left, right = ("".join(map(str, digits)) for digits in zip(*columns, strict=True))
    return Task(key, f"sum {left} {right}", "".join(str(a + b) for a, b in columns))
