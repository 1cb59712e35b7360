"""Read what environments have sent whose groups fit no batch."""

from dataclasses import replace

from app.core.runs.view import DemandView
from app.store.redis.client import RedisClient
from app.store.redis.keys import RunKeys
from app.store.runs.view import parse_sent


async def with_sent(connection: RedisClient, keys: RunKeys, view: DemandView) -> DemandView:
    """Return the view with what its `oversized_senders` have sent. Most runs have none, so the view costs no more.

    Args:
        connection: The connection to Redis.
        keys: The keys of the run.
        view: The run, configured or not.
    """
    senders = [] if view.config is None else sorted(view.oversized_senders)
    if not senders:
        return view
    sent = zip(senders, await connection.call("HMGET", keys.sent, *senders), strict=True)
    return replace(view, sent={key: parse_sent(text) for key, text in sent if text is not None})
