"""A trainer on the library's example trainer client that writes down every batch.

``python trainer.py URL BATCH_SIZE JOURNAL DRAIN_FILE``: once the last exists, it ends when no more batches come.
"""

import importlib.util
import sys
import time
import types
from pathlib import Path
from types import ModuleType

import requests
from witness import Journal, describe

POLL_S = 0.1
SETTLED_AFTER_NULLS = 5


def example_trainer_api() -> ModuleType:
    """Import ``example_trainer/api.py`` itself, without the package around it.

    The package's ``__init__`` and ``config`` import torch, gigabytes of it, for which the client has no use: it reads
    a few attributes of the configuration that it is given.
    """
    spec = importlib.util.find_spec("example_trainer")
    package = types.ModuleType("example_trainer")
    package.__path__ = spec.submodule_search_locations
    config = types.ModuleType("example_trainer.config")
    config.TrainingConfig = types.SimpleNamespace
    sys.modules |= {"example_trainer": package, "example_trainer.config": config}
    return importlib.import_module("example_trainer.api")


def training_config(url: str, batch_size: int) -> types.SimpleNamespace:
    """Give what ``register_trainer`` reads of a ``TrainingConfig``."""
    return types.SimpleNamespace(
        atropos_url=url,
        batch_size=batch_size,
        gradient_accumulation_steps=1,
        seq_len=4096,
        training_steps=1_000_000,
        checkpoint_interval=0,
        save_path="checkpoints",
        wandb_group=None,
        wandb_project=None,
    )


def status(url: str) -> dict:
    """Read ``/status``; empty while the service is away, which the test makes it be."""
    try:
        return requests.get(f"{url}/status", timeout=10).json()
    except (requests.exceptions.RequestException, ValueError):
        return {}


def train(url: str, batch_size: int, journal: Journal, drain_file: Path) -> None:
    """Take batches until told to drain and nothing more comes."""
    client = example_trainer_api()
    if not client.check_atropos_api(url):
        sys.exit("the service does not answer")
    client.register_trainer(training_config(url, batch_size))
    journal.write("registered")
    nulls = 0
    while nulls < SETTLED_AFTER_NULLS or not drain_file.exists():
        before = status(url)
        batch = client.get_batch(url)["batch"]
        if batch is None:
            nulls += 1
            time.sleep(POLL_S)
            continue
        nulls = 0
        journal.write("batch", groups=describe(batch), before=before, after=status(url))


if __name__ == "__main__":
    train(sys.argv[1], int(sys.argv[2]), Journal(sys.argv[3]), Path(sys.argv[4]))
