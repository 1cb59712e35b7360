"""Episodes sent as lists of groups of mixed sizes; some lists complete the declared size and some do not."""

import random
from typing import Any

from env_plain import PlainEnv

SPLITS = ((3, 5), (2, 6), (8,), (1, 3, 4), (2, 2, 4), (5,), (3,), (7, 2))


class ListsEnv(PlainEnv):
    """Several groups for each question, of other sizes than the declared one."""

    name = "lists"
    group_size = 8

    async def collect_trajectories(self, item: dict[str, str]) -> tuple[list[dict[str, Any]] | None, list[Any]]:
        """Ask the model for the groups of one episode."""
        if self.stopping():
            return None, []
        groups = []
        for step, size in enumerate(random.choice(SPLITS)):
            group = await self.rollout(item | {"content": f"{item['content']} step {step}"}, size)
            group["group_overrides"] = {"group_size": size}
            group["overrides"] = [{"step": step} for _ in range(size)]
            groups.append(group)
        return groups, []


if __name__ == "__main__":
    ListsEnv.cli()
