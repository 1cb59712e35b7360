"""Replies that set something in motion when they arrive or do not: a batch, and the answer to a registration."""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import replace

import orjson
from fastapi import Request, Response

from app.api.codec.atropos_batch import batch_json
from app.api.http.replies import WatchedReply, compressed
from app.core.errors import LachesisError
from app.core.model import Environment
from app.services.batches.atropos_delivery import AtroposDelivery
from app.services.batches.request import BatchResult
from app.services.environments.registry import EnvironmentRegistry

_MOST_HEADER_CHARACTERS = 1000  # clients refuse headers of some kilobytes; the status has it all
_NO_BATCH = b'{"batch":null}'

log = logging.getLogger("lachesis.api")


async def batch_reply(request: Request, sending: AtroposDelivery, run: str, answer: BatchResult) -> Response:
    """Answer `GET /batch`: the batch or null; a completed reply acknowledges the batches before it."""
    batch = answer.batch
    # By the reply, and that by its connection, long after it was sent.
    remembered = answer if batch is None else replace(answer, batch=batch.without_payloads())

    # Nobody waits for an answer any more, so trouble with Redis goes to the log.
    async def sent() -> None:
        try:
            await sending.finish(run, remembered)
        except LachesisError as error:
            log.warning("a reply of run %s arrived, but Redis does not know: a batch may come twice: %s", run, error)

    async def broke_off() -> None:
        if remembered.batch is None:
            return
        try:
            await sending.break_off(run, remembered.batch)
        except LachesisError as error:
            log.warning("a reply of run %s broke off, but Redis does not know yet: %s", run, error)

    if batch is None:
        assert answer.not_ready is not None  # noqa: S101 - an answer has one or the other
        why = f"{answer.not_ready.blocker.value}: {answer.not_ready.detail}"
        headers = {"Lachesis-Waiting": why[:_MOST_HEADER_CHARACTERS]}
        return WatchedReply([_NO_BATCH], headers, sent, broke_off)
    try:
        text = await asyncio.to_thread(batch_json, batch.payloads)
        content, headers = await compressed(request, text)
    except BaseException:
        await broke_off()
        raise
    lease = batch.lease
    headers |= {
        "Lachesis-Batch": lease.batch_id,
        "Lachesis-Step": str(lease.step),
        "Lachesis-Delivery-Count": str(lease.delivery_count),
        "Lachesis-Relaxed": str(lease.relaxed).lower(),
    }
    return WatchedReply([content], headers, sent, broke_off)


def registration_reply(
    answer: Mapping[str, object], registry: EnvironmentRegistry, run: str, environment: Environment
) -> Response:
    """Answer `POST /register-env`: an environment that has the answer is alive, one that has not will ask anew."""

    async def sent() -> None:
        registry.answered(run, environment)

    async def broke_off() -> None:
        registry.answer_lost(run, environment.environment)

    return WatchedReply([orjson.dumps(answer)], {}, sent, broke_off)
