"""Compute the batches to look ahead: those in which a group that is started now can be used.

    (max_staleness + 1) * batches per version - batches trained on and not yet in a version

`after_version` and `Trained` count the batches between an acknowledgement and the next version. A trainer may also make
several versions of a batch, such as one for each mini-batch, at once or one after the other. Then the batches to look
ahead begin with

    max_staleness // versions per batch + 1

For example, with a ``max_staleness`` of 4, the first trainer acknowledges two batches before each version, and the
second one sets two versions after each batch. The columns are `Trained.batches`, `Trained.batches_per_version`,
`Trained.versions_per_batch`, and the batches to look ahead. After two cycles the versions of a batch are known:

    event            batches  batches/version  versions/batch  ahead
    acknowledgement        1                1               1      4
    acknowledgement        2                1               1      3
    version                0                2             0.5     10
    acknowledgement        1                2             0.5      9
    acknowledgement        2                2             0.5      8
    version                0                2             0.5     10

    event            batches  batches/version  versions/batch  ahead
    acknowledgement        1                1               1      4
    version                0                1               1      5
    version                0                1               1      5
    acknowledgement        1                1               1      4
    version                0                1               1      5
    version                0                1               1      5
    acknowledgement        1                1               1      4
    version                0                1               2      3
    version                0                1               2      3

Without a staleness limit nothing depends on versions.
"""

from dataclasses import replace
from math import ceil

from app.core.runs.counters import Trained, VersionCycle

UNLIMITED_HORIZON = 4
"""Batches to look ahead if staleness is not limited. A trainer should never wait, and groups should not be sampled by a
policy that is long replaced."""

_FLOAT_ERROR = 1e-9  # 3 * (1 / 3) counts as 1

VERSION_PATIENCE_MS = 60_000
"""How long credits wait for the version of an acknowledged batch, milliseconds of run clock.

The wait must end: a trainer may set no version, or wait for a batch before it sets one."""


def horizon_of(max_staleness: int | None, trained: Trained, clock_ms: int) -> int:
    """Return the number of batches in which a group that is started now can be used, ``>= 0``.

    Args:
        max_staleness: Most versions between sampling and training, or None for no limit.
        trained: Batches that were trained on and are in no version yet.
        clock_ms: The run clock.
    """
    if max_staleness is None:
        return UNLIMITED_HORIZON
    at_once = max(1, ceil(trained.batches_per_version * trained.versions_per_batch - _FLOAT_ERROR))  # versions, by then
    batches = (max_staleness // at_once + 1) * trained.batches_per_version
    if trained.batches > batches:
        return batches  # the trainer continues without a version: it may never set one
    stalled = trained.batches == batches and clock_ms - trained.last_ms >= VERSION_PATIENCE_MS
    return 1 if stalled else batches - trained.batches


def after_version(trained: Trained, before: int, after: int, held: int) -> Trained:
    """Return the batches that are in no version yet after the version has changed.

    Args:
        trained: The batches before the change.
        before: The version before the change.
        after: The version in force now.
        held: Batches held by trainers. Each may be trained on already, and be in these versions.
    """
    if after <= before:
        return replace(trained, batches=0, last_ms=0, cycle=VersionCycle())
    per_batch, cycle = trained.versions_per_batch, trained.cycle
    if trained.batches > cycle.trained_after:
        per_batch, cycle = _next_cycle(trained)
    made_of = cycle.batches or held
    if not made_of:  # somebody sets a version by hand: it says nothing of batches
        return replace(trained, batches=0, cycle=cycle._replace(trained_after=0))
    versions = cycle.versions + after - before
    per_batch = max(per_batch, versions / made_of if not cycle.versions else min(1, versions / made_of))
    batches = max(-held, min(0, cycle.trained_before - _batches_of(versions, per_batch)))
    cycle = cycle._replace(versions=versions, trained_after=batches)
    return Trained(batches, trained.last_ms, max(1, cycle.trained_before), per_batch, cycle)


def _next_cycle(trained: Trained) -> tuple[float, VersionCycle]:
    """Return the versions per batch that two cycles agree on, and the cycle that begins after an acknowledgement.

    A trainer may set versions at odd times, such as two between two acknowledgements and none between the next. So one
    cycle with more versions than the others does not count.
    """
    last, acknowledged = trained.cycle, trained.batches - trained.cycle.trained_after
    if not last.versions:
        begun = last._replace(
            batches=acknowledged, trained_before=trained.batches, trained_before_by_batch=trained.batches
        )
        return last.last_versions_per_batch, begun
    last_batches = max(1, last.batches)
    last_per_batch = last.versions / last_batches
    per_batch = min(last_per_batch, last.last_versions_per_batch)
    by_batch = min(0, last.trained_before_by_batch - min(last_batches, last.versions)) + acknowledged
    # With too low a number until now, the versions of one batch counted for several.
    before = by_batch if per_batch > max(1, trained.versions_per_batch) else trained.batches
    return per_batch, VersionCycle(0, acknowledged, before, by_batch, last_versions_per_batch=last_per_batch)


def _batches_of(versions: int, per_batch: float) -> int:
    """Return how many batches versions were made of; a version counts for one at most."""
    return ceil(versions / max(1, per_batch) - _FLOAT_ERROR)
