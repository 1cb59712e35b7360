"""Groups of four chats, as most Atropos environments send them: ``python env_plain.py serve ...``."""

import random
from typing import Any

from atroposlib.utils.tokenize_for_trainer import tokenize_for_trainer
from witnessed_env import WitnessedEnv


class PlainEnv(WitnessedEnv):
    """Chats, one group for each question."""

    name = "plain"
    group_size = 4

    async def collect_trajectories(self, item: dict[str, str]) -> tuple[dict[str, Any] | None, list[Any]]:
        """Ask the model for one group of answers."""
        if self.stopping():
            return None, []
        return await self.rollout(item, self.config.group_size), []

    async def rollout(self, item: dict[str, str], size: int) -> dict[str, Any]:
        """Sample ``size`` answers to a question and score each with its own number, so that no two are alike."""
        completion = await self.server.chat_completion(messages=[item], n=size, max_tokens=64)
        group: dict[str, Any] = {"tokens": [], "masks": [], "scores": [], "messages": []}
        for choice in completion.choices:
            chat = [item, {"role": "assistant", "content": choice.message.content}]
            tokenized = tokenize_for_trainer(self.tokenizer, chat, include_messages=True)
            for column in ("tokens", "masks", "messages"):
                group[column].append(tokenized[column])
            group["scores"].append(random.random())  # noqa: TID251 - any number will do, and float64 must survive
        return group


if __name__ == "__main__":
    PlainEnv.cli()
