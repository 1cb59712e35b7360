"""Requests for samples of the replay buffer, and their results."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from app.core.batches.leases import Lease
from app.store.replay.entries import FragmentRecord
from lachesis.wire.errors import InvalidField
from lachesis.wire.replay import Sampling


@dataclass(frozen=True, slots=True)
class ReplaySampleRequest:
    """A trainer's request for a sample. It sets `num_chunks` or `num_fragments`.

    Attributes:
        num_chunks: Number of chunks.
        num_fragments: Number of fragments, a multiple of `fragments_per_chunk`.
        sampling: Fields of `Sampling` that differ from the buffer's for this sample.
        request_id: The id of the request. The same id gets the same sample again while that is held.
        lease_s: How long to hold the sample, seconds; None for the run's default.
        trainer: The name of the trainer, for operators.
    """

    num_chunks: int | None = None
    num_fragments: int | None = None
    sampling: Mapping[str, Any] | None = None
    request_id: str = ""
    lease_s: float | None = None
    trainer: str = ""


@dataclass(frozen=True, slots=True)
class SampledFragment:
    """A fragment of a sample.

    Attributes:
        fragment: Its entry.
        chunk_id: Its chunk.
        version: The chunk's policy version.
        staleness: Versions between that and the current version when it was taken.
        uses: Acknowledged uses of the chunk when it was taken.
        probability: The probability of this chunk in one draw from the whole buffer; 1 for fifo and lifo.
        importance: Importance weight, divided by the largest in the sample.
    """

    fragment: FragmentRecord
    chunk_id: int
    version: int
    staleness: int
    uses: int
    probability: float
    importance: float


@dataclass(frozen=True, slots=True)
class ReplaySample:
    """A leased sample: its lease, how it was drawn, and its fragments in order.

    `clock_ms` is the run clock when this was read, from which the remaining time of the lease follows.
    `repeated` says that the request took it before.
    """

    lease: Lease
    clock_ms: int
    sampling: Sampling
    policy_version: int
    records: tuple[SampledFragment, ...]
    repeated: bool = False


def sampling_of(request: ReplaySampleRequest, own: Sampling) -> Sampling:
    """Return the buffer's sampling settings with the changes of the request.

    Raises:
        InvalidField: A change has no effect, or alpha differs from the one that chunks are weighed with.
    """
    sampling = own.model_copy(update=request.sampling)
    if sampling.strategy == "proportional" and sampling.alpha != own.alpha:
        why = f"is {sampling.alpha}, but strategy proportional uses the buffer's alpha = {own.alpha}"
        raise InvalidField(f"{why}: leave alpha out, or change the buffer", ("alpha",))
    if sampling.strategy == "rank" and sampling.alpha > own.alpha == 0:
        why = "the buffer has alpha = 0, so all weights are equal and cannot rank chunks"
        raise InvalidField(f"{why}: set the buffer's alpha above 0", ("alpha",))
    return sampling
