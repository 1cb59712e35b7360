"""Submit the groups of an unchanged Atropos environment in binary.

This module does not import ``atroposlib``. `_BaseEnv` lists what it uses of ``BaseEnv``.
"""

import asyncio
import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from lachesis._transport.http import Sender
from lachesis._transport.run_calls import RunCalls
from lachesis._transport.settings import Settings
from lachesis.groups.group import Group
from lachesis.wire.address import split_run
from lachesis.wire.columns import COLUMNS, DETAIL_FIELDS, Column
from lachesis.wire.groups import Receipts
from lachesis.wire.runs import DEFAULT_RUN

_EXACT = 2.0**53  # floats beyond it stand for several integers
_DETAILS = tuple(name for name in DETAIL_FIELDS if name != "env_id")


class _EnvConfig(Protocol):
    rollout_server_url: str


class _BaseEnv(Protocol):
    """What this module uses of ``atroposlib.envs.base.BaseEnv``; and ``env_id``, set when it is registered."""

    config: _EnvConfig


class BinarySubmission:
    """A mixin, placed before a ``BaseEnv``, that sends each group as one safetensors blob to ``/v1``.

    ```
    class BinaryGSM8kEnv(BinarySubmission, GSM8kEnv):
        pass
    ```

    ``rollout_server_url`` names the service and the run. Registration and pacing stay those of Atropos. Each group has
    an id, so that a repeated group is stored once. While the service is away or its queue is full, the environment
    sends the group again, and the worker that made the group waits.
    """

    _lachesis: "_Connection | None" = None

    def lachesis_group(self, scored: Mapping[str, Any]) -> Group:
        """Return the group to send for a ``ScoredDataGroup``. It is called once for each group.

        Override it to add fields: ``replace(super().lachesis_group(scored), policy_version=self.version)``.

        Raises:
            InvalidField: A value is wrong; ``errors`` says where.
        """
        fields: dict[str, Any] = {name: scored.get(name) for name in _DETAILS}
        for column in COLUMNS:
            fields[column.name] = _numbers(scored.get(column.name), column, column.depth)
        return Group(**fields)

    async def _send_scored_data_to_api(self, scored_data: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> None:
        """Send a group or a list of groups, all or none. ``BaseEnv`` calls this method.

        Raises:
            InvalidField, ServiceError: A group is refused permanently. ``BaseEnv`` logs the error and drops the group.
        """
        groups = [scored_data] if isinstance(scored_data, Mapping) else scored_data
        environment: int | None = getattr(self, "env_id", None)
        payloads = [self.lachesis_group(scored).packed(environment) for scored in groups]
        if self._lachesis is None:  # not sooner: connections belong to the event loop they are made in
            self._lachesis = _Connection(settings_of(cast(_BaseEnv, self).config.rollout_server_url))
        await self._lachesis.send(payloads)

    async def close_lachesis(self) -> None:
        """Wait until the service has stored all groups, and close the connections. A process that ends may skip it."""
        if self._lachesis is not None:
            await self._lachesis.aclose()
            self._lachesis = None


class _Connection:
    """The connection to one run, for the life of the process."""

    def __init__(self, settings: Settings) -> None:
        self._calls = RunCalls(settings.run)
        self._sender = Sender(settings)
        self._underway: set[asyncio.Task[Receipts]] = set()

    async def send(self, payloads: Sequence[bytes]) -> None:
        """Send groups, even if the caller is cancelled in the meantime.

        ``BaseEnv`` cancels its workers when the queue is long, which is when groups that are finished wait for room.
        """
        sending = asyncio.create_task(self._sender.send(self._calls.submit(payloads), math.inf))
        self._underway.add(sending)
        sending.add_done_callback(self._underway.discard)
        await asyncio.shield(sending)

    async def aclose(self) -> None:
        """Wait for what is underway, and close all connections."""
        await asyncio.gather(*self._underway, return_exceptions=True)
        await self._sender.aclose()


def settings_of(rollout_server_url: str) -> Settings:
    """Return where the native API is for a base URL of the Atropos surface, with a run's path or without.

    Args:
        rollout_server_url: ``http://HOST:PORT`` for the run ``default``, or ``http://HOST:PORT/runs/NAME/atropos``.

    Raises:
        ValueError: It is not such a URL, or a variable that `Settings.from_env` reads is wrong.
    """
    if not rollout_server_url:
        raise ValueError("rollout_server_url: is empty")
    url, run = split_run(rollout_server_url)
    return Settings.from_env(url=url, run=run or DEFAULT_RUN)


def _numbers(rows: Any, column: Column, depth: int) -> Any:
    """Give rows with numbers as the Atropos surface takes them: ``True`` is 1, and 3.0 may stand for an integer."""
    if depth > 1 and isinstance(rows, list | tuple):
        return [_numbers(row, column, depth - 1) for row in rows]
    if rows is None:
        return None
    try:
        values = np.asarray(rows)
    except ValueError:  # rows within rows: `Group` says where
        return rows
    if values.dtype.kind == "b" or (column.kind == "int" and values.dtype.kind == "f" and _are_integers(values)):
        return values.astype(np.int64)
    return values


def _are_integers(values: NDArray[Any]) -> bool:
    return bool(((np.abs(values) <= _EXACT) & (values == np.trunc(values))).all())
