"""Build the command that resets a run, from the names of all that the run has."""

from collections.abc import Sequence

from app.store.redis.keys import CurriculumKeys, RunKeys
from app.store.redis.pipeline import Command
from app.store.runs import scripts


def part_commands(keys: RunKeys) -> list[Command]:
    """Return the commands that read the run's lanes, buffers, curricula, and curricula that are being loaded."""
    return [
        ("HKEYS", keys.lanes),
        ("HKEYS", keys.buffers),
        ("HVALS", keys.curricula),
        ("ZRANGE", keys.curricula_loading, 0, -1),
    ]


def reset_command(
    keys: RunKeys,
    token: str,
    epoch: bytes,
    parts: Sequence[Sequence[bytes]],
    *,
    spare_native: bool,
    spare_archived: bool,
) -> Command:
    """Return the command that resets a run. Names are raw: a run that cannot be read can be removed, too.

    Args:
        keys: The run's keys.
        token: Begins the names of the data to remove.
        epoch: The epoch at which the parts were read.
        parts: The replies to `part_commands`.
        spare_native: Whether to leave a run alone that was created under ``/v1``.
        spare_archived: Whether to leave an archived run alone.
    """
    lanes, buffers, named, loading = parts
    queues = {b"lane " + name: keys.lane("").encode() + name for name in lanes}
    queues |= {b"buffer " + name: keys.buffer("").encode() + name for name in buffers}
    curricula = [*named, *loading]
    of_curricula = [key for own in curricula for key in CurriculumKeys(keys, own.decode(errors="replace")).own()]
    tokens = {hash_token(token, n): naming for n, naming in enumerate(keys.naming_payloads())}
    return scripts.reset_run(
        keys,
        payload_hashes=[scripts.RenamedHash(key, keys.marked_hash(own)) for own, key in tokens.items()],
        deleted=[*keys.state(), *queues.values(), *of_curricula],
        spare_native=spare_native,
        spare_archived=spare_archived,
        tokens=list(tokens),
        name=keys.name,
        epoch=epoch,
        names=[*queues, *(b"curriculum " + own for own in curricula)],
    )


def hash_token(token: str, number: int = 0) -> str:
    """Return the token of one of the marked hashes. The run remembers the first one in `reset_by`."""
    return f"{token}-{number}"
