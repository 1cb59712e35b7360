"""The reply that carries a batch, and what it sets in motion when it arrives or does not."""

import asyncio

from fastapi import Request, Response

from app.api.batch_json import batch_json
from app.api.replies import WatchedReply, compressed
from app.services.dispatch import Answer, Dispatch

_MOST_HEADER_CHARACTERS = 1000  # clients refuse headers of some kilobytes; the status has it all
_NO_BATCH = b'{"batch":null}'


async def batch_reply(request: Request, dispatch: Dispatch, run: str, answer: Answer) -> Response:
    """Answer `GET /batch`: the batch or null; a completed reply acknowledges the batches before it."""

    async def sent() -> None:
        await dispatch.finish(run, answer)

    async def broke_off() -> None:
        if answer.batch is not None:
            await dispatch.break_off(run, answer.batch)

    if answer.batch is None:
        assert answer.not_ready is not None  # noqa: S101 - an answer has one or the other
        why = f"{answer.not_ready.blocker.value}: {answer.not_ready.detail}"
        headers = {"Lachesis-Waiting": why[:_MOST_HEADER_CHARACTERS]}
        return WatchedReply(_NO_BATCH, headers, sent, broke_off)
    try:
        text = await asyncio.to_thread(batch_json, answer.batch.payloads)
        content, headers = await compressed(request, text)
    except BaseException:
        await broke_off()
        raise
    lease = answer.batch.lease
    headers |= {
        "Lachesis-Batch": lease.batch_id,
        "Lachesis-Step": str(lease.step),
        "Lachesis-Deliveries": str(lease.deliveries),
        "Lachesis-Relaxed": str(answer.batch.relaxed).lower(),
    }
    return WatchedReply(content, headers, sent, broke_off)
