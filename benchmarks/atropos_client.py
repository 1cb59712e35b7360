"""What it costs an environment of Atropos to submit a group, as its library does it and in binary.

In the clients' virtual environment (``python -m tests.e2e.venv`` builds it and says where), against a service that
runs: ``PYTHONPATH=clients:. .venv-e2e/bin/python -m benchmarks.atropos_client http://127.0.0.1:8000``. The methods
measured are the library's own and the SDK's own; groups go one after the other, to a run that is removed afterwards.
"""

import asyncio
import gzip
import json
import random
import sys
import time
from collections.abc import Sequence
from statistics import median
from types import SimpleNamespace
from typing import Any

import requests
from atroposlib.envs.base import BaseEnv

from benchmarks.bodies import Shape, group
from lachesis.atropos import BinarySubmission

SHAPE = Shape(8, 2048)
GROUPS = 40
RUN = "bench-atropos-client"


class Plain:
    """Submits as the library does, with its methods; all else of it wants a model and a tokenizer."""

    _send_scored_data_to_api = BaseEnv._send_scored_data_to_api
    _post_json_with_compression = BaseEnv._post_json_with_compression

    def __init__(self, url: str, env_id: int) -> None:
        self.config = SimpleNamespace(rollout_server_url=url)
        self.env_id = env_id

    def body_bytes(self, scored: dict[str, Any]) -> int:
        """Count what goes over the line for a group."""
        return len(gzip.compress(json.dumps(scored).encode()))


class Binary(BinarySubmission, Plain):
    """Submits in binary."""

    def body_bytes(self, scored: dict[str, Any]) -> int:
        """Count what goes over the line for a group."""
        return len(self.lachesis_group(scored).packed(self.env_id))


def joined(url: str) -> int:
    """Make the run, and register an environment in it; its id."""
    registration: dict[str, str | int] = {
        "wandb_group": "g", "wandb_project": "p", "batch_size": 65536, "max_token_len": 32768,
        "checkpoint_dir": "c", "save_checkpoint_interval": 0, "starting_step": 0, "num_steps": 1000000,
    }  # fmt: skip
    application: dict[str, str | float] = {
        "max_token_length": 32768, "desired_name": "bench", "weight": 1.0, "group_size": SHAPE.sequences,
    }  # fmt: skip
    requests.post(f"{url}/register", json=registration, timeout=30).raise_for_status()
    requests.get(f"{url}/batch", timeout=30).raise_for_status()
    return int(requests.post(f"{url}/register-env", json=application, timeout=30).json()["env_id"])


async def measure(envs: Sequence[Plain], groups: Sequence[dict[str, Any]]) -> None:
    """Send the same groups in each way, in turns, and print medians."""
    wall_s: dict[Plain, list[float]] = {env: [] for env in envs}
    own_s: dict[Plain, list[float]] = {env: [] for env in envs}
    for scored in groups:
        for env in envs:
            began_s, own_before_s = time.perf_counter(), time.process_time()
            await env._send_scored_data_to_api(dict(scored))
            wall_s[env].append(time.perf_counter() - began_s)
            own_s[env].append(time.process_time() - own_before_s)
    print(f"{SHAPE}: medians of {len(groups)} groups")
    for env in envs:
        wall_ms, own_ms = 1000 * median(wall_s[env]), 1000 * median(own_s[env])
        name, sent = type(env).__name__, env.body_bytes(groups[0])
        print(f"{name:8} {wall_ms:7.1f} ms, {own_ms:.1f} ms of its own CPU, {sent:,} bytes")


def main(url: str) -> None:
    """Measure against a service, and leave nothing in it."""
    try:
        env_id = joined(url)
        rng = random.Random(1)
        groups = [group(SHAPE, rng, env_id) for _ in range(GROUPS)]
        asyncio.run(measure([Plain(url, env_id), Binary(url, env_id)], groups))
        queued = requests.get(f"{url}/status", timeout=30).json()["queue_size"]
        assert queued == 2 * GROUPS, f"{queued} of {2 * GROUPS} groups arrived"
    finally:
        requests.get(f"{url}/reset_data", timeout=30)


if __name__ == "__main__":
    main(f"{sys.argv[1]}/runs/{RUN}/atropos")
