"""Reject replay settings and requests that can never be satisfied."""

from app.core.replay import rate_limiter
from lachesis.wire.errors import InvalidField
from lachesis.wire.replay import MAX_SAMPLE_CHUNKS, MAX_SAMPLE_FRAGMENTS, ReplaySettings


def check_settings(settings: ReplaySettings) -> None:
    """Reject settings that are valid one by one but under which a buffer does not work.

    Raises:
        InvalidField: `location` names the field.
    """
    if settings.min_size_to_sample > settings.max_chunks:
        raise InvalidField(
            f"is {settings.min_size_to_sample}, more than max_chunks = {settings.max_chunks}", ("min_size_to_sample",)
        )
    if settings.groups and settings.fragments_per_chunk != 1:
        size = settings.fragments_per_chunk
        raise InvalidField(
            f"is {size}, but in a buffer with groups each chunk is one group: set it to 1", ("fragments_per_chunk",)
        )
    if settings.eviction == "lowest_priority" and settings.sampling.alpha == 0:
        raise InvalidField(
            "is lowest_priority, which needs different weights, but sampling.alpha = 0 makes all equal: "
            "set alpha above 0, or another eviction",
            ("eviction",),
        )
    if settings.limiter is not None:
        rate_limiter.check(settings.limiter, settings.max_reuse)


def check_groups(settings: ReplaySettings, fresh_fraction: float) -> None:
    """Reject a buffer without groups if the run's batches are filled up with replayed groups.

    Raises:
        InvalidField: `location` is that of ``groups``.
    """
    if fresh_fraction < 1 and not settings.groups:
        why = f"batches of this run are filled up with replayed groups (`fresh_fraction` is {fresh_fraction})"
        raise InvalidField(f"must be true, because {why}; or set `fresh_fraction` to 1 first", ("groups",))


def chunks_wanted(num_fragments: int | None, num_chunks: int | None, settings: ReplaySettings) -> int:
    """Return how many chunks a trainer asks for. It may count in fragments.

    Raises:
        InvalidField: The trainer gave both numbers or neither, a fraction of a chunk, less than 1, or too many.
    """
    size = settings.fragments_per_chunk
    match num_fragments, num_chunks:
        case None, None:
            raise InvalidField("is missing: send num_chunks or num_fragments", ("num_chunks",))
        case None, int(wanted):
            named, unit = "num_chunks", 1
        case int(wanted), None:
            named, unit = "num_fragments", size
        case _:
            raise InvalidField("came together with num_fragments: send only one of them", ("num_chunks",))
    if wanted < 1:
        raise InvalidField(f"should be 1 or more, not {wanted}", (named,))
    if wanted % unit:
        raise InvalidField(f"is {wanted}, which is not a multiple of fragments_per_chunk = {unit}", (named,))
    chunks = wanted // unit
    most = min(MAX_SAMPLE_CHUNKS, MAX_SAMPLE_FRAGMENTS // size)
    if chunks > most:
        raise InvalidField(f"is {wanted}, but a sample has at most {most} chunks of {size} fragments", (named,))
    if chunks > settings.max_chunks:
        raise InvalidField(f"is {wanted}, more than max_chunks = {settings.max_chunks} can hold", (named,))
    limited = rate_limiter.largest_sample(settings.limiter)
    if limited is not None and chunks > limited:
        raise InvalidField(
            f"is {wanted}, but with this limiter a sample has at most {limited} chunks: "
            "ask for fewer, or raise max_diff",
            (named,),
        )
    return chunks
