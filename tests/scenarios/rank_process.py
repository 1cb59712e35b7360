"""One rank of a trainer, as a process: `python -m tests.scenarios.rank_process DIRECTORY ATTEMPT STEPS DIES_AT`.

It trains (it writes down what it was given), meets the other ranks after each step as a collective operation would, and
ends at once when one of them does not come.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

from lachesis import Rank, Trainer

PATIENCE_S = 5.0
SAVES_EVERY = 3
ALONE = 3


def main(directory: Path, attempt: int, steps: int, dies_at: int) -> None:
    rank = Rank.from_env()

    def meet(place: str) -> None:
        (directory / f"{attempt}-{place}-{rank.rank}").touch()
        deadline = time.monotonic() + PATIENCE_S
        while not all((directory / f"{attempt}-{place}-{other}").exists() for other in range(rank.world_size)):
            if time.monotonic() > deadline:
                os._exit(ALONE)  # as those end who wait in a collective operation for a rank that died
            time.sleep(0.005)

    with Trainer() as trainer, (directory / f"trained-{rank.rank}").open("a") as log:
        saved = directory / "saved"
        if rank.rank == 0 and attempt:
            trainer.rewind(int(saved.read_text()) if saved.exists() else 0)
        meet("start")
        for batch in trainer.batches(prefetch=1, wait_s=20, rank=rank):
            if batch.step == dies_at and rank.rank == rank.world_size - 1:
                os.kill(os.getpid(), signal.SIGKILL)
            log.write(json.dumps([attempt, batch.step, [group.id for group in batch.groups]]) + "\n")
            log.flush()
            meet(f"step{batch.step}")
            batch.ack()
            if rank.rank == 0 and batch.step % SAVES_EVERY == 0:
                saved.write_text(str(batch.step))
                trainer.checkpoint(batch.step)
            if batch.step == steps:
                return


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
