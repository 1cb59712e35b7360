"""A process that lives for weeks keeps nothing of the runs that came and went."""

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from app.events import BatchGivenBack
from app.store.curriculum.entries import ItemWrite
from tests.services.conftest import Process, config, encoded
from tests.services.replay.moves import fragment

NAME = "short-lived"

BOUNDED = {
    "CurriculumStore._ids",
    "NewEnvironmentLimit._free_at_s",
    "NewEnvironmentLimit._full_at_s",
    "Turns._turns",
}
"""Collections that drop old entries when they are large."""

_CONTAINERS = (Mapping, list, tuple, set, frozenset, deque)


def attributes(one: object) -> Iterator[tuple[str, Any]]:
    """Yield the names and values of an object of this project, and what a container has."""
    if isinstance(one, _CONTAINERS):
        for value in [*one, *(one.values() if isinstance(one, Mapping) else ())]:
            yield "", value
    elif type(one).__module__.startswith("app."):
        yield from vars(one).items() if hasattr(one, "__dict__") else ()
        for kind in type(one).__mro__:
            for name in getattr(kind, "__slots__", ()):
                if hasattr(one, name):
                    yield name, getattr(one, name)


def with_name(root: object, run: str) -> set[str]:
    """Return the collections that are reachable from an object and have a run's name, as ``Class.attribute``."""
    found, seen, left = set[str](), set[int](), [root]
    while left:
        one = left.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        for name, value in attributes(one):
            if name and isinstance(value, _CONTAINERS) and any(key == run or _is_part(run, key) for key in value):
                found.add(f"{type(one).__name__}.{name}")
            left.append(value)
    return found


def _is_part(run: str, key: object) -> bool:
    return isinstance(key, tuple) and run in key


async def use(process: Process) -> None:
    """Use a run in a process: environments, groups, batches, events, history, a replay buffer and a curriculum."""
    services, maintenance = process
    await services.runs.atropos.register(NAME, config(4))
    joined = await services.environments.registry.join(
        NAME, "math", {"group_size": 2}, "one", change_settings=False, sender="somebody"
    )
    await services.groups.atropos.submit(NAME, [encoded(2, mark, joined.environment) for mark in range(4)])
    await services.environments.allowances.heartbeat(NAME, joined.environment, joined.member, 0)
    await services.environments.demand.of(NAME, None, 0.0)
    await services.batches.dispatch.take(NAME)
    await services.replay.buffers.configure(NAME, {"eviction": "most_used"})
    await services.replay.insertion.insert(NAME, [fragment(0)])
    await services.curriculum.administration.configure(NAME, "c", {}, make=True)
    await services.curriculum.items.register(NAME, "c", [ItemWrite("item")])
    services.events.recorder.record(BatchGivenBack(run=NAME, batch="b", step=0, reason=None))
    await services.events.recorder.flush()
    await maintenance.maintain(NAME)
    await services.history.writer.write(NAME, maintained=True, replay=True)


def forget(process: Process, names: Collection[str]) -> None:
    """Do twice what the loop does every half minute: what was used since the last time stays for one round."""
    for _ in range(2):
        process[1]._forget_others(names)


async def test_a_process_keeps_nothing_of_a_run_that_another_process_deleted(
    process: Callable[..., Process],
) -> None:
    one, other = process(), process()
    await use(one)
    forget(one, [NAME])
    kept = with_name(one[0], NAME)
    await other[0].runs.administration.delete(NAME)

    forget(one, [])

    assert {"EventRecorder._newest", "ReplayInsertion._evictions"} <= kept, "the test uses both"
    assert with_name(one[0], NAME) <= BOUNDED
