"""Seeds of the randomized tests: fixed, unless the environment says otherwise.

A fixed seed keeps old faults from failing new changes. To search further: `LACHESIS_FUZZ_SEED=random`, for the fuzzers
and for hypothesis, or `LACHESIS_CHAOS_SEED=random`. A number repeats a run of a fuzzer; each prints its seed.
"""

import os
import secrets

FUZZ, CHAOS = "LACHESIS_FUZZ_SEED", "LACHESIS_CHAOS_SEED"
_ALWAYS = 20_190_221


def is_random(variable: str) -> bool:
    """Return whether each run takes another seed."""
    return os.environ.get(variable) == "random"


def seed_of(variable: str) -> int:
    """Return the seed from a variable of the environment; draw one if it is `random`."""
    seed = secrets.randbelow(2**32) if is_random(variable) else int(os.environ.get(variable) or _ALWAYS)
    print(f"{variable}={seed}")
    return seed
