"""Whatever workers, trainers and operators do in whatever order, a replay buffer is what a plain model of it is.

Two API processes serve the calls in turn. One of them sends each command twice, as when answers get lost. After each
call the buffer is counted again from its keys (`replaying`). Time passes by moving the run's clock on in Redis,
so much at once that the time that calls take makes no difference. A run that sleeps is maintained only when it is due.
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import asdict
from typing import Any, TypeVar, get_args

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from app.api.deps import Services
from app.core.runs.settings import Policy
from app.services import resting
from app.services.replay.request import ReplaySample, ReplaySampleRequest
from app.store.groups.garbage import GarbageStore
from app.store.redis.keys import RunKeys
from app.store.replay.entries import EncodedFragment
from lachesis.wire.errors import LachesisError
from lachesis.wire.replay import RateLimiter, SamplingStrategy
from tests.properties import briefly_and_at_length, run_machine
from tests.services.accounting import keys_of_runs
from tests.services.conftest import RUN, config
from tests.services.curriculum.runs import Twice
from tests.services.processes import A_YEAR_S, Processes
from tests.services.replay.model import MAX_WAITING, ReplayModel
from tests.services.replay.moves import Books, books_of, fragment
from tests.services.replay.values import FRAGMENT_TTL_S, REORDER_WINDOW_S, Held, Limiter, Refused, Rules, Sent

T = TypeVar("T")
PASSES_S = 30
A_MOMENT_MS = 10  # between fragments, so that none is due at the same time as another
COUNTED = ("inserts", "samples", "sampled_chunks", "accepted_fragments", "gaps", "retired_chunks", "retired_uses")
COUNTED_BY_NAME = ("retired:", "refused:", "dropped:")
COUNTED_SAMPLES = ("acknowledged_samples", "given_back_samples", "expired_samples")
LIMITERS = (None, Limiter(1.0, -2.0, 4.0), Limiter(0.5, -3.0, 2.0), Limiter(2.0, -4.0, 6.0))
PRIORITIES = (None, 0.5, 1.0, 3.0)

which = st.sampled_from((0, 0, 0, 1, 2, 3))
"""Which of several: 0 is the latest."""
workers = st.sampled_from(("w0", "w0", "w1", "w2"))
leases_s = st.sampled_from((45, 105))
"""Between passes, as all times of the model are."""
steps_of_a_worker = st.tuples(
    st.sampled_from((0, 0, 0, 0, 0, 0, 1, 2, -1, -2, -3)),
    st.sampled_from((0, 0, 0, 0, -1, -2, 1)),
    st.sampled_from(PRIORITIES),
)
"""From the number after its last one, from the version in force, priority."""
changes = st.one_of(
    st.fixed_dictionaries({"max_chunks": st.sampled_from((3, 4, 6, 8))}),
    st.fixed_dictionaries({"max_bytes": st.sampled_from((None, 45, 90, 130))}),
    st.fixed_dictionaries({"eviction": st.sampled_from(("oldest", "most_used", "lowest_priority"))}),
    st.fixed_dictionaries({"max_staleness": st.sampled_from((None, 0, 1, 2))}),
    st.fixed_dictionaries({"max_age_s": st.sampled_from((None, 75, 135))}),
    st.fixed_dictionaries({"max_reuse": st.sampled_from((None, 1, 1, 2, 3))}),
    st.fixed_dictionaries({"min_size_to_sample": st.integers(1, 3)}),
    st.fixed_dictionaries({"limiter": st.sampled_from(LIMITERS)}),
)


def pick(several: Sequence[T], n: int) -> T:
    """Return the latest for 0, the previous one for 1."""
    return several[-1 - n % len(several)]


def encoded(sent: Sent) -> EncodedFragment:
    return fragment(
        sent.number,
        worker=sent.worker,
        session=sent.session,
        version=sent.version,
        priority=sent.priority,
        size=sent.size,
        mark=str(sent.contents),
    )


def configured(changes: dict[str, Any]) -> dict[str, Any]:
    """The same for the service."""
    limiter = changes.get("limiter")
    return changes | ({"limiter": RateLimiter(**asdict(limiter))} if limiter else {})


class ReplayMachine(RuleBasedStateMachine):
    """One buffer, done to in any order what can be done to it."""

    def __init__(self, processes: Processes) -> None:
        super().__init__()
        self._processes = processes
        self._handles: list[tuple[str, str]] = []
        self._sent: list[Sent] = []
        self._processes.wait(self._processes.redis.flushall())

    @initialize(fragments=st.sampled_from((2, 1, 3)), max_reuse=st.integers(1, 2), limiter=st.sampled_from(LIMITERS))
    def make(self, fragments: int, max_reuse: int, limiter: Limiter | None) -> None:
        least = 1 if limiter is None else int(limiter.samples_per_insert)
        rules = Rules(fragments_per_chunk=fragments, max_reuse=max(max_reuse, least), limiter=limiter)
        self._model = ReplayModel(rules)
        times = {"reorder_window_s": REORDER_WINDOW_S, "fragment_ttl_s": FRAGMENT_TTL_S, "max_waiting": MAX_WAITING}
        given = configured({name: getattr(rules, name) for name in rules.__slots__}) | times
        self._call(lambda s: s.runs.administration.create(RUN, config(1), Policy(dedup_window_s=A_YEAR_S)))
        self._call(lambda s: s.replay.buffers.configure(RUN, given))

    def teardown(self) -> None:
        if not hasattr(self, "_model"):
            return
        self._call(lambda s: GarbageStore(s.connection).delete_marked(RUN))
        books, redis = self._books(), self._processes.redis
        payloads = self._processes.wait(redis.keys(RunKeys(RUN).payload("*")))
        assert {key.decode().rsplit(":", 1)[1] for key in payloads} == books.named
        self._call(lambda s: s.runs.administration.delete(RUN))
        assert self._processes.wait(keys_of_runs(redis)) == []

    def _call(self, use: Callable[[Services], Awaitable[T]]) -> T:
        return self._processes.call(use)

    def _books(self) -> Books:
        return self._processes.wait(books_of(self._processes.redis, RUN))

    def _both(self, use: Callable[[Services], Awaitable[T]], predict: Callable[[], Any]) -> tuple[Any, T | None]:
        """Call the service and the model; if the model refuses, the service must, for the same reason."""
        try:
            predicted = predict()
        except Refused as refused:
            code = refused.code
        else:
            return predicted, self._call(use)
        with pytest.raises(LachesisError) as found:
            self._call(use)
        assert found.value.code == code
        return None, None

    # Workers

    @rule(worker=workers, steps=st.lists(steps_of_a_worker, min_size=1, max_size=4), contents=st.integers(0, 2))
    def send(self, worker: str, steps: list[tuple[int, int, float | None]], contents: int) -> None:
        """What goes on from what it sent, or almost: some numbers again, some left out, in disorder."""
        session = self._model.it.session
        mine = [sent.number for sent in self._sent if (sent.worker, sent.session) == (worker, session)]
        number, fragments = max(mine, default=-1), dict[int, Sent]()
        for by, version, priority in steps:
            number = max(0, number + 1 + by)
            sampled = max(0, self._model.version + version)
            fragments.setdefault(number, Sent(worker, session, number, sampled, priority, contents))
        self._send(list(fragments.values()))

    @rule(worker=workers, count=st.integers(2, 6), priority=st.sampled_from(PRIORITIES))
    def stream(self, worker: str, count: int, priority: float | None) -> None:
        """The usual course."""
        self.send(worker, [(0, 0, priority)] * count, 0)

    @rule(worker=workers, missing=st.integers(1, 2), passes=st.integers(1, 4))
    def lose(self, worker: str, missing: int, passes: int) -> None:
        """The usual mishap: some fragments are late, perhaps too late."""
        self.stream(worker, 2, None)
        self.send(worker, [(missing, 0, None)], 0)
        self.pass_time(passes)
        self.send(worker, [(-1 - missing, 0, None)], 0)

    @precondition(lambda self: self._sent)
    @rule(n=which, contents=st.sampled_from((0, 0, 1)), session=st.sampled_from((0, 0, 0, -1, 1)))
    def send_again(self, n: int, contents: int, session: int) -> None:
        """The same, or the same number with other contents or of another session."""
        sent = pick(self._sent, n)
        other = max(0, sent.session + session)
        self._send([Sent(sent.worker, other, sent.number, sent.version, None, (sent.contents + contents) % 3)])

    def _send(self, fragments: list[Sent]) -> None:
        self._advance(A_MOMENT_MS)
        self._model.now += A_MOMENT_MS / 1000
        sending = [encoded(sent) for sent in fragments]
        predicted, receipts = self._both(
            lambda s: s.replay.insertion.insert(RUN, sending),
            lambda: self._model.insert(fragments[0].worker, fragments),
        )
        if receipts is not None:
            assert [receipt.outcome for receipt in receipts] == predicted
            self._sent += fragments

    # Trainers

    @rule(
        wanted=st.sampled_from((1, 2, 2, 3, 5)),
        strategy=st.sampled_from(get_args(SamplingStrategy)),
        request=st.sampled_from((None, None, "r1", "r2")),
        lease_s=leases_s,
    )
    def sample(self, wanted: int, strategy: str, request: str | None, lease_s: int) -> None:
        asked = ReplaySampleRequest(
            num_chunks=wanted, sampling={"strategy": strategy}, request_id=request or "", lease_s=lease_s
        )
        predicted, found = self._both(
            lambda s: s.replay.samples.take(RUN, asked),
            lambda: self._model.sample(wanted, strategy, request, lease_s),
        )
        if found is None:
            return
        again, possible = predicted
        assert isinstance(found, ReplaySample) == bool(possible), found
        if not isinstance(found, ReplaySample):
            return
        size, model = self._model.it.rules.fragments_per_chunk, self._model
        taken = [record.chunk_id for record in found.records[::size]]
        for record in found.records:
            chunk = model.it.chunks[record.chunk_id]
            assert record.version == chunk.version
            if not again:
                assert (record.uses, record.staleness) == (chunk.uses, model.version - chunk.version)
        numbers = [part.number for chunk in taken for part in model.it.chunks[chunk].parts]
        assert [record.fragment.number for record in found.records] == numbers
        handle = (found.lease.batch_id, found.lease.lease_id)
        if again or strategy in ("fifo", "lifo"):
            assert taken == possible
        assert len(set(taken)) == len(taken)
        assert set(taken) <= set(possible)
        if again:
            assert handle == (again, model.it.samples[again].lease)
            return
        assert len(taken) == wanted
        assert handle[0] not in dict(self._handles)
        self._handles.append(handle)
        model.hand_out(handle[0], Held(taken, handle[1], request, model.now + lease_s))

    @rule(
        worker=workers,
        count=st.sampled_from((6, 3, 0)),
        wanted=st.integers(1, 3),
        strategy=st.sampled_from(("fifo", "uniform", "lifo")),
        outcome=st.sampled_from(("acknowledged", "given_back", None)),
    )
    def train(self, worker: str, count: int, wanted: int, strategy: str, outcome: str | None) -> None:
        """The usual course."""
        if count:
            self.stream(worker, count, None)
        before = len(self._handles)
        self.sample(wanted, strategy, None, 105)
        if outcome and len(self._handles) > before:
            self.redis_holds_what_the_model_says()
            self.end(0, outcome, times=2)

    @precondition(lambda self: self._handles)
    @rule(n=which, outcome=st.sampled_from(("acknowledged", "given_back")), times=st.integers(1, 2))
    def end(self, n: int, outcome: str, times: int) -> None:
        """Mostly one that is held."""
        sample, lease = pick(sorted(self._handles, key=lambda handle: handle[0] in self._model.it.samples), n)
        for _ in range(times):
            self._both(
                lambda s: (
                    s.replay.samples.acknowledge(RUN, sample, lease)
                    if outcome == "acknowledged"
                    else s.replay.samples.give_back(RUN, sample, lease, None)
                ),
                lambda: self._model.end(sample, lease, outcome),
            )

    @precondition(lambda self: self._handles)
    @rule(n=which, lease_s=leases_s)
    def extend(self, n: int, lease_s: int) -> None:
        handle = pick(self._handles, n)
        held, _ = self._both(
            lambda s: s.replay.samples.extend(RUN, *handle, lease_s), lambda: self._model.held(*handle)
        )
        if held is not None:
            held.until = self._model.now + lease_s

    @precondition(lambda self: self._model.arrivals)
    @rule(chunks=st.lists(which, min_size=1, max_size=3, unique=True), priority=st.sampled_from((0.0, 0.5, 2.0, 5.0)))
    def set_priorities(self, chunks: list[int], priority: float) -> None:
        priorities = {max(1, self._model.arrivals - n): priority + n for n in chunks}
        there = self._call(lambda s: s.replay.buffers.update_priorities(RUN, priorities))
        assert there == [chunk for chunk in priorities if chunk in self._model.it.chunks]
        self._model.prioritise(priorities)

    # Owners, and time

    @rule(by=st.sampled_from((1, 1, 1, 2, -1, -2)))
    def set_version(self, by: int) -> None:
        version = max(0, self._model.version + by)
        self._call(lambda s: s.runs.administration.set_policy_version(RUN, version))
        self._model.set_version(version)

    @rule(by=st.sampled_from((1, 1, 0, -1)), max_chunks=st.sampled_from((None, None, 3, 6)))
    def begin_session(self, by: int, max_chunks: int | None) -> None:
        """Begin a session, perhaps with less room for the chunks of the previous session."""
        session = self._model.it.session + by
        self._both(lambda s: s.replay.buffers.set_session(RUN, session), lambda: self._model.set_session(session))
        if max_chunks:
            self.change({"max_chunks": max_chunks})

    @rule(change=changes)
    def change(self, change: dict[str, Any]) -> None:
        self._both(lambda s: s.replay.buffers.configure(RUN, configured(change)), lambda: self._model.change(**change))

    @rule(by=st.sampled_from(("worker", "version", "session")), n=which)
    def delete(self, by: str, n: int) -> None:
        value = {"worker": f"w{n}", "version": max(0, self._model.version - n), "session": self._model.it.session - n}
        self._call(lambda s: s.replay.buffers.delete_chunks(RUN, **{by: value[by]}))
        self._model.delete(**{by: value[by]})

    @rule(do=st.sampled_from(("take", "restore", "both")), worker=workers, count=st.integers(2, 6))
    def go_back(self, do: str, worker: str, count: int) -> None:
        """To the last snapshot, and go on from there otherwise."""
        if do != "restore":
            self._call(lambda s: s.replay.snapshots.take(RUN, "a"))
            self._model.snapshot()
        self.train(worker, count, 1, "lifo", None)
        if do != "take":
            self._both(lambda s: s.replay.snapshots.restore(RUN, "a"), self._model.restore)

    @rule(times=st.integers(1, 4))
    def pass_time(self, times: int) -> None:
        for _ in range(times):
            self._advance(1000 * PASSES_S)
            passes = self._processes.maintain_if_due(RUN)
            self._model.pass_time(PASSES_S)
            for _ in range(passes - 1):
                self._model.pass_time(0)

    def _advance(self, ms: int) -> None:
        self._processes.pass_time(RUN, ms)

    # What is there

    @invariant()
    def redis_holds_what_the_model_says(self) -> None:
        books, it = self._books(), self._model.it
        found = {
            entry.chunk.chunk_id: (
                entry.place,
                (entry.chunk.worker, entry.chunk.session, entry.chunk.first, entry.chunk.fragments),
                (entry.chunk.versions.lowest, entry.chunk.priority, entry.chunk.uses, entry.chunk.reserved),
            )
            for entry in books.chunks.values()
        }
        assert found == {
            chunk.id: (
                chunk.place,
                (chunk.parts[0].worker, chunk.parts[0].session, chunk.parts[0].number, len(chunk.parts)),
                (chunk.version, chunk.priority, chunk.uses, chunk.held),
            )
            for chunk in it.chunks.values()
        }
        assert {
            name: (one.state.session, one.state.next_number, sorted(one.ids)) for name, one in books.workers.items()
        } == {name: (one.session, one.next, sorted(one.unchunked)) for name, one in it.workers.items()}
        keys_of = {sample: [int(key) for key in keys] for sample, keys in books.samples.items()}
        assert keys_of == {sample: held.chunks for sample, held in it.samples.items()}
        assert {name: n for name, n in books.totals.items() if n and is_counted(name)} == {
            name: n for name, n in it.counts.items() if n
        }
        self._every_payload_can_be_read(books)

    @invariant()
    def the_state_tells_it(self) -> None:
        state, model = self._call(lambda s: s.replay.buffers.state(RUN)), self._model
        limiter = model.it.rules.limiter
        assert state.limiter_error == (None if limiter is None else model.error(limiter))
        assert state.position.size == len(model.sampleable())

    def _every_payload_can_be_read(self, books: Books) -> None:
        ids = {(entry.worker, entry.session, entry.number): name for name, entry in books.fragments.items()}
        parts = [part for chunk in self._model.it.chunks.values() for part in chunk.parts]
        parts += [sent for worker in self._model.it.workers.values() for sent in worker.unchunked.values()]
        asked = [ids[part.worker, part.session, part.number] for part in parts]
        found = self._call(lambda s: s.replay.buffers.fragments(RUN, asked))
        assert [payload for _, payload in found] == [encoded(part).payload for part in parts]


def is_counted(name: str) -> bool:
    return name in COUNTED + COUNTED_SAMPLES or name.startswith(COUNTED_BY_NAME)


@pytest.fixture
def processes(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Processes]:
    monkeypatch.setattr(resting, "_CALM_TICKS", 1)
    started = Processes(redis_url, Twice)
    yield started
    started.close()


@briefly_and_at_length(("examples", "steps"), (10, 25), (85, 50))
def test_a_replay_buffer_is_what_a_plain_model_of_it_is(processes: Processes, examples: int, steps: int) -> None:
    run_machine(lambda: ReplayMachine(processes), examples, steps)
