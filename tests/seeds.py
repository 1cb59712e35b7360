"""Where the randomness of the tests starts: in the same place each time, unless one asks for another.

So a change is never refused for a fault it did not bring. To look further: `LACHESIS_FUZZ_SEED=random`, for the fuzzers
and for hypothesis, or `LACHESIS_CHAOS_SEED=random`. A number repeats a run of a fuzzer; each prints its seed.
"""

import os
import secrets

FUZZ, CHAOS = "LACHESIS_FUZZ_SEED", "LACHESIS_CHAOS_SEED"
_ALWAYS = 20_190_221


def is_random(variable: str) -> bool:
    """Whether each run is to start in another place."""
    return os.environ.get(variable) == "random"


def seed_of(variable: str) -> int:
    """The number that a variable of the environment gives; one drawn, if it says `random`."""
    seed = secrets.randbelow(2**32) if is_random(variable) else int(os.environ.get(variable) or _ALWAYS)
    print(f"{variable}={seed}")
    return seed
