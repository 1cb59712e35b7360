"""The reply that carries a batch, and what it sets in motion when it arrives or does not."""

import asyncio
import logging

from fastapi import Request, Response

from app.api.batch_json import batch_json
from app.api.replies import WatchedReply, compressed
from app.core.errors import LachesisError
from app.services.dispatch import Answer, Dispatch

_MOST_HEADER_CHARACTERS = 1000  # clients refuse headers of some kilobytes; the status has it all
_NO_BATCH = b'{"batch":null}'

log = logging.getLogger("lachesis.api")


async def batch_reply(request: Request, dispatch: Dispatch, run: str, answer: Answer) -> Response:
    """Answer `GET /batch`: the batch or null; a completed reply acknowledges the batches before it."""

    # Nobody waits for an answer any more, so trouble with Redis goes to the log.
    async def sent() -> None:
        try:
            await dispatch.finish(run, answer)
        except LachesisError as error:
            log.warning("a reply of run %s arrived, but Redis does not know: a batch may come twice: %s", run, error)

    async def broke_off() -> None:
        if answer.batch is None:
            return
        try:
            await dispatch.break_off(run, answer.batch)
        except LachesisError as error:
            log.warning("a reply of run %s broke off, but Redis does not know yet: %s", run, error)

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
        "Lachesis-Relaxed": str(lease.relaxed).lower(),
    }
    return WatchedReply(content, headers, sent, broke_off)
