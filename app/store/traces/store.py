"""Keep in which trace a group came in and a batch went out, for a while and for the newest of a run.

It is apart from the index of groups, so that groups without a trace cost nothing.
"""

from collections.abc import Sequence

from app.store.redis.client import RedisClient
from app.store.redis.keys import RunKeys
from app.store.traces import scripts

MOST = 10_000
"""Groups and batches of a run whose traces are kept."""

KEPT_MS = 24 * 3600 * 1000
"""How long they are kept if nothing is traced any more, milliseconds."""


class TraceStore:
    """Writes and reads trace contexts, in the form of the header ``traceparent`` (W3C Trace Context)."""

    def __init__(self, connection: RedisClient, most: int = MOST) -> None:
        self._connection = connection
        self._most = most

    async def keep(self, run: str, names: Sequence[str], context: str) -> None:
        """Keep the context of groups or a batch, by name. Does nothing if there is no such run.

        Raises:
            StoreFull: Redis is out of memory; nothing was kept.
            StoreUnavailable: The outcome is unknown.
        """
        command = scripts.keep_traces(RunKeys(run), most=self._most, kept_ms=KEPT_MS, context=context, names=names)
        await self._connection.run(command)

    async def of(self, run: str, names: Sequence[str]) -> list[str]:
        """Return the contexts that are kept of these names, each once, in the order of the names."""
        if not names:
            return []
        found = await self._connection.call("HMGET", RunKeys(run).traces, *names)
        return list(dict.fromkeys(context.decode() for context in found if context is not None))


def name_of_batch(batch_id: str) -> str:
    """Return the name of a batch."""
    return f"batch:{batch_id}"
