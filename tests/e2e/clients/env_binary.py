"""Episodes as `env_lists.py` sends them, with all fields that there are, over the native API in binary."""

import random
import uuid
from collections.abc import Mapping
from typing import Any

from env_lists import ListsEnv
from witness import describe

from lachesis.atropos import BinarySubmission
from lachesis.groups.group import Group


class BinaryEnv(BinarySubmission, ListsEnv):
    """An environment of Atropos that keeps everything but the way its groups go."""

    name = "binary"

    async def rollout(self, item: dict[str, str], size: int) -> dict[str, Any]:
        """Sample a group, and make up what else there may be in one."""
        group = await super().rollout(item, size)
        rows = [len(row) for row in group["tokens"]]
        return group | {
            "advantages": [some_numbers(length + 1) for length in rows],
            "ref_logprobs": [some_numbers(length) for length in rows],
            "inference_logprobs": [[1.0, *some_numbers(length - 1)] for length in rows],
            "generation_params": {"temperature": 0.7, "stop": None},
            "images": [{"png": "aGk=", "of": item["content"]}, None],
            "distill_token_ids": [[[7, 8], *[[] for _ in range(length - 1)]] for length in rows],
            "distill_logprobs": [[some_numbers(2), *[[] for _ in range(length - 1)]] for length in rows],
        }

    def lachesis_group(self, scored: Mapping[str, Any]) -> Group:
        """Turn a group into what is sent, and write down the id that it got."""
        group = super().lachesis_group(scored)
        self.journal.write("named", id=group.id, env_id=self.env_id)
        return group

    async def _send_scored_data_to_api(self, scored_data: Any) -> None:
        groups = scored_data if isinstance(scored_data, list) else [scored_data]
        attempt = str(uuid.uuid4())
        self.journal.write("attempt", attempt=attempt, groups=describe({**g, "env_id": self.env_id} for g in groups))
        try:
            await super()._send_scored_data_to_api(scored_data)
            self.journal.write("answer", attempt=attempt, status=201)
        finally:
            self.journal.write("closed", attempt=attempt)


def some_numbers(count: int) -> list[float]:
    """Make up doubles, so that a column that is rounded on its way is noticed."""
    return [random.random() for _ in range(count)]  # noqa: TID251 - any number will do


if __name__ == "__main__":
    BinaryEnv.cli()
