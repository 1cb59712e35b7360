"""If every environment makes what its credits allow, a batch forms, or `explain` names who must act.

Environments join and leave, strays come, batches are taken, end well, are given back or lost, and settings change, in
any order. Then every environment asks for credits and makes what it is granted, until none is granted any more: from
there nothing happens by itself. Whether any groups could complete a batch is worked out here in the plainest way.
"""

import contextlib
from collections import defaultdict
from collections.abc import Sequence
from itertools import count
from typing import Any, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from app.core.environments.full_queue import FullQueue
from app.core.runs.settings import Policy
from app.core.runs.view import RunView
from app.services.batches.diagnostics import BatchDiagnosis
from app.services.batches.request import BatchRequest
from lachesis.wire.errors import LachesisError, QueueFull
from tests.properties import briefly_and_at_length, run_machine
from tests.services.batches.test_state_machine import pick
from tests.services.conftest import RUN, config, encoded
from tests.services.processes import A_YEAR_S, Processes

T = TypeVar("T")
MOST_ROUNDS = 60

sizes = st.integers(1, 7)
shares = st.sampled_from((None, None, None, 0.25, 0.5, 1.0))
environments = st.fixed_dictionaries(
    {
        "group_size": st.sampled_from((1, 2, 2, 3, 4, 5, 7)),
        "weight": st.sampled_from((1.0, 1.0, 3.0, 0.0)),
        "min_share": shares,
        "max_share": shares,
    }
)
settings_of_a_run = st.one_of(
    st.fixed_dictionaries({"batch_size": st.integers(2, 8)}),
    st.fixed_dictionaries({"max_staleness": st.sampled_from([None, 0, 1])}),
    st.fixed_dictionaries({"max_deliveries": st.integers(1, 2)}),
    st.fixed_dictionaries({"max_queued_groups": st.sampled_from([None, 2, 9])}),
)


