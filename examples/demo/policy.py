"""A policy of one layer: for each character of an answer, it looks at two characters of the prompt.

These two choose a row of logits, and a softmax over the row gives the next character. It knows neither what the words
`sum`, `reverse` and `shift` mean, nor what a digit is.
"""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from task import ALPHABET, KINDS

Array = NDArray[Any]

CHARACTERS = np.frombuffer(ALPHABET.encode(), np.uint8)  # their token ids, in ascending order
LEARNING_RATE, ENTROPY, CLIP = 0.1, 0.01, 0.2


def tokens_of(text: str) -> list[int]:
    """Return the token ids of a text: its ASCII codes."""
    return list(text.encode())


def rows_of(prompt: str) -> Array:
    """Return the row of logits for each character of the answer: [characters].

    Of the first operand it takes the character at this place. Of the last one it takes the character at this place in
    sums, and at this place from the end in words.
    """
    kind, *operands = prompt.split()
    left, right = operands[0], operands[-1] if kind == "sum" else operands[0][::-1]
    places = [list(KINDS).index(kind) * np.ones(len(left), int), *map(_numbers, (left, right))]
    return np.ravel_multi_index(places, (len(KINDS), len(ALPHABET), len(ALPHABET)))


def _numbers(characters: str) -> Array:
    return np.searchsorted(CHARACTERS, tokens_of(characters))


class Policy:
    """The weights with the state of Adam, and the step and the policy version to which they belong."""

    def __init__(self, seed: int) -> None:
        self.weights = np.random.default_rng(seed).normal(0, 0.01, (len(KINDS) * len(ALPHABET) ** 2, len(ALPHABET)))
        self.mean, self.square = np.zeros_like(self.weights), np.zeros_like(self.weights)
        self.updates = self.step = self.version = 0

    def logprobs(self, rows: Array) -> Array:
        """Return the log-probability of each character: [rows, characters]."""
        logits = self.weights[rows]
        logits = logits - logits.max(axis=1, keepdims=True)
        return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))

    def sample(self, prompt: str, size: int, rng: np.random.Generator) -> tuple[list[str], Array]:
        """Sample answers, and the log-probabilities of their characters: [size, characters]."""
        logprobs = self.logprobs(rows_of(prompt))
        gumbel = rng.gumbel(size=(size, *logprobs.shape))
        chosen = (logprobs + gumbel).argmax(axis=2)  # a sample of each softmax
        places = np.arange(len(logprobs))
        return [bytes(CHARACTERS[answer]).decode() for answer in chosen], logprobs[places, chosen]

    def chance(self, prompt: str, answer: str) -> float:
        """Return the probability of an answer, which is its expected reward if it is the right one."""
        logprobs = self.logprobs(rows_of(prompt))
        return float(np.exp(logprobs[np.arange(len(answer)), _numbers(answer)].sum()))

    def gradient(self, prompt: str, labels: Array, sampled: Array, advantages: Array) -> Array:
        """Return the gradient of the clipped loss of GRPO (summed over characters), with a bonus for entropy.

        Args:
            prompt: The prompt of the group.
            labels: Token ids of the answers: [sequences, characters].
            sampled: Their log-probabilities when they were sampled: [sequences, characters].
            advantages: [sequences].
        """
        rows, chosen = np.tile(rows_of(prompt), len(labels)), np.searchsorted(CHARACTERS, labels.ravel())
        places = np.arange(len(rows))
        logprobs = self.logprobs(rows)
        probs = np.exp(logprobs)
        ratio = np.exp(logprobs[places, chosen] - sampled.ravel())
        pull = np.repeat(advantages, labels.shape[1])
        is_clipped = np.where(pull > 0, ratio > 1 + CLIP, ratio < 1 - CLIP)
        pull = np.where(is_clipped, 0, pull * ratio)

        slope = probs * pull[:, None]  # of the loss by the logits
        slope[places, chosen] -= pull
        surprise = logprobs - (probs * logprobs).sum(axis=1, keepdims=True)
        slope += ENTROPY * probs * surprise
        gradient = np.zeros_like(self.weights)
        np.add.at(gradient, rows, slope)
        return gradient

    def descend(self, gradient: Array) -> None:
        """Take one step of Adam."""
        self.updates += 1
        self.mean += 0.1 * (gradient - self.mean)
        self.square += 0.01 * (gradient**2 - self.square)
        rate = LEARNING_RATE * np.sqrt(1 - 0.99**self.updates) / (1 - 0.9**self.updates)
        self.weights -= rate * self.mean / (np.sqrt(self.square) + 1e-6)

    def save(self, path: Path) -> None:
        """Replace the file at once: who reads it gets the old policy or the new one, even if this process dies."""
        beside = path.with_suffix(".new.npz")
        arrays: dict[str, Any] = vars(self)
        np.savez(beside, **arrays)
        beside.replace(path)

    @classmethod
    def load(cls, path: Path) -> "Policy":
        """Read what `save` wrote."""
        policy = cls.__new__(cls)
        with np.load(path) as arrays:
            vars(policy).update((name, array if array.ndim else int(array)) for name, array in arrays.items())
        return policy
