"""What a trainer asks of a replay buffer, and what it gets."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from app.core.batches.leases import Lease
from app.core.errors import InvalidField
from app.core.replay.checks import check_sampling
from app.core.replay.sampling import SamplingSettings, SamplingStrategy
from app.store.replay.entries import StoredFragment


@dataclass(frozen=True, slots=True)
class ReplaySampleRequest:
    """What a trainer asks for.

    Attributes:
        num_chunks: How many chunks; or, instead,
        num_fragments: How many fragments: a multiple of `fragments_per_chunk`.
        sampling: How to draw them: fields of `SamplingSettings` that are to differ from the buffer's.
        request_id: Names the request: repeated, it gets the same sample while that is held.
        lease_s: How long to hold it, seconds; None: as the run says.
        trainer: Who asks, for operators.
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
        staleness: Versions between that and the one in force when it was taken.
        uses: Acknowledged uses of the chunk when it was taken.
        probability: That one draw from the whole buffer gave this chunk; 1 for fifo and lifo.
        importance: Importance weight, over the largest in the sample.
    """

    fragment: StoredFragment
    chunk_id: int
    version: int
    staleness: int
    uses: int
    probability: float
    importance: float


@dataclass(frozen=True, slots=True)
class ReplaySample:
    """Chunks in a trainer's hands: held under which lease, drawn how, and their fragments in order.

    `clock_ms` is the run clock when this was looked at, which tells how long the lease lasts.
    """

    lease: Lease
    clock_ms: int
    sampling: SamplingSettings
    policy_version: int
    records: tuple[SampledFragment, ...]


def sampling_of(request: ReplaySampleRequest, own: SamplingSettings) -> SamplingSettings:
    """Return how to draw: as the buffer does, but for what the request says.

    Raises:
        InvalidField: It says what has no meaning; or another alpha than chunks are weighed with.
    """
    asked = dict(request.sampling or {})
    sampling = replace(own, **asked | {"strategy": SamplingStrategy(asked.get("strategy", own.strategy))})
    check_sampling(sampling)
    if sampling.strategy is SamplingStrategy.PROPORTIONAL and sampling.alpha != own.alpha:
        raise InvalidField(f"chunks are weighed with the buffer's alpha = {own.alpha}", ("alpha",))
    if sampling.strategy is SamplingStrategy.RANK and sampling.alpha > own.alpha == 0:
        raise InvalidField("chunks are ranked by weight, and the buffer's alpha = 0 makes all the same", ("alpha",))
    return sampling
