"""Whatever workers and owners do in whatever order, a curriculum is what a plain model of it is, key by key in Redis.

Two API processes serve the calls in turn. One of them sends each command twice, as when answers get lost. Time passes
by moving the run's clock on in Redis.
"""

import math
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar, get_args

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from app.api.deps import Services
from app.core.runs.settings import Policy
from app.store.curriculum.entries import ItemWrite
from app.store.curriculum.store import CurriculumStore
from lachesis.wire.curricula import Arms, CurriculumSettings, CurriculumStrategy, Form
from tests.properties import briefly_and_at_length, run_machine
from tests.services.accounting import keys_of_runs
from tests.services.conftest import RUN, config
from tests.services.curriculum.model import CurriculumModel
from tests.services.curriculum.runs import KEYS, NAME, Twice, contents, dump, keys_of, observe, sample
from tests.services.processes import A_YEAR_S, Processes

T = TypeVar("T")
PASSES_S = 30

keys = st.sampled_from(["a", "b", "c/d", "é", "\0", "f", "g", "h"])
rewards = st.lists(st.sampled_from([0.0, 1.0, 0.5, -1.0, 0.1]), min_size=1, max_size=3)
requests = st.sampled_from(["", "", "s1", "s2"])
abouts = st.fixed_dictionaries(
    {},
    optional={
        "category": st.sampled_from(["x", "y", ""]),
        "prior": st.sampled_from([0.0, 0.3, -2.5, math.nan]),
        "metadata": st.sampled_from(['{"a":1}', ""]),
    },
)
changes = st.one_of(
    st.fixed_dictionaries({"strategy": st.sampled_from(get_args(CurriculumStrategy))}),
    st.fixed_dictionaries({"n_bins": st.integers(1, 6)}),
    st.fixed_dictionaries({"ema_alpha": st.sampled_from([0.1, 0.5, 1.0])}),
    st.fixed_dictionaries({"arms": st.sampled_from(get_args(Arms)), "arm_alpha": st.sampled_from([0.2, 1.0])}),
    st.fixed_dictionaries({"form": st.sampled_from(get_args(Form)), "forgetting": st.sampled_from([0.0, 0.4])}),
)


@pytest.fixture
def processes(redis_url: str) -> Iterator[Processes]:
    started = Processes(redis_url, Twice)
    yield started
    started.close()


