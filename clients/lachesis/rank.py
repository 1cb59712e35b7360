"""Which data-parallel rank of a trainer this process is, and how batches are divided between all of them."""

import os
from collections.abc import Mapping
from dataclasses import KW_ONLY, MISSING, dataclass, fields
from typing import Any, Literal, SupportsIndex

from pydantic import ValidationError

from lachesis.wire.problems import format_validation_error
from lachesis.wire.ranks import TakeQuery


@dataclass(frozen=True, slots=True)
class Rank:
    """A data-parallel rank. All ranks of a trainer say the same of everything but ``rank``.

    Attributes:
        rank: This process, ``0 <= rank < world_size``.
        world_size: How many there are.
        split_groups: Whether the sequences of a group may go to different ranks; else groups stay whole.
        equal_sequences: True: each rank gets the same number of sequences; groups are split if needed.
            False: only the cost counts. None: the same number where whole groups allow it.
        cost: What a sequence costs: ``tokens``; a sum like ``24576*L + L^2``; or ``declared``, what its producer said.
        ended_by: Whose acknowledgement ends a batch: that of every rank, or that of rank 0.
        micro_batch_tokens: Put each shard into micro-batches of at most so many tokens (``batch.micro_batches``).
        padded: Whether a sequence takes as many tokens of its micro-batch as the longest one there.
        equal_micro_batches: Whether all ranks have the same number of micro-batches; some may be empty then.

    Raises:
        ValueError: A value is wrong; the message names it. Of the cost, the service says so when a batch is asked for.
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
            raise ValueError(f"rank {self.rank} of a world of {self.world_size}: ranks are 0 to world_size - 1")
        try:
            TakeQuery.model_validate(self.query())
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            raise ValueError(": ".join((*map(str, first["loc"]), format_validation_error(first)))) from None

    def query(self) -> dict[str, Any]:
        """Return what a request says of it: nothing that is the service's default, as an older one may not know it."""
        said = ((field, getattr(self, field.name)) for field in fields(self))
        return {field.name: value for field, value in said if field.default is MISSING or value != field.default}

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None, **options: Any) -> "Rank":
        """Read ``RANK`` and ``WORLD_SIZE``, as torchrun and others set them.

        Args:
            environ: Other variables than those of this process.
            options: What is said beside them.

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
