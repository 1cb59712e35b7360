"""Whatever is submitted, repeated, refused or dropped, a run and its curriculum count each group once, in one step.

Two API processes serve the calls in turn. One of them sends two of five messages twice, as when answers get lost. After
each call the run is counted again from its keys, and the curriculum is compared with a plain model of it, key by key.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, cycle
from typing import Any, TypeVar

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from app.api.deps import Services
from app.core.runs.settings import Policy
from app.store.groups.encoded_group import EncodedGroup
from app.store.redis.client import RedisClient
from app.store.redis.pipeline import Command
from lachesis.wire.curricula import CurriculumSettings
from lachesis.wire.errors import GroupExists, QueueFull
from tests.properties import briefly_and_at_length, run_machine
from tests.services.accounting import books_of, keys_of_runs
from tests.services.conftest import RUN, config, join
from tests.services.curriculum.model import CurriculumModel
from tests.services.curriculum.runs import KEYS, NAME, contents, keys_of, observe, sample
from tests.services.curriculum.test_machine import changes, keys, rewards
from tests.services.processes import A_YEAR_S, Processes

T = TypeVar("T")

NAMESAKE, OTHER = 0, 1
new_groups = st.tuples(st.sampled_from([NAMESAKE, NAMESAKE, NAMESAKE, OTHER, None]), st.none() | keys | keys, rewards)
"""Environment, item, rewards."""
policies = st.one_of(
    st.fixed_dictionaries({"max_queued_groups": st.sampled_from([None, 4, 10])}),
    st.fixed_dictionaries({"filter_reward_range": st.sampled_from([None, {"below": 0.9}, {"above": 0.0}])}),
)


class Stuttering(RedisClient):
    """A connection that sends two of five messages twice, and returns the second answer.

    It does not send all twice: a refused submission that is sent again is outdated, and its service then submits once
    more. If all messages came twice, that would never end.
    """

    def __init__(self, url: str, patience_s: float) -> None:
        super().__init__(url, patience_s)
        self._times = cycle((2, 1, 2, 1, 1))

    async def pipeline(self, commands: Sequence[Command]) -> list[Any]:
        return [await super(Stuttering, self).pipeline(commands) for _ in range(next(self._times))][-1]

    async def transact(self, commands: Sequence[Command]) -> list[Any]:
        return [await super(Stuttering, self).transact(commands) for _ in range(next(self._times))][-1]


@pytest.fixture
def processes(redis_url: str) -> Iterator[Processes]:
    started = Processes(redis_url, Stuttering)
    yield started
    started.close()


@dataclass
class RunModel:
    """What the run holds, and by which rules it takes groups in."""

    known: dict[str, EncodedGroup]
    dropped: Counter[str]
    queued: int = 0
    max_queued_groups: int | None = None
    filter_reward_range: dict[str, float] | None = None

    def refuses(self, new: Sequence[EncodedGroup]) -> bool:
        return bool(new) and self.max_queued_groups is not None and self.queued >= self.max_queued_groups

    def take(self, group: EncodedGroup) -> None:
        self.known[str(group.given_id)] = group
        band, mean = self.filter_reward_range or {}, sum(group.rewards.tolist()) / group.size
        passes = band.get("above", -2.0) + 1e-6 < mean < band.get("below", 2.0) - 1e-6
        self.queued += passes
        self.dropped.update({} if passes else {"reward_range": 1})


class GroupMachine(RuleBasedStateMachine):
    """One run with two environments, and a curriculum called as one of them, or none."""

    def __init__(self, processes: Processes) -> None:
        super().__init__()
        self._processes = processes
        self._numbers = count()
        self._run = RunModel({}, Counter())
        self._processes.wait(self._processes.redis.flushall())
        settings = Policy.model_validate({"dedup_window_s": A_YEAR_S, "history_retention_s": A_YEAR_S})
        self._call(lambda services: services.runs.administration.create(RUN, config(4), settings))
        for name in (NAME, "other"):
            self._call(lambda services, name=name: join(services, name))  # type: ignore[misc]
        self._model: CurriculumModel | None = None
        self.make()

    def teardown(self) -> None:
        self._call(lambda services: services.runs.administration.delete(RUN))
        assert self._processes.wait(keys_of_runs(self._processes.redis)) == []

    def _call(self, use: Callable[[Services], Awaitable[T]]) -> T:
        return self._processes.call(use)

    @rule(
        new=st.lists(new_groups, min_size=1, max_size=4),
        again=st.lists(st.integers(0, 30), max_size=2),
        transacts=st.booleans(),
    )
    def submit(self, new: list[tuple[int | None, str | None, list[float]]], again: list[int], transacts: bool) -> None:
        self._processes.transact(transacts)
        fresh = [self._encoded(*about) for about in new]
        known = list(self._run.known.values())
        repeated = {str(group.given_id): group for group in (known[n % len(known)] for n in again if known)}
        groups = [*fresh[:1], *repeated.values(), *fresh[1:]]
        if self._run.refuses(fresh):
            with pytest.raises(QueueFull):
                self._call(lambda services: services.groups.native.submit(RUN, groups))
            return
        outcomes = self._call(lambda services: services.groups.native.submit(RUN, groups))
        assert [outcome.repeated for outcome in outcomes] == [group not in fresh for group in groups]
        for group in fresh:
            self._run.take(group)
        told = [(item, scores) for environment, item, scores in new if environment == NAMESAKE and item is not None]
        if self._model is not None and told:
            self._model.observe(told, None)

    @precondition(lambda self: self._run.known)
    @rule(about=new_groups)
    def submit_other_contents_under_a_known_id(self, about: tuple[int | None, str | None, list[float]]) -> None:
        known = next(iter(self._run.known.values()))
        other = known._replace(payload=b"other" + bytes(known.payload))
        with pytest.raises((GroupExists, QueueFull)):
            self._call(lambda services: services.groups.native.submit(RUN, [self._encoded(*about), other]))

    def _encoded(self, environment: int | None, item: str | None, scores: list[float]) -> EncodedGroup:
        name = f"g{next(self._numbers)}"
        payload, given = f"{name}|".encode(), np.array(scores)
        return EncodedGroup(len(scores), environment, payload, name, item=item, rewards=given)

    @rule(change=policies)
    def change_run(self, change: dict[str, Any]) -> None:
        self._call(lambda services: services.runs.administration.change(RUN, change))
        for name, value in change.items():
            setattr(self._run, name, value)

    @precondition(lambda self: self._model)
    @rule(observations=st.lists(st.tuples(keys, rewards), min_size=1, max_size=2))
    def observe(self, observations: list[tuple[str, list[float]]]) -> None:
        assert self._model is not None
        self._call(lambda services: observe(services, observations))
        self._model.observe(observations, None)

    @precondition(lambda self: self._model)
    @rule(n=st.integers(1, 4))
    def sample(self, n: int) -> None:
        assert self._model is not None
        found = self._call(lambda services: sample(services, n, step=3))
        number = int(self._processes.wait(self._processes.redis.hget(KEYS.curriculum(self._own()), "samples")))  # type: ignore[arg-type]
        for key in keys_of(found):
            self._model.hand_out(key, number, found.sample_id, 0.0)

    @precondition(lambda self: self._model)
    @rule(change=changes)
    def switch(self, change: dict[str, Any]) -> None:
        assert self._model is not None
        self._model.settings = self._call(
            lambda services: services.curriculum.administration.configure(RUN, NAME, change, make=False)
        ).view.settings

    @precondition(lambda self: self._model)
    @rule()
    def save_and_restore(self) -> None:
        async def again(services: Services) -> None:
            states = services.curriculum.states
            await states.load(RUN, NAME, await states.save(RUN, NAME))

        assert self._model is not None
        self._call(again)
        self._model = self._model.restored(0.0)

    @precondition(lambda self: self._model)
    @rule()
    def delete(self) -> None:
        self._call(lambda services: services.curriculum.administration.delete(RUN, NAME))
        self._model = None

    @precondition(lambda self: self._model is None)
    @rule()
    def make(self) -> None:
        given = {"in_flight_ttl_s": A_YEAR_S, "total_steps": 10}
        self._model = CurriculumModel(CurriculumSettings(**given))  # type: ignore[arg-type]
        self._call(lambda services: services.curriculum.administration.configure(RUN, NAME, given, make=True))

    def _own(self) -> str:
        found = self._processes.wait(self._processes.redis.hget(KEYS.curricula, NAME))  # type: ignore[arg-type]
        return str(found.decode())

    @invariant()
    def both_books_agree(self) -> None:
        books = self._processes.wait(books_of(self._processes.redis, RUN))
        assert (len(books["queued"]), books["dropped"]) == (self._run.queued, self._run.dropped)
        if self._model is None:
            assert self._processes.wait(self._processes.redis.keys("*:curriculum:*")) == []
            return
        found = self._processes.wait(contents(self._processes.redis, self._own()))
        arms = {arm: float(value) for arm, value in found.pop("arms", {}).items()}
        expected = self._model.contents()
        assert (arms, found) == (expected.pop("arms", {}), expected)
        census = self._call(lambda services: services.curriculum.administration.facts(RUN, NAME)).census
        assert (census.updates, census.reward_sum) == (self._model.updates, self._model.reward_sum())
        assert (census.in_flight, census.left_out) == (len(self._model.items) - len(self._model.idle(0.0)), 0)


@briefly_and_at_length(("examples", "steps"), (10, 20), (60, 40))
def test_a_group_is_counted_once_by_its_run_and_its_curriculum(processes: Processes, examples: int, steps: int) -> None:
    run_machine(lambda: GroupMachine(processes), examples, steps)