class CurriculumMachine(RuleBasedStateMachine):
    """One curriculum, done to in any order what can be done to it."""

    def __init__(self, processes: Processes) -> None:
        super().__init__()
        self._processes = processes
        self._now = 0.0
        self._processes.wait(self._processes.redis.flushall())
        policy = Policy(dedup_window_s=A_YEAR_S)
        self._call(lambda services: services.runs.administration.create(RUN, config(1), policy))
        self._make()

    def _make(self) -> None:
        given = {"in_flight_ttl_s": 45.0, "total_steps": 10}
        self._model = CurriculumModel(CurriculumSettings(in_flight_ttl_s=45.0, total_steps=10))
        self._samples = dict[str, tuple[str, list[str]]]()
        self._call(lambda services: services.curriculum.administration.configure(RUN, NAME, given, make=True))

    def teardown(self) -> None:
        self._call(lambda services: services.runs.administration.delete(RUN))
        assert self._processes.wait(keys_of_runs(self._processes.redis)) == []

    def _call(self, use: Callable[[Services], Awaitable[T]]) -> T:
        return self._processes.call(use)

    @rule(items=st.dictionaries(keys, abouts, min_size=1, max_size=4))
    def register(self, items: dict[str, dict[str, Any]]) -> None:
        new = [ItemWrite(key, **about) for key, about in items.items()]
        self._call(lambda services: services.curriculum.items.register(RUN, NAME, new))
        for item in new:
            self._model.register(item.key, item.category, item.prior, item.metadata)

    @precondition(lambda self: self._model.items)
    @rule(data=st.data(), about=abouts)
    def change_item(self, data: st.DataObject, about: dict[str, Any]) -> None:
        key = data.draw(st.sampled_from(sorted(self._model.items)))
        self._call(lambda services: services.curriculum.items.change(RUN, NAME, ItemWrite(key, **about)))
        self._model.register(key, about.get("category"), about.get("prior"), about.get("metadata"))

    @rule(
        observations=st.lists(st.tuples(keys, rewards), min_size=1, max_size=5),
        request=st.sampled_from([None, None, "r1", "r2"]),
    )
    def observe(self, observations: list[tuple[str, list[float]]], request: str | None) -> None:
        expected = self._model.observe(observations, request)
        repeated = self._call(lambda services: observe(services, observations, request))
        assert repeated or expected, "none is taken for a repetition of another"

    @rule(n=st.integers(1, 6), step=st.integers(0, 12), seed=st.sampled_from([None, 3]), request=requests)
    def sample(self, n: int, step: int, seed: int | None, request: str) -> None:
        idle = self._model.idle(self._now)
        found = self._call(lambda services: sample(services, n, step=step, seed=seed, request_id=request))
        taken = keys_of(found)
        assert found.in_flight == len(self._model.items) - len(idle) + (0 if found.repeated else len(taken))
        before, _ = self._samples.get(request, ("", [])) if request else ("", [])
        held = self._model.held(before, self._now) if before else set()
        assert found.repeated == bool(held)
        if held:
            assert (found.sample_id, set(taken)) == (before, held)
            return
        assert len(set(taken)) == len(taken) <= n
        assert set(taken) <= idle
        if self._model.settings.strategy in ("uniform", "thompson"):
            assert len(taken) == min(n, len(idle))
        number = int(self._processes.wait(self._processes.redis.hget(self._own(), "samples")))  # type: ignore[arg-type]
        for key in taken:
            self._model.hand_out(key, number, found.sample_id, self._now)
        self._samples[request] = found.sample_id, taken
        for each in found.items:
            assert each.probability is None or 0 < each.probability <= 1 + 1e-9

    @rule(request=requests, first=st.integers(0, 2))
    def give_back(self, request: str, first: int) -> None:
        sample_id, taken = self._samples.get(request, ("", []))
        if taken[first:]:
            self._call(lambda services: services.curriculum.samples.release(RUN, NAME, sample_id, taken[first:]))
        for key in taken[first:]:
            self._model.give_back(key, sample_id)

    @rule(change=changes)
    def switch(self, change: dict[str, Any]) -> None:
        facts = self._call(lambda services: services.curriculum.administration.configure(RUN, NAME, change, make=False))
        self._model.settings = facts.view.settings
        assert {name: getattr(facts.view.settings, name) for name in change} == change
        assert sum(facts.bins) == len(self._model.items)

    @rule(change=changes, step=st.integers(0, 12))
    def ask_what_if(self, change: dict[str, Any], step: int) -> None:
        before = self._processes.wait(dump(self._processes.redis))
        self._call(lambda services: services.curriculum.comparisons.compare(RUN, NAME, change, 3, step))
        assert self._processes.wait(dump(self._processes.redis)) == before

    @rule()
    def save_and_restore(self) -> None:
        async def again(services: Services) -> None:
            states = services.curriculum.states
            await states.load(RUN, NAME, await states.save(RUN, NAME))

        self._call(again)
        self._model = self._model.restored(self._now)

    @precondition(lambda self: self._model.items)
    @rule(data=st.data())
    def delete_item(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self._model.items)))
        view = self._call(lambda services: CurriculumStore(services.connection).existing(RUN, NAME))
        self._call(lambda services: services.curriculum.items._items.delete(view, [key]))
        del self._model.items[key]

    @rule(again=st.sampled_from([False, False, True]))
    def delete(self, again: bool) -> None:
        if again:
            self._call(lambda services: services.curriculum.administration.delete(RUN, NAME))
            self._make()

    @rule(times=st.integers(1, 2))
    def pass_time(self, times: int) -> None:
        for _ in range(times):
            self._processes.pass_time(RUN, 1000 * PASSES_S)
            self._call(lambda services: services.environments.registry._runs.tick(RUN))
            self._now += PASSES_S

    def _own(self) -> str:
        found = self._processes.wait(self._processes.redis.hget(KEYS.curricula, NAME))  # type: ignore[arg-type]
        return KEYS.curriculum(found.decode())

    @invariant()
    def redis_holds_what_the_model_says(self) -> None:
        own = self._own()
        found = self._processes.wait(contents(self._processes.redis, own.rpartition(":")[2]))
        arms = {arm: float(value) for arm, value in found.pop("arms", {}).items()}
        expected = self._model.contents()
        assert arms == expected.pop("arms", {})
        assert found == expected
        curriculum_id, redis = own.rpartition(":")[2], self._processes.redis
        in_flight, holders = (KEYS.curriculum_part(curriculum_id, part) for part in ("in_flight", "holders"))
        pipeline = redis.pipeline(transaction=False).zrange(in_flight, 0, -1).hkeys(holders)
        held, held_by_somebody = self._processes.wait(pipeline.execute())
        assert sorted(held_by_somebody) == sorted(held)
        facts = self._call(lambda services: services.curriculum.administration.facts(RUN, NAME))
        assert facts.census.reward_sum == self._model.reward_sum()
        assert facts.census.updates == self._model.updates
        assert facts.census.in_flight == len(self._model.items) - len(self._model.idle(self._now))


@briefly_and_at_length(("examples", "steps"), (12, 25), (80, 50))
def test_a_curriculum_is_what_a_plain_model_of_it_is(processes: Processes, examples: int, steps: int) -> None:
    run_machine(lambda: CurriculumMachine(processes), examples, steps)
