"""An environment that makes groups up: it stands for a rollout worker with a model behind it.

    LACHESIS_URL=http://127.0.0.1:8000 LACHESIS_RUN=demo python examples/environment.py

The trainer makes the run; start it first.
"""

import argparse
import asyncio
import random

from lachesis import Environment, Group

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


async def main(name: str, groups: int) -> None:
    """Submit so many groups, as many at a time as the service wants."""
    async with Environment(name, group_size=GROUP_SIZE) as environment:

        async def work(task: int) -> None:
            async with environment.permit() as permit:
                await environment.submit(await rollout(task, permit.policy_version))

        async with asyncio.TaskGroup() as workers:
            for task in range(groups):
                workers.create_task(work(task))
        await environment.flush()
        print(f"{name}: {dict(environment.outcomes)}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--name", default="addition")
    parser.add_argument("--groups", type=int, default=40)
    given = parser.parse_args()
    asyncio.run(main(given.name, given.groups))
