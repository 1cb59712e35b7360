"""Keep a set of keys in 16 bytes each. A saved curriculum may have ten million keys."""

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


class KeySet:
    """Digests of keys, 128 bits each, in sorted arrays of decreasing size.

    As in a log-structured merge tree, arrays of similar size are merged. So there are few arrays, and a digest is
    sorted few times. Among ten million keys, two share a digest with a probability of 2**-82.
    """

    def __init__(self) -> None:
        self._sorted: list[NDArray[np.void]] = []

    def add(self, keys: Sequence[str]) -> list[bool]:
        """Add keys, and return for each whether it is new. A repeated key is new only the first time."""
        if not keys:
            return []
        texts = [hashlib.blake2b(key.encode(), digest_size=16).digest() for key in keys]
        digests = np.frombuffer(b"".join(texts), dtype="S16")
        _, firsts = np.unique(digests, return_index=True)
        new = np.zeros(len(keys), bool)
        new[firsts] = True
        for known in self._sorted:
            places = np.minimum(np.searchsorted(known, digests), len(known) - 1)
            new &= known[places] != digests
        self._keep(np.sort(digests[new]))
        return [bool(one) for one in new]

    def _keep(self, digests: NDArray[np.void]) -> None:
        while self._sorted and len(self._sorted[-1]) <= 2 * len(digests):
            digests = np.sort(np.concatenate([self._sorted.pop(), digests]), kind="stable")
        if len(digests):
            self._sorted.append(digests)