class CreditsMachine(RuleBasedStateMachine):
    """One run, brought into any state; then everybody does what credits allow."""

    def __init__(self, processes: Processes) -> None:
        super().__init__()
        self._processes = processes
        self._numbers = count()
        self._joined: list[int] = []
        self._handles: list[tuple[str, str]] = []
        self._processes.wait(self._processes.redis.flushall())
        policy = Policy(max_staleness=0, max_deliveries=2, relax_after_s=A_YEAR_S)
        self._call(lambda services: services.runs.administration.create(RUN, config(4), policy))

    def _call(self, use: "Any") -> Any:
        return self._processes.call(use)

    def _view(self) -> RunView:
        view: RunView = self._call(lambda services: services.runs.administration.get(RUN))
        return view

    def _submit(self, size: int, environment: int | None, version: int | None) -> bool:
        group = encoded(size, 0)._replace(
            given_id=f"g{next(self._numbers)}", environment=environment, policy_version=version
        )
        while True:
            try:
                self._call(lambda services: services.groups.native.submit(RUN, [group]))
            except QueueFull:
                why = self._call(lambda services: services.batches.diagnostics.of(RUN)).not_ready
                is_taken = FullQueue(self._view()).takes((environment, size))
                if why is None or ("max_queued_groups = " in why.detail and not is_taken):
                    return False
                # A process looks seldom at what a batch needs: it takes the group within a second.
            else:
                return True

    @initialize(environments=st.lists(environments, min_size=1, max_size=3), changes=settings_of_a_run)
    def begin(self, environments: list[dict[str, Any]], changes: dict[str, Any]) -> None:
        for number, asked in enumerate(environments):
            self.join(number, asked)
        self.change(changes)

    @rule(number=st.integers(0, 2), asked=environments)
    def join(self, number: int, asked: dict[str, Any]) -> None:
        joined = self._call(
            lambda s: s.environments.registry.join(RUN, f"env{number}", asked, "one", change_settings=True)
        )
        if joined.environment not in self._joined:
            self._joined.append(joined.environment)
        self._processes.tick(RUN)

    @precondition(lambda self: len(self._joined) > 1)
    @rule(which=st.integers(0, 2))
    def leave(self, which: int) -> None:
        environment = pick(self._joined, which)
        self._joined.remove(environment)
        self._call(lambda services: services.environments.registry.leave(RUN, environment, None))

    @rule(size=sizes, which=st.none() | st.integers(0, 2), versioned=st.booleans(), times=st.integers(1, 3))
    def stray(self, size: int, which: int | None, versioned: bool, times: int) -> None:
        """Groups that no credits were asked for, of any size."""
        environment = None if which is None or not self._joined else pick(self._joined, which)
        version = self._view().policy_version if versioned else None
        for _ in range(times):
            self._submit(size, environment, version)

    @rule(times=st.integers(1, 2))
    def take(self, times: int) -> None:
        for _ in range(times):
            answer = self._call(lambda services: services.batches.dispatch.take(RUN, BatchRequest(lease_s=45)))
            if answer.batch is not None:
                self._handles.append((answer.batch.lease.batch_id, answer.batch.lease.lease_id))

    @precondition(lambda self: self._handles)
    @rule(which=st.integers(0, 2), well=st.sampled_from((True, True, False)))
    def end(self, which: int, well: bool) -> None:
        handle = pick(self._handles, which)
        self._handles.remove(handle)
        with contextlib.suppress(LachesisError):  # its lease ran out, or the run was rewound
            if well:
                self._call(lambda services: services.batches.leases.acknowledge(RUN, *handle))
            else:
                self._call(lambda services: services.batches.leases.give_back(RUN, *handle, None))

    @rule(by=st.sampled_from((1, 1, 1, 2, -1)))
    def set_version(self, by: int) -> None:
        version = max(0, self._view().policy_version + by)
        self._call(lambda services: services.runs.administration.set_policy_version(RUN, version))

    @rule(ago=st.integers(0, 2))
    def rewind(self, ago: int) -> None:
        step = max(0, self._view().step - ago)
        with contextlib.suppress(LachesisError):  # it does not go back so far
            self._call(lambda services: services.batches.retention.rewind(RUN, step))

    @rule(changes=settings_of_a_run)
    def change(self, changes: dict[str, Any]) -> None:
        self._call(lambda services: services.runs.administration.change(RUN, changes))

    @rule(steps=st.integers(1, 3), versions=st.booleans())
    def train(self, steps: int, versions: bool) -> None:
        """The usual course; some trainers set no version."""
        for _ in range(steps):
            before = len(self._handles)
            self.everybody_makes_what_credits_allow()
            if len(self._handles) > before:
                self.end(0, well=True)
            if versions:
                self.set_version(1)

    @rule(times=st.integers(1, 2))
    def lose_leases(self, times: int) -> None:
        """What was taken last becomes quarantined in the end."""
        for _ in range(times):
            self.take(1)
            self.pass_time()

    @rule()
    def pass_time(self) -> None:
        self._processes.pass_time(RUN, 50_000)
        self._processes.tick(RUN)

    @rule()
    def everybody_makes_what_credits_allow(self) -> None:
        refused = False
        for _ in range(MOST_ROUNDS):
            made = 0
            for environment in self._joined:
                beat = self._call(lambda s, e=environment: s.environments.allowances.heartbeat(RUN, e, "one", 0))
                size = self._view().environments[environment].group_size
                for _ in range(beat.allowance.groups):
                    if not self._submit(size, environment, beat.allowance.policy_version):
                        refused = True
                        break
                    made += 1
            if not made:
                break
        else:
            raise AssertionError("credits never end")
        reason: BatchDiagnosis = self._call(lambda services: services.batches.diagnostics.of(RUN))
        if reason.not_ready is not None:
            self._is_explained(self._view(), reason, refused=refused)
            return
        answer = self._call(lambda services: services.batches.dispatch.take(RUN, BatchRequest(lease_s=45)))
        assert answer.batch is not None, answer.not_ready
        self._handles.append((answer.batch.lease.batch_id, answer.batch.lease.lease_id))

    def _is_explained(self, view: RunView, reason: BatchDiagnosis, *, refused: bool) -> None:
        assert reason.not_ready is not None
        detail = reason.not_ready.detail
        leased = any(lease.state != "quarantined" for lease in view.leases)
        if refused:
            assert "max_queued_groups = " in detail, reason
        elif leased:
            assert view.totals.leased_groups > 0, "the trainer must act"
        elif reason.relaxes_s is not None:
            assert reason.relaxes_s > 0, "there is a batch after that"
        elif not self._joined:
            assert not view.environments or "no environment is alive" in detail
        elif could_be(view, self._joined):
            assert "PUT …/policy-version" in detail, reason
        else:
            assert "complete no batch" in detail, reason


def could_be(view: RunView, makers: Sequence[int]) -> bool:
    """Return whether what waits and any groups of live environments sum to a batch that keeps every maximum."""
    assert view.config is not None
    batch_size = view.config.batch_size
    waiting: defaultdict[int | None, list[int]] = defaultdict(list)
    for (environment, size), groups in view.lanes.items():
        waiting[environment] += [size] * groups
    for key in makers:
        size = view.environments[key].group_size
        waiting[key] += [size] * (batch_size // size)
    totals = {0}
    for key, groups in waiting.items():
        share = view.environments[key].max_share if key in makers and key is not None else None
        most = batch_size if share is None else int(batch_size * share)
        own = {0}
        for size in groups:
            own |= {total + size for total in own if total + size <= most}
        totals = {total + more for total in totals for more in own if total + more <= batch_size}
    return batch_size in totals


@briefly_and_at_length(("examples", "steps"), (15, 15), (100, 40))
def test_credits_lead_to_a_batch_or_to_who_must_act(processes: Processes, examples: int, steps: int) -> None:
    run_machine(lambda: CreditsMachine(processes), examples, steps)
