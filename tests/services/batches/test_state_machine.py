"""Whatever trainers, environments and operators do in whatever order, a run answers as a plain model of it does.

Two API processes serve the calls in turn. After each call the run is counted again from its keys (`accounting`). Time
passes by moving the run's clock on in Redis.
"""

import json
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from itertools import count
from typing import Any, Literal, TypeVar

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from app.api.codec.group_blob import decode_blobs
from app.api.codec.group_json import decode_native_json
from app.api.deps import Services
from app.core.access.queue_limits import LimitedAccount
from app.core.groups.annotations import Rows
from app.core.groups.listing import parse_list_position
from app.core.runs.settings import Policy
from app.services.batches import retrieval
from app.services.batches.request import BatchRequest
from app.services.groups import listing
from app.store.groups.encoded_group import EncodedGroup
from app.store.groups.entries import Outcome, group_name
from app.store.redis.keys import RunKeys
from lachesis.wire.columns import unpack
from lachesis.wire.criteria import GroupCriteria
from lachesis.wire.errors import GroupGone, LachesisError, QueueFull
from lachesis.wire.limits import QueueLimitSettings
from tests.properties import briefly_and_at_length, run_machine
from tests.services.accounting import books_of, keys_of_runs
from tests.services.conftest import RUN, config, join
from tests.services.processes import A_YEAR_S, Processes
from tests.services.run_bodies import as_blobs, as_json
from tests.services.run_model import Group, Refused, RunModel, is_within

T = TypeVar("T")
PASSES_S = 600
STATUS = {None: "accepted", "stale": "stale", "future_version": "refused", "reward_range": "reward_range"}
BATCH_SIZE = 4
COUNTED = LimitedAccount("0" * 12, "token", None, QueueLimitSettings(max_queued_groups=2**53 - 1))
"""An account that never reaches its limit: `books_of` checks what counts for it."""

LOOKED_AT = 7
"""Most groups that a page of a list looks at, in this test."""

SEEN = ("state", "environment", "size", "version", "staleness", "score", "reason", "batch", "step")
POLICY = Policy(
    max_deliveries=2,
    relax_after_s=A_YEAR_S,
    keep_batches=16,
    keep_bytes=1024**3,
    dedup_window_s=A_YEAR_S,
    history_retention_s=A_YEAR_S,
)

some = st.sampled_from((0, 0, 1, 1, 2, 3, 4, 6, 9))
"""Which of several: 0 is the latest."""
requests = st.sampled_from((None, None, "r1", "r2"))
SHORT_S, LONG_S = 900, 2100
"""Leases that end between passes of time: the time that the calls of an example take does not matter."""

leases_s = st.sampled_from((SHORT_S, LONG_S))
filters_of_groups = st.tuples(st.sampled_from([None, None, "none", 0, 1]), st.none() | st.integers(1, 3))
"""Environment and size."""
new_groups = st.tuples(st.integers(1, 3), st.none() | some, st.none() | st.integers(-3, 1), st.integers(0, 99))
"""Size, environment, policy version from the one in force on, contents."""
queries = st.fixed_dictionaries(
    {},
    optional={
        "state": st.sampled_from(["queued", "buffered", "leased", "kept", "delivered", "dropped"]),
        "environment": st.sampled_from(["none", 0, 1, "env0"]),
        "item": st.sampled_from(["item0", "item2"]),
        "score_min": st.sampled_from([30.0, 60.0]),
        "score_max": st.sampled_from([20.0, 60.0]),
        "step_min": st.integers(0, 3),
        "step_max": st.integers(0, 3),
        "staleness_min": st.integers(0, 2),
        "dropped": st.sampled_from(["deleted", "stale", "reward_range"]),
    },
)
settings_of_a_run = st.one_of(
    st.fixed_dictionaries({"batch_size": st.integers(2, 5)}),
    st.fixed_dictionaries({"max_staleness": st.sampled_from([None, 0, 1, 3])}),
    st.fixed_dictionaries({"max_deliveries": st.integers(1, 3)}),
    st.fixed_dictionaries({"keep_batches": st.integers(0, 4)}),
    st.fixed_dictionaries({"max_queued_groups": st.sampled_from([None, 6, 12])}),
    st.fixed_dictionaries({"intake_paused": st.sampled_from([True, False, False])}),
    st.fixed_dictionaries({"serving_paused": st.sampled_from([True, False, False])}),
    st.fixed_dictionaries({"future_versions": st.sampled_from(["restamp", "refuse"])}),
    st.fixed_dictionaries({"filter_reward_range": st.sampled_from([None, {"below": 60.0}, {"below": 20.0}])}),
)


