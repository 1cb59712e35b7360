"""A trainer that does everything but train.

    LACHESIS_URL=http://127.0.0.1:8000 LACHESIS_RUN=demo python examples/trainer.py

It takes all batches that examples/environment.py fills. When you start it again, it continues the run.
If the service asks for tokens, LACHESIS_TOKEN or LACHESIS_TOKEN_FILE gives the one to send.
"""

import argparse
import logging
import os
import sys

import numpy as np

from lachesis import Batch, LachesisError, Trainer

PAD_ID = 0


def train(batch: Batch) -> float:
    """Stand for a step: a real one would begin with ``batch.to_torch()``, or with the padded arrays."""
    tokens = batch.tokens_padded(PAD_ID)
    labels = batch.padded("masks", -100)
    assert tokens.shape == labels.shape == (batch.info.batch_size, batch.lengths.max())
    return float(np.mean(batch.scores))


def main(steps: int, batch_size: int, wait_s: float) -> None:
    """Take so many batches, and acknowledge each."""
    with Trainer(name=f"trainer-{os.getpid()}") as trainer:
        run = trainer.create_run(batch_size=batch_size, max_staleness=4)
        version = run.policy_version
        for done, batch in enumerate(trainer.batches(prefetch=1, wait_s=wait_s), start=1):
            score = train(batch)
            batch.ack()
            version += 1
            trainer.set_policy_version(version)
            print(f"step {batch.step}: {len(batch.groups)} groups, {len(batch.tokens)} tokens, mean score {score:.3f}")
            if done == steps:
                trainer.checkpoint(batch.step)
                break


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--wait-s", type=float, default=60, help="for a batch")
    given = parser.parse_args()
    logging.basicConfig(format="%(levelname)s %(message)s", level=logging.WARNING)
    try:
        main(given.steps, given.batch_size, given.wait_s)
    except LachesisError as error:
        sys.exit(f"trainer: {error}")
