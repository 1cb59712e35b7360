"""A group as the API hands it to the store: its payload, and the values that are needed without reading it."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from app.core.ranks.costs import Weight
from app.core.replay.buffer import Versions

Payload = bytes | memoryview
NO_WEIGHT = Weight(0, 0)
_NO_NUMBERS = np.empty(0)


class EncodedGroup(NamedTuple):  # like all that each submission makes: a frozen dataclass takes twice as long
    """A checked group, ready to be stored.

    Attributes:
        size: Sequences in it, ``>= 1``.
        environment: The environment id it claims to come from, ``0 <= id < 2**53``, or None.
        payload: Its columns (`lachesis.wire.columns`), a safetensors blob.
        given_id: Its id, if its sender gave it one.
        policy_version: The oldest policy version that sampled it, ``>= 0``, if its sender said so.
        weight: The numbers that determine its cost.
        versions: The policy versions that sampled its tokens, if it has one for each token.
        path: Where it was in the body it came in, from the root.
        item: The dataset entry or task it comes from, if its sender said so.
        lengths: Tokens of each sequence, in the same order as ``rewards``.
        rewards: Its scores, finite, one per sequence; a view of the payload or of what it was made from.
        reward: The mean of ``rewards``; None without any.
    """

    size: int
    environment: int | None
    payload: Payload
    given_id: str | None = None
    policy_version: int | None = None
    weight: Weight = NO_WEIGHT
    versions: Versions | None = None
    path: tuple[str | int, ...] = ()
    item: str | None = None
    lengths: NDArray[Any] = _NO_NUMBERS
    rewards: NDArray[Any] = _NO_NUMBERS
    reward: float | None = None
