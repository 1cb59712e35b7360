"""An environment that makes groups up: it stands for a rollout worker with a model behind it.

    LACHESIS_URL=http://127.0.0.1:8000 LACHESIS_RUN=demo python examples/environment.py

It makes as much as examples/trainer.py takes, which also makes the run: start the two in either order, as often as
you like. It asks for a permit before each group. If no trainer takes batches, it gets no more permits.
If the service asks for tokens, LACHESIS_TOKEN or LACHESIS_TOKEN_FILE gives the one to send.
"""

import argparse
import asyncio
import logging
import random
import sys

from lachesis import AsyncEnvironment, Group, LachesisError

GROUP_SIZE = 4


async def rollout(task: int, policy_version: int) -> Group:
    """Sample completions of one task. A real worker asks its model here, at this policy version."""
    await asyncio.sleep(0.01)
    prompt = [101, 7, task]
    model = random.Random(task)
    completions = [[model.randrange(1000) for _ in range(model.randint(1, 20))] for _ in range(GROUP_SIZE)]
    return Group(
        tokens=[prompt + completion for completion in completions],
        masks=[[-100] * len(prompt) + completion for completion in completions],
        scores=[model.random() for _ in completions],
        policy_version=policy_version,
        item=f"addition/{task}",
    )


async def main(name: str, groups: int, workers: int, wait_s: float) -> None:
    """Submit so many groups, as many at a time as there are workers and as the service wants."""
    async with AsyncEnvironment(name, group_size=GROUP_SIZE, wait_for_run_s=wait_s) as environment:
        tasks = iter(range(groups))

        async def work() -> None:
            for task in tasks:
                async with environment.permit(wait_s=wait_s) as permit:
                    await environment.submit(await rollout(task, permit.policy_version))

        await asyncio.gather(*(work() for _ in range(workers)))
        await environment.flush()
        print(f"{name}: {dict(environment.outcomes)}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--name", default="addition")
    parser.add_argument("--groups", type=int, default=20)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--wait-s", type=float, default=60, help="for the run, or for a permit")
    given = parser.parse_args()
    logging.basicConfig(format="%(levelname)s %(message)s", level=logging.WARNING)
    try:
        asyncio.run(main(given.name, given.groups, given.workers, given.wait_s))
    except LachesisError as error:
        sys.exit(f"{given.name}: {error}")
