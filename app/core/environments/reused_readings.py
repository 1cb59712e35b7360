"""Decide how long requests share one reading of a run.

Some values of a run are common to all its environments, such as who may start groups. Reading and computing them costs
as much as there are environments and lanes. So requests share them for a time.
"""

CPU_FRACTION = 0.05
"""The part of a core that readings of a run may take."""

_FIXED_COST_S = 0.0003
_COST_OF_EACH_S = 0.000006  # environment or lane
_CHEAP_S = 0.0005
_SHORTEST_S = 0.1


def reading_cost_s(environments: int, lanes: int) -> float:
    """Return about the CPU time of one reading, seconds. It is a measured model: the same on any machine."""
    return _FIXED_COST_S + _COST_OF_EACH_S * (environments + lanes)


def reuse_for_s(environments: int, lanes: int = 0) -> float:
    """Return how long requests may share one reading of a run, seconds.

    0 if a reading costs little. Else 100 ms, or as long as keeps readings within `CPU_FRACTION` of a core.
    """
    cost_s = reading_cost_s(environments, lanes)
    return 0.0 if cost_s <= _CHEAP_S else max(_SHORTEST_S, cost_s / CPU_FRACTION)
