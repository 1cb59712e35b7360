"""The part that the three environments share: a real ``BaseEnv`` that writes down what it sends and what was answered.

Nothing of the library is patched. Its methods are overridden as any subclass may, and each calls the library's own.
"""

import itertools
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
from atroposlib.envs.base import APIServerConfig, BaseEnv, BaseEnvConfig
from pydantic import Field
from witness import Journal, describe


class WitnessedConfig(BaseEnvConfig):
    """The library's configuration, and where this test keeps its papers."""

    journal: str = Field(default="", description="File to write down what was sent.")
    stop_file: str = Field(default="", description="Once it exists, no new rollout is begun.")


class WitnessedEnv(BaseEnv):
    """An environment whose every submission is on record: attempted, and answered with which status."""

    env_config_cls = WitnessedConfig
    group_size = 4
    min_batch_allocation: float | None = None

    @classmethod
    def config_init(cls) -> tuple[WitnessedConfig, list[APIServerConfig]]:
        """Give the defaults; the command line fills in the addresses."""
        config = WitnessedConfig(
            group_size=cls.group_size,
            min_batch_allocation=cls.min_batch_allocation,
            wandb_name=cls.name,
            use_wandb=False,
            max_num_workers=16,
            steps_per_eval=25,
            total_steps=1_000_000,
            include_messages=True,
        )
        return config, [APIServerConfig(model_name="think-20", api_key="none")]

    async def setup(self) -> None:
        """Open the journal."""
        self.journal = Journal(self.config.journal)
        self.serial = itertools.count()
        self.quiet = False

    async def get_next_item(self) -> dict[str, str] | None:
        """Make up a question nobody asked before, until told to stop."""
        if self.stopping():
            return None
        return {"role": "user", "content": f"{self.name} {next(self.serial)} {uuid.uuid4()}"}

    def stopping(self) -> bool:
        """Return whether the test asked for quiet."""
        return Path(self.config.stop_file).exists()

    async def register_env(self) -> None:
        """Register as the library does, and write down under which id."""
        await super().register_env()
        self.journal.write("registered", env_id=self.env_id, name=self.wandb_prepend)

    async def handle_env(self, item_uuid: str) -> Any:
        """Make a group as the library does, and write down that it is begun."""
        self.journal.write("begun")
        return await super().handle_env(item_uuid)

    async def env_step_checks(self) -> None:
        """Do the library's checks, and write down each look at a paused run, and once that all rollouts are over."""
        await super().env_step_checks()
        if self.status_dict["unallocated_fraction"] < 0:
            self.journal.write("paused")
        if self.stopping() and not self.workers and not self.quiet:
            self.quiet = True
            self.journal.write("quiet")

    async def evaluate(self, *args: Any, **kwargs: Any) -> None:
        """Ask the model one thing, as an evaluation would."""
        messages = [{"role": "user", "content": "evaluate"}]
        await self.server.chat_completion(messages=messages, n=1, split="eval")
        self.journal.write("evaluated", step=self.curr_step)

    def _post_json_with_compression(self, session: aiohttp.ClientSession, url: str, payload: Any, **kwargs: Any) -> Any:
        return self._on_record(super()._post_json_with_compression(session, url, payload, **kwargs), payload)

    @asynccontextmanager
    async def _on_record(self, request: Any, payload: Any) -> AsyncIterator[aiohttp.ClientResponse]:
        groups = describe(payload if isinstance(payload, list) else [payload])
        attempt = str(uuid.uuid4())
        self.journal.write("attempt", attempt=attempt, groups=groups)
        try:
            async with request as reply:
                body = await reply.text()
                self.journal.write("answer", attempt=attempt, status=reply.status, body=body[:200])
                yield reply
        finally:
            # Without an answer before it, this says that nobody will ever know: reset, timed out or cancelled.
            self.journal.write("closed", attempt=attempt)
