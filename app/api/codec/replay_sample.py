"""Build the replies with samples and fragments of a replay buffer: the stored blobs, or JSON that describes them."""

import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import Request, Response

from app.api.http.bodies.content_budget import ContentShare
from app.api.http.replies import WatchedReply, budgeted_reply, compressed, varied_by_accept, waiting_header
from app.core.replay.rate_limiter import LimiterBlock
from app.services.replay.buffer import ReplayBuffers
from app.services.replay.request import ReplaySample, SampledFragment
from app.services.replay.samples import ReplaySamples
from app.store.replay.entries import FragmentRecord
from lachesis.wire import fragments, samples
from lachesis.wire.blob import Buffer
from lachesis.wire.columns import in_full
from lachesis.wire.errors import LachesisError
from lachesis.wire.frame import frame_header
from lachesis.wire.groups import SAFETENSORS

_COPIES = 2  # of a group, in memory: as Redis has it, and without compact columns

BLOBS = "One fragment's blob, or a frame of them (docs/how-to/replay.md)."
"""What the API document says of fragments in binary, in requests and in replies."""

log = logging.getLogger("lachesis.api")


def no_sample_reply(blocked: LimiterBlock) -> Response:
    """Build the reply that says why there is no sample."""
    return Response(status_code=204, headers=waiting_header(blocked.blocked_on, blocked.detail))


async def read_fragments(
    replay: ReplayBuffers, share: ContentShare, run: str, fragment_ids: Sequence[str]
) -> list[tuple[FragmentRecord, bytes]]:
    """Read fragments with their payloads as soon as there is room for them, which ``share`` holds.

    Raises:
        ReplayNotFound, FragmentNotFound: As of `ReplayBuffers.fragments`.
        TooManyReads: Replies to others hold too much memory.
    """

    async def admit(fragments: Sequence[FragmentRecord]) -> None:
        await share.claim(sum((_COPIES if one.is_group else 1) * one.payload_bytes for one in fragments))

    return await replay.fragments(run, fragment_ids, admit)


def fragment_reply(fragment: FragmentRecord, payload: bytes, share: ContentShare) -> Response:
    """Build a reply with a fragment as it was sent. It releases ``share``.

    Raises:
        TooManyReads: It is much larger in full, and replies to others hold too much memory.
    """
    whole = _in_full(fragment, payload)
    share.settle(len(whole))
    return budgeted_reply([whole], {}, share, SAFETENSORS)


def fragments_reply(found: Sequence[tuple[FragmentRecord, bytes]], share: ContentShare) -> Response:
    """Build a reply with fragments as a frame, in order. It releases ``share``.

    Raises:
        TooManyReads: They are much larger in full, and replies to others hold too much memory.
    """
    distinct = {fragment.fragment_id: (fragment, payload) for fragment, payload in found}
    whole = {fragment_id: _in_full(*pair) for fragment_id, pair in distinct.items()}
    share.settle(sum(map(len, whole.values())))
    payloads = [whole[fragment.fragment_id] for fragment, _ in found]
    described = [_fragment(fragment) for fragment, _ in found]
    head = _head(payloads, "fragments", {"fragments": json.dumps(described)})
    return budgeted_reply([head, *payloads], {}, share, SAFETENSORS)


async def taken_sample_reply(
    request: Request, replay: ReplayBuffers, held: ReplaySamples, run: str, sample: ReplaySample, *, binary: bool
) -> Response:
    """Build the reply with a sample. If it breaks off, the lease is shortened to 10 s, in which to retry.

    The lease of a repeated sample stays: the trainer may train on an earlier reply.
    """
    lease, repeated = sample.lease, sample.repeated  # the connection keeps these, and must not keep the records

    async def broke_off() -> None:
        if repeated:
            return
        try:
            await held.let_expire(run, lease)
        except LachesisError as error:
            log.warning("the reply with sample %s of run %s broke off: %s", lease.batch_id, run, error)

    try:
        parts, headers, media_type = await _parts(request, replay, run, sample, binary=binary)
    except BaseException:
        await broke_off()
        raise
    return WatchedReply(parts, headers, broke_off=broke_off, status_code=201, media_type=media_type)


async def shown_reply(
    request: Request, replay: ReplayBuffers, run: str, sample: ReplaySample, *, binary: bool
) -> Response:
    """Build the reply with a held sample, for another rank or a restarted trainer."""
    parts, headers, media_type = await _parts(request, replay, run, sample, binary=binary)
    return WatchedReply(parts, headers, media_type=media_type)


async def _parts(
    request: Request, replay: ReplayBuffers, run: str, sample: ReplaySample, *, binary: bool
) -> tuple[list[Buffer], dict[str, str], str]:
    """Return the parts of a reply's body, its headers and its media type."""
    info = _info(run, sample)
    headers = {"Lachesis-Sample": info.sample, "Vary": "Accept"}
    if binary:
        held = [record.fragment for record in sample.records]
        payloads = list(map(_in_full, held, await replay.payloads(run, held)))
        metadata = {"sample": info.model_dump_json(exclude_defaults=True)}
        return [_head(payloads, "sample", metadata), *payloads], headers, SAFETENSORS
    content, more = await compressed(request, info.model_dump_json().encode())
    headers |= varied_by_accept(more)
    return [content], headers, "application/json"


def _in_full(fragment: FragmentRecord, payload: bytes) -> Buffer:
    """Return the payload of a fragment as its sender would send it in full."""
    return in_full(payload) if fragment.is_group else payload


def _head(payloads: Sequence[Buffer], kind: str, metadata: Mapping[str, str]) -> bytes:
    return frame_header([len(payload) for payload in payloads], kind, metadata)


def _info(run: str, sample: ReplaySample) -> samples.SampleInfo:
    return samples.SampleInfo(
        sample=sample.lease.batch_id,
        run=run,
        lease=sample.lease.lease_id,
        lease_s=max(0, sample.lease.deadline_ms - sample.clock_ms) / 1000,
        policy_version=sample.policy_version,
        sampling=sample.sampling,
        records=list(map(_record, sample.records)),
    )


def _record(record: SampledFragment) -> samples.Record:
    stored = record.fragment
    # pydantic copies a default list, which costs as much as the rest of the record.
    facts = {"episodes": [], **json.loads(stored.facts)}
    return samples.Record(
        fragment=stored.fragment_id,
        chunk=record.chunk_id,
        worker=stored.worker,
        session=stored.session,
        number=stored.number,
        version=record.version,
        staleness=record.staleness,
        uses=record.uses,
        probability=record.probability,
        importance_weight=record.importance,
        payload_bytes=stored.payload_bytes,
        **facts,
    )


def _fragment(stored: FragmentRecord) -> dict[str, Any]:
    described = fragments.StoredFragment(
        fragment=stored.fragment_id,
        chunk=stored.chunk_id,
        worker=stored.worker,
        session=stored.session,
        number=stored.number,
        version=stored.version,
        payload_bytes=stored.payload_bytes,
        **json.loads(stored.facts),
    )
    return described.model_dump(mode="json", exclude_defaults=True)
