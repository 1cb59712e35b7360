"""The data-parallel rank of this process, and how batches are sharded between ranks."""

import os
from collections.abc import Mapping
from dataclasses import KW_ONLY, MISSING, dataclass, fields
from typing import Any, Literal, SupportsIndex

from pydantic import ValidationError

from lachesis.wire.problems import format_validation_error
from lachesis.wire.ranks import TakeQuery


@dataclass(frozen=True, slots=True)
class Rank:
    """A data-parallel rank. All ranks of a trainer must agree on every attribute except ``rank``.

    Attributes:
        rank: This process, ``0 <= rank < world_size``.
        world_size: Number of ranks.
        split_groups: Whether sequences of one group may go to different ranks. False means that groups stay whole.
        equal_sequences: True: each rank gets the same number of sequences; groups are split if needed.
            False: only the cost counts. None: the same number where whole groups allow it.
        cost: What a sequence costs: ``tokens``; a sum like ``24576*L + L^2``; or ``declared``, what its producer said.
        ended_by: Whose acknowledgement ends a batch: that of every rank, or that of rank 0.
        micro_batch_tokens: Pack each shard into micro-batches of at most this many tokens (``batch.micro_batches``).
        padded: Whether each sequence counts with the length of the longest one in its micro-batch.
        equal_micro_batches: Whether all ranks get the same number of micro-batches. Some may be empty then.

    Raises:
        ValueError: A value is wrong; the message names it. The service checks ``cost`` when a batch is taken.
    """

    rank: int
    world_size: int
    _: KW_ONLY
    split_groups: bool = False
    equal_sequences: bool | None = None
    cost: str = "tokens"
    ended_by: Literal["all", "rank_0"] = "all"
    micro_batch_tokens: int | None = None
    padded: bool = False
    equal_micro_batches: bool = True

    def __post_init__(self) -> None:
        for name in ("rank", "world_size"):
            if not isinstance(getattr(self, name), SupportsIndex):
                raise ValueError(f"{name}: should be a whole number, not {getattr(self, name)!r}")
        if not 0 <= self.rank < self.world_size:
            raise ValueError(f"rank {self.rank} of a world of {self.world_size}: ranks are 0 to {self.world_size - 1}")
        try:
            TakeQuery.model_validate(self.query())
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            raise ValueError(": ".join((*map(str, first["loc"]), format_validation_error(first)))) from None

    def query(self) -> dict[str, Any]:
        """Return the query of a request. Defaults are left out: an older service may not know the parameter."""
        given = ((field, getattr(self, field.name)) for field in fields(self))
        return {field.name: value for field, value in given if field.default is MISSING or value != field.default}

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None, **options: Any) -> "Rank":
        """Read the variables ``RANK`` and ``WORLD_SIZE``, which torchrun and others set.

        Args:
            environ: Variables to read. None means those of this process.
            options: The other attributes.

        Raises:
            ValueError: A variable is missing or wrong; the message names it.
        """
        variables = os.environ if environ is None else environ
        return cls(_number("RANK", variables), _number("WORLD_SIZE", variables), **options)


def _number(name: str, variables: Mapping[str, str]) -> int:
    text = variables.get(name)
    if text is None:
        raise ValueError(f"{name}: is not set; torchrun and others set it, or give rank and world_size")
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{name}: should be a whole number, not {text!r}") from None