def pick(several: Sequence[T], which: int) -> T:
    """Return the latest for 0, the previous one for 1."""
    return several[-1 - which % len(several)]


class RunMachine(RuleBasedStateMachine):
    """One run, done to in any order what can be done to it."""

    def __init__(self, processes: Processes) -> None:
        super().__init__()
        self._processes = processes
        self._model = RunModel(BATCH_SIZE)
        self._encoded: dict[str, EncodedGroup] = {}
        self._handles: list[tuple[str, str]] = []
        self._numbers = count()
        self._processes.wait(self._processes.redis.flushall())
        self._call(lambda services: services.runs.administration.create(RUN, config(BATCH_SIZE), POLICY))

    def teardown(self) -> None:
        self._call(lambda services: services.runs.administration.delete(RUN))
        assert self._processes.wait(keys_of_runs(self._processes.redis)) == []

    def _call(self, use: Callable[[Services], Coroutine[Any, Any, T]]) -> T:
        return self._processes.call(use)

    def _both(
        self, use: Callable[[Services], Coroutine[Any, Any, T]], predict: Callable[[], Any]
    ) -> tuple[Any, T | None]:
        """Call the service and the model; if the model refuses, the service must, for the same reason."""
        try:
            predicted = predict()
        except Refused as refused:
            code, why = refused.code, refused.why
        else:
            return predicted, self._call(use)
        with pytest.raises(LachesisError, match=why or None) as found:
            self._call(use)
        assert found.value.code == code
        return None, None

    # Environments

    @rule(new=st.lists(new_groups, min_size=1, max_size=4), again=st.lists(some, max_size=2), binary=st.booleans())
    def submit(self, new: list[tuple[int, int | None, int | None, int]], again: list[int], binary: bool) -> None:
        groups = [self._new_group(*about) for about in new]
        body = as_blobs(groups) if binary else as_json(groups)
        encoded = decode_blobs(body) if binary else decode_native_json(body)
        self._encoded |= {group.id: one for group, one in zip(groups, encoded, strict=True)}
        known = list(self._model.known.values())
        groups += {group.id: group for group, _ in (pick(known, n) for n in again if known)}.values()
        everything = [self._encoded[group.id] for group in groups]
        predicted, receipts = self._submitted(groups, everything)
        if receipts is not None:
            assert [(STATUS[receipt.dropped], receipt.repeated) for receipt in receipts] == predicted

    def _submitted(self, groups: list[Group], encoded: list[EncodedGroup]) -> tuple[Any, list[Outcome] | None]:
        def submit(services: Services) -> Coroutine[Any, Any, list[Outcome]]:
            return services.groups.native.submit(RUN, encoded, None, COUNTED)

        if not self._model.may_exceed_limit(groups):
            return self._both(submit, lambda: self._model.submit(groups))
        try:
            receipts = self._call(submit)
        except QueueFull:
            return None, None
        return self._model.submit(groups, limited=False), receipts

    def _new_group(self, size: int, environment: int | None, version: int | None, contents: int) -> Group:
        joined = sorted(self._model.shares)
        return Group(
            f"g{next(self._numbers)}",
            size,
            None if environment is None or not joined else pick(joined, environment),
            None if version is None else max(0, self._model.version + version),
            contents,
        )

    @precondition(lambda self: self._model.known)
    @rule(which=some)
    def submit_other_contents_under_a_known_id(self, which: int) -> None:
        known, _ = pick(list(self._model.known.values()), which)
        other = replace(known, contents=known.contents + 1)
        (encoded,) = decode_native_json(as_json([other]))
        self._both(lambda s: s.groups.native.submit(RUN, [encoded]), lambda: self._model.submit([other]))

    @rule(number=st.integers(0, 1), share=st.sampled_from((None, None, 0.0, 0.25, 0.5)))
    def come_and_go(self, number: int, share: float | None) -> None:
        if share is not None:
            self.join(number, share)
        elif self._model.shares:
            self.leave(number)

    def join(self, number: int, share: float) -> None:
        name = f"env{number}"
        joined = self._call(lambda services: join(services, name, group_size=1, min_share=share, change_settings=True))
        self._model.shares[joined.environment] = share
        self._model.left.discard(joined.environment)
        self._tick()

    def leave(self, which: int) -> None:
        environment = pick(sorted(self._model.shares), which)
        self._call(lambda services: services.environments.registry.leave(RUN, environment, None))
        self._model.left.add(environment)

    @precondition(lambda self: self._model.known)
    @rule(which=some)
    def follow(self, which: int) -> None:
        self._follow(pick(list(self._model.known.values()), which)[0])

    def _follow(self, group: Group) -> None:
        life = self._call(lambda services: services.groups.histories.of(RUN, group.id)).group
        where = {"leased": f"leased {life.batch_id}", "delivered": "gone", "dropped": "gone"}
        assert where.get(life.state, life.state) == self._model.where(group)

    # Trainers

    @rule(request=requests, lease_s=leases_s)
    def take(self, request: str | None, lease_s: int) -> None:
        promised = self._call(lambda services: services.batches.diagnostics.of(RUN)).not_ready is None
        expected = self._model.take(request, lease_s)
        assert request or promised == (not isinstance(expected, str)), "explain promises what a take gives, no more"
        batch_request = BatchRequest(request or "", lease_s, "trainer")
        view = self._call(lambda services: services.runs.atropos.view(RUN))
        deadlines_ms = {lease.lease_id: lease.deadline_ms for lease in view.leases}
        answer = self._call(lambda services: services.batches.dispatch.take(RUN, batch_request))
        if isinstance(expected, str):
            assert answer.not_ready is not None
            assert expected in ("minimum", answer.not_ready.blocker)
            return
        assert answer.batch is not None, expected
        lease, groups = answer.batch.lease, expected.groups
        assert [unpack(payload).metadata["id"] for payload in answer.batch.payloads] == [group.id for group in groups]
        assert list(answer.batch.payloads) == [self._encoded[group.id].payload for group in groups]
        assert [group.policy_version for group in answer.batch.groups] == [group.version for group in groups]
        assert (lease.step, lease.delivery_count, lease.relaxed) == (expected.step, expected.delivery_count, False)
        asked_ms = answer.batch.view.clock_ms + 1000 * lease_s
        assert lease.deadline_ms == max(asked_ms, deadlines_ms.get(lease.lease_id, 0)), "a repetition shortens no lease"
        if expected.lease is None:
            assert lease.lease_id not in {lease_id for _, lease_id in self._handles}
            self._handles.append((lease.batch_id, lease.lease_id))
        assert expected.id or lease.batch_id not in {batch_id for batch_id, _ in self._handles[:-1]}
        assert (lease.batch_id, lease.lease_id) == (expected.id or lease.batch_id, expected.lease or lease.lease_id)
        expected.id, expected.lease = lease.batch_id, lease.lease_id

    @rule(batches=st.integers(1, 3))
    def train(self, batches: int) -> None:
        """The usual course."""
        for _ in range(batches):
            self.submit([(2, None, None, 0), (1, None, None, 0), (1, None, None, 0)], [], binary=True)
            self.take(None, SHORT_S)
            if self._handles:
                self.acknowledge(0, times=1)

    @rule(times=st.integers(1, 3), request=requests, batch_size=st.none() | st.integers(2, 5))
    def lose_leases(self, times: int, request: str | None, batch_size: int | None) -> None:
        """The usual mishap."""
        for _ in range(times):
            self.take(request, SHORT_S)
            self.pass_time(2)
        if batch_size is not None:
            self.change({"batch_size": batch_size})
        self.take(None, LONG_S)

    @rule(steps=st.integers(0, 3), given_back=st.booleans())
    def crash(self, steps: int, given_back: bool) -> None:
        """The other one."""
        self.rewind(steps)
        self.take(None, LONG_S)
        if self._handles and given_back:
            self.give_back(0, by_operator=False, times=1)

    @precondition(lambda self: self._handles)
    @rule(which=some, times=st.integers(1, 2))
    def acknowledge(self, which: int, times: int) -> None:
        handle = pick(self._handles, which)
        for _ in range(times):
            self._both(lambda s: s.batches.leases.acknowledge(RUN, *handle), lambda: self._model.acknowledge(*handle))

    @precondition(lambda self: self._handles)
    @rule(which=some, by_operator=st.booleans(), times=st.integers(1, 2))
    def give_back(self, which: int, by_operator: bool, times: int) -> None:
        batch_id, lease_id = pick(self._handles, which)
        lease = None if by_operator else lease_id
        for _ in range(times):
            self._both(
                lambda s: s.batches.leases.give_back(RUN, batch_id, lease, None),
                lambda: self._model.give_back(batch_id, lease),
            )

    @precondition(lambda self: self._handles)
    @rule(which=some, lease_s=leases_s)
    def extend(self, which: int, lease_s: int) -> None:
        handle = pick(self._handles, which)
        self._both(
            lambda s: s.batches.leases.extend(RUN, *handle, lease_s), lambda: self._model.extend(*handle, lease_s)
        )

    @precondition(lambda self: self._handles)
    @rule(which=some)
    def discard(self, which: int) -> None:
        batch_id, _ = pick(self._handles, which)
        self._both(lambda s: s.batches.leases.discard(RUN, batch_id), lambda: self._model.discard(batch_id))

    @rule(by=st.sampled_from((-3, -1, 1, 1, 1, 2)))
    def set_policy_version(self, by: int) -> None:
        version = max(0, self._model.version + by)
        dropped = self._call(lambda services: services.runs.administration.set_policy_version(RUN, version))
        assert dropped == self._model.set_version(version)

    @rule(ago=st.integers(-1, 6))
    def checkpoint(self, ago: int) -> None:
        step = self._model.step - ago
        predicted, view = self._both(
            lambda s: s.batches.retention.checkpoint(RUN, step), lambda: self._model.checkpoint(step)
        )
        if view is not None:
            assert (view.kept.unkept_step, view.kept.batches) == predicted
            assert self._model.checkpointed is not None
            assert view.kept.checkpoint == self._model.checkpointed[0]

    @rule(ago=st.integers(-1, 6))
    def rewind(self, ago: int) -> None:
        step, request_id = self._model.step - ago, str(next(self._numbers))
        predicted, rewound = self._both(
            lambda s: s.runs.administration.rewind(RUN, step, request_id), lambda: self._model.rewind(step)
        )
        if rewound is not None:
            again = [lease.batch_id for lease in rewound.batches]
            left_out = [lease.batch_id for lease in rewound.quarantined]
            assert (again, left_out, rewound.policy_version) == predicted
            now = self._call(lambda services: services.runs.administration.get(RUN))
            assert now.policy_version == predicted[2]
            assert self._call(lambda s: s.runs.administration.rewind(RUN, step, request_id)) == rewound

    # Operators, and time

    @rule(wanted=queries, limit=st.integers(1, 5))
    def list_groups(self, wanted: dict[str, Any], limit: int) -> None:
        """All pages together are a plain filter over all groups that the run knows."""
        environment = wanted.pop("environment", None)
        if environment == "env0" and not self._environments_named("env0"):
            return
        criteria, rows, after = GroupCriteria(environment=environment, **wanted), [], None
        while True:
            page = self._call(
                lambda s, after=after: s.groups.listing.page(RUN, criteria, limit=limit, most=LOOKED_AT, after=after)
            )
            assert len(page.groups) <= limit
            assert page.looked_at <= LOOKED_AT
            rows += page.groups
            if page.position is None:
                break
            after = parse_list_position(str(page.position))
        item = wanted.pop("item", None)
        expected = {}
        for group, _ in self._model.known.values():
            if (seen := self._seen(group))["state"] and self._is_wanted(seen, environment, **wanted):
                expected[group_name(group.id) if seen["state"] in ("delivered", "dropped") else group.id] = seen
        assert len({row.shown_id for row in rows}) == len(rows), "a group is listed once"
        if item is None:
            assert {row.shown_id for row in rows} == expected.keys()
        else:  # contents of groups that have left may be there for a while
            held = {name for name, seen in expected.items() if seen["score"] is not None and seen["item"] == item}
            assert held <= {row.shown_id for row in rows} <= expected.keys()
        for row in rows:
            seen = expected[row.shown_id]
            found = (row.state, row.environment, row.size, row.policy_version, row.staleness, row.mean_score)
            found += (row.reason, row.batch_id, row.step)
            assert found == tuple(seen[name] for name in SEEN)
            assert row.item in ({item} if item else {seen["item"], None if seen["score"] is None else seen["item"]})

    @precondition(lambda self: self._model.known)
    @rule(which=some, name=st.sampled_from(["entropy", "mismatch"]))
    def annotate(self, which: int, name: str) -> None:
        """The books count annotations again after each move of their groups."""
        group, _ = pick(list(self._model.known.values()), which)
        given = {name: Rows(np.arange(group.tokens) / 8, np.array(group.lengths))}
        is_kept = any(group in batch.groups for batch in self._model.kept) or self._model.where(group) != "gone"
        if is_kept:
            assert name in self._call(lambda services: services.groups.annotations.put(RUN, group.id, given))
            contents = self._call(lambda services: services.groups.contents.of(RUN, group.id))
            assert contents.payload == self._encoded[group.id].payload
        else:
            with pytest.raises(GroupGone):
                self._call(lambda services: services.groups.annotations.put(RUN, group.id, given))

    def _environments_named(self, name: str) -> set[int]:
        view = self._call(lambda services: services.runs.administration.with_counts(RUN))
        return {one.environment for one in view.environments.values() if one.name == name}

    def _seen(self, group: Group) -> dict[str, Any]:
        """Describe a group by what the model and its history say."""
        life = self._call(lambda services: services.groups.histories.of(RUN, group.id)).group
        state = "kept" if any(group in batch.groups for batch in self._model.kept) else life.state
        version, held = life.policy_version, state not in ("delivered", "dropped")
        waits = held and state != "kept"
        values = (state, group.environment, group.size, version)
        values += (max(0, self._model.version - version) if waits and version is not None else None,)
        values += (float(group.contents) if held else None, life.reason, life.batch_id, life.step)
        return dict(zip(SEEN, values, strict=True)) | {"item": group.item}

    def _is_wanted(
        self,
        seen: dict[str, Any],
        environment: int | str | None,
        state: str | None = None,
        dropped: str | None = None,
        **bounds: float | None,
    ) -> bool:
        owners = self._environments_named("env0") if environment == "env0" else {environment}
        return (
            (environment is None or ("none" if seen["environment"] is None else seen["environment"]) in owners)
            and (state is None or seen["state"] == state)
            and (dropped is None or seen["reason"] == dropped)
            and all(is_within(seen, name, bound) for name, bound in bounds.items())
        )

    @precondition(lambda self: self._model.known)
    @rule(which=some)
    def delete_group(self, which: int) -> None:
        group, _ = pick(list(self._model.known.values()), which)
        self._both(lambda s: s.groups.deletion.delete(RUN, group.id), lambda: self._model.delete(group))

    @rule(wanted=filters_of_groups, ago=st.none() | st.integers(0, 2))
    def delete_groups(self, wanted: tuple[int | Literal["none"] | None, int | None], ago: int | None) -> None:
        environment, size = wanted
        older_than = None if ago is None else max(0, self._model.version - ago)
        if (environment, size, older_than) == (None, None, None):
            return
        criteria = GroupCriteria(environment=environment, size=size, older_than_version=older_than)
        predicted = self._model.delete_matching(environment, size, older_than)
        deleted, position = 0, None
        while True:
            done = self._call(
                lambda s, after=position: s.groups.deletion.delete_matching(RUN, criteria, limit=2, after=after)
            )
            deleted, position = deleted + done.groups, done.position
            if position is None:
                break
        assert deleted == predicted

    @rule(changes=settings_of_a_run)
    def change(self, changes: dict[str, Any]) -> None:
        self._call(lambda services: services.runs.administration.change(RUN, changes))
        self._model.change(**changes)

    @rule(times=st.integers(1, 4))
    def pass_time(self, times: int) -> None:
        for _ in range(times):
            self._processes.pass_time(RUN, 1000 * PASSES_S)
            self._model.now += PASSES_S
            self._tick()

    def _tick(self) -> None:
        self._processes.tick(RUN)
        self._model.tick()

    @invariant()
    def the_books_agree(self) -> None:
        books = self._processes.wait(books_of(self._processes.redis, RUN))
        model = self._model
        assert len(books["queued"]) == len(model.queue)
        assert len(books["kept"]) == sum(len(batch.groups) for batch in model.kept)
        assert (books["delivered"], books["dropped"]) == (model.delivered, model.dropped)
        assert {state: tokens for state, tokens in books["tokens"].items() if tokens} == model.ledger()
        if model.queue:
            self._follow(model.queue[0])
        view = self._call(lambda services: services.runs.administration.with_counts(RUN))
        assert {"sequences": view.starvation.sequences, **view.starvation.dropped} == {
            "sequences": 0,
            **model.starvation,
        }
        leases = view.leases
        assert [(one.batch_id, one.step, one.state, one.delivery_count) for one in leases] == [
            (batch.id, batch.step, batch.state, batch.delivery_count) for batch in model.batches
        ]
        manifests = self._processes.wait(self._processes.redis.hgetall(RunKeys(RUN).leases))
        assert [[group["given_id"] for group in json.loads(manifests[one.batch_id.encode()])] for one in leases] == [
            [group.id for group in batch.groups] for batch in model.batches
        ]


@briefly_and_at_length(("examples", "steps"), (8, 25), (60, 50))
def test_a_run_does_what_a_plain_model_of_it_does(
    processes: Processes, examples: int, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retrieval, "MANY_LANES", 2)  # so that it chooses which of them to read
    monkeypatch.setattr(listing, "MOST_LANES", 2)
    monkeypatch.setattr(listing, "_AT_ONCE", 3)
    run_machine(lambda: RunMachine(processes), examples, steps)
