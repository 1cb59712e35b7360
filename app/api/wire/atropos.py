"""Build the replies of the Atropos surface. Some have an effect when they arrive, or when they do not."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace

from fastapi import Request, Response

from app.api.codec.atropos_batch import batch_json, group_json
from app.api.http.bodies.content_budget import ContentBudget
from app.api.http.replies import WatchedReply, budgeted_reply, model_reply, streamed, waiting_header
from app.core.environments.record import EnvironmentRecord
from app.core.runs.settings import sequence_limit
from app.core.runs.view import RunView
from app.services.batches.atropos_delivery import AtroposDelivery
from app.services.batches.request import BatchResult
from app.services.environments.registry import EnvironmentRegistry
from app.services.groups.atropos_ingest import AtroposReceipt
from app.services.groups.contents import GroupContentReader
from lachesis.wire.atropos import (
    Buffered,
    EnvironmentRegistered,
    ListBuffered,
    ListReceived,
    NoExample,
    Received,
    RunInfo,
    WandbInfo,
)
from lachesis.wire.errors import LachesisError

_NO_BATCH = b'{"batch":null}'
_TEXT_COPIES = 6  # of contents, in memory: as Redis has them, and as JSON with up to 20 characters a number

log = logging.getLogger("lachesis.api")


async def batch_reply(request: Request, sending: AtroposDelivery, run: str, answer: BatchResult) -> Response:
    """Answer `GET /batch` with the batch or null. A completed reply acknowledges the batches before it."""
    batch = answer.batch
    # Drop the payloads: the connection keeps the reply, and the reply keeps this, long after sending.
    remembered = answer if batch is None else replace(answer, batch=batch.without_payloads())

    # These two run after the reply. An error of Redis can only go to the log.
    async def sent() -> None:
        try:
            await sending.finish(run, remembered)
        except LachesisError as error:
            log.warning("a reply of run %s arrived but Redis did not record it: a batch may come twice: %s", run, error)

    async def broke_off() -> None:
        if remembered.batch is None:
            return
        try:
            await sending.break_off(run, remembered.batch)
        except LachesisError as error:
            log.warning("a reply of run %s broke off but Redis did not record it yet: %s", run, error)

    if batch is None:
        assert answer.not_ready is not None  # noqa: S101 - an answer has one or the other
        headers = waiting_header(answer.not_ready.blocker.value, answer.not_ready.detail)
        return WatchedReply([_NO_BATCH], headers, sent, broke_off)
    try:
        body, headers = await streamed(request, batch_json(batch.payloads))
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
    return WatchedReply(body, headers, sent, broke_off)


async def example_reply(request: Request, groups: GroupContentReader, contents: ContentBudget, run: str) -> Response:
    """Answer `GET /latest_example` with the newest group, or with empty lists before there is one.

    Raises:
        TooManyReads: Replies to others hold too much memory.
    """
    async with contents.share() as share:

        async def admit(size_bytes: int) -> None:
            await share.claim(_TEXT_COPIES * size_bytes)

        payload = await groups.newest(run, admit)
        if payload is None:
            await share.release()
            return model_reply(NoExample())
        text = await asyncio.to_thread(group_json, payload)
        share.settle(len(text))
        body, headers = await streamed(request, iter([text]))
        return budgeted_reply(body, headers, share)


def registration_reply(
    registry: EnvironmentRegistry, run: str, environment: EnvironmentRecord, view: RunView
) -> Response:
    """Answer `POST /register-env`. The environment is alive once it has the reply; without it, it asks again."""
    assert view.config is not None, "environments register in configured runs only"  # noqa: S101
    reply = EnvironmentRegistered(
        env_id=environment.environment,
        wandb_name=environment.name,
        checkpoint_dir=view.config.checkpoint_dir,
        starting_step=view.step,
        checkpoint_interval=view.config.save_checkpoint_interval,
        num_steps=view.config.num_steps,
    )

    async def sent() -> None:
        registry.answered(run, environment)

    async def broke_off() -> None:
        registry.answer_lost(run, environment.environment)

    return WatchedReply([reply.model_dump_json().encode()], {}, sent, broke_off)


def run_info(view: RunView) -> RunInfo:
    """Describe a run's batch size and its longest sequence."""
    if view.config is None:
        return RunInfo(batch_size=-1, max_token_len=-1)
    limit = sequence_limit(view.config, view.policy)
    return RunInfo(
        batch_size=view.config.batch_size, max_token_len=view.config.max_token_len if limit is None else limit
    )


def wandb_info(view: RunView) -> WandbInfo:
    """Describe where a run's environments log."""
    if view.config is None:
        return WandbInfo(group=None, project=None)
    return WandbInfo(group=view.config.wandb_group, project=view.config.wandb_project)


def receipt(stored: AtroposReceipt) -> Received | Buffered:
    """Describe what happened to a group."""
    return Buffered(buffer_size=stored.waiting_sequences) if stored.buffered else Received()


def receipts(stored: Sequence[AtroposReceipt]) -> ListReceived:
    """Describe what happened to groups that came together."""
    buffered = [one for one in stored if one.buffered]
    if not buffered:
        return ListReceived(groups_processed=len(stored))
    return ListBuffered(
        groups_processed=len(stored), buffered=len(buffered), last_buffer_size=buffered[-1].waiting_sequences
    )
