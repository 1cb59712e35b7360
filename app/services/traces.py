"""Keep the trace contexts of groups and batches for later requests. A failure costs links of traces, no request."""

import logging
from collections.abc import Iterable, Sequence

from app.store.groups.entries import group_name
from app.store.traces.store import TraceStore, name_of_batch
from lachesis.wire.errors import LachesisError

log = logging.getLogger("lachesis.tracing")


class TraceLinks:
    """The contexts of a run, in the form of the header ``traceparent``."""

    def __init__(self, traces: TraceStore) -> None:
        self._traces = traces

    async def keep_groups(self, run: str, group_ids: Iterable[str], context: str) -> None:
        """Keep the context in which groups come in."""
        await self._keep(run, list(map(group_name, group_ids)), context)

    async def keep_batch(self, run: str, batch_id: str, context: str) -> None:
        """Keep the context in which a batch goes out."""
        await self._keep(run, [name_of_batch(batch_id)], context)

    async def of_groups(self, run: str, group_ids: Iterable[str]) -> list[str]:
        """Return the contexts in which groups came in, as far as they are known, each once."""
        return await self._of(run, list(map(group_name, group_ids)))

    async def of_batch(self, run: str, batch_id: str) -> list[str]:
        """Return the context in which a batch went out last, if it is known."""
        return await self._of(run, [name_of_batch(batch_id)])

    async def _keep(self, run: str, names: Sequence[str], context: str) -> None:
        try:
            await self._traces.keep(run, names, context)
        except LachesisError as error:
            log.debug("run %s: a trace was not kept: %s", run, error)

    async def _of(self, run: str, names: Sequence[str]) -> list[str]:
        try:
            return await self._traces.of(run, names)
        except LachesisError as error:
            log.debug("run %s: traces were not read: %s", run, error)
            return []
