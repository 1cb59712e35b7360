"""One worker's fragments against a plain model that keeps them all in a dict."""

from dataclasses import dataclass, field, replace
from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st

from app.core.replay.buffer import Fragment, Versions, versions_drop_reason
from app.core.replay.chunking import (
    GAPS_REMEMBERED,
    ChunkingStep,
    WorkerProgress,
    arrive,
    change_session,
    due_ms,
    pass_time,
)
from lachesis.wire.replay import ReplaySettings
from lachesis.wire.states import Arrival, ChunkDropReason, FragmentDropReason
from tests.properties import examples

PAIRS = ReplaySettings(fragments_per_chunk=2, reorder_window_s=1.0, fragment_ttl_s=10.0)


def fragment(number: int, at_ms: int = 0, checksum: str = "", session: int = 1, version: int = 3) -> Fragment:
    versions = Versions(version, float(version), version)
    return Fragment("w", session, number, versions, 100, checksum or f"sum {number}", at_ms)


def sent(*fragments: Fragment, settings: ReplaySettings = PAIRS) -> tuple[list[Arrival], ChunkingStep]:
    """Send fragments. Return the outcome of each, and all steps as one."""
    arrivals, whole = [], ChunkingStep(WorkerProgress(session=1))
    for each in fragments:
        arrival, step = arrive(whole.state, each, 3, settings)
        arrivals.append(arrival)
        whole = joined(whole, step)
    return arrivals, whole


def joined(one: ChunkingStep, other: ChunkingStep) -> ChunkingStep:
    return ChunkingStep(other.state, one.chunks + other.chunks, one.dropped + other.dropped, one.gaps + other.gaps)


def numbers(step: ChunkingStep) -> list[list[int]]:
    return [[each.number for each in chunk] for chunk in step.chunks]


def test_within_the_window_any_order_is_as_good_as_the_right_one() -> None:
    for order in permutations(range(5)):
        arrivals, step = sent(*(fragment(number, at_ms=999 * (place == 4)) for place, number in enumerate(order)))
        assert set(arrivals) == {"stored"}
        assert numbers(step) == [[0, 1], [2, 3]]
        assert [each.number for each in step.state.open_part] == [4]
        assert (step.dropped, step.gaps) == ((), ())


def test_a_repetition_is_known_by_its_number_and_checksum_wherever_it_is() -> None:
    """In a chunk, in the open part, behind a gap."""
    _, step = sent(*(fragment(number) for number in (0, 1, 2, 5)))
    chunked = {0: "sum 0", 1: "sum 1"}
    for number in (0, 1, 2, 5):
        assert arrive(step.state, fragment(number, 7), 3, PAIRS, chunked) == (
            "repeated",
            ChunkingStep(replace(step.state, heard_ms=7)),
        )
        arrival, other = arrive(step.state, fragment(number, checksum="other"), 3, PAIRS, chunked)
        assert (arrival, other) == ("conflict", ChunkingStep(step.state))
    assert arrive(step.state, fragment(0), 3, PAIRS)[0] == "repeated"


def test_a_gap_is_waited_for_as_long_as_the_window_and_then_counted() -> None:
    _, step = sent(fragment(0), fragment(1), fragment(2), fragment(4, at_ms=100), fragment(5, at_ms=900))
    assert due_ms(step.state, PAIRS) == 1100
    assert pass_time(step.state, 3, PAIRS, 1099) == ChunkingStep(step.state)
    late = pass_time(step.state, 3, PAIRS, 1100)
    assert numbers(late) == [[4, 5]]
    assert late.gaps == ((3, 3),)
    assert late.dropped == ((fragment(2), "gap"),)
    assert arrive(late.state, fragment(3, 1200), 3, PAIRS)[0] == "late"
    assert arrive(late.state, fragment(6, 1200), 3, PAIRS)[0] == "stored"


def test_what_arrives_too_late_is_late_even_if_nobody_looked_in_time() -> None:
    """Time passes before a fragment is taken in, so it hangs on no timer."""
    _, step = sent(fragment(0), fragment(2, at_ms=0))
    assert arrive(step.state, fragment(1, at_ms=999), 3, PAIRS)[0] == "stored"
    arrival, late = arrive(step.state, fragment(1, at_ms=1000), 3, PAIRS)
    assert (arrival, late.gaps) == ("late", ((1, 1),))


def test_too_much_behind_a_gap_is_not_waited_with() -> None:
    settings = PAIRS.model_copy(update={"max_waiting": 3})
    _, step = sent(*(fragment(number) for number in (1, 2, 3, 5)), settings=settings)
    assert (numbers(step), step.gaps) == ([[1, 2]], ((0, 0),))
    assert [each.number for each in step.state.waiting] == [5]


def test_a_number_far_ahead_costs_no_more_than_its_gap() -> None:
    _, step = sent(fragment(0), fragment(10**15), fragment(10**15 + 1, at_ms=2000))
    assert step.gaps == ((1, 10**15 - 1),)
    assert numbers(step) == [[10**15, 10**15 + 1]]


def test_what_a_silent_worker_left_expires() -> None:
    patient = PAIRS.model_copy(update={"reorder_window_s": 60})
    _, step = sent(fragment(0), fragment(2, at_ms=500), fragment(5, at_ms=500), settings=patient)
    assert due_ms(step.state, patient) == 10_500
    assert pass_time(step.state, 3, patient, 10_499) == ChunkingStep(step.state)
    gone = pass_time(step.state, 3, patient, 10_500)
    assert gone.dropped == (
        (fragment(0), "gap"),
        (fragment(2, 500), "gap"),
        (fragment(5, 500), "expired"),
    )
    assert (gone.state.open_part, gone.state.waiting, gone.state.next_number) == ((), (), 6)
    assert due_ms(gone.state, PAIRS) is None
    assert pass_time(gone.state, 3, PAIRS, 10**9) == ChunkingStep(gone.state)
    assert arrive(gone.state, fragment(6, 20_000), 3, PAIRS)[0] == "stored"


def test_what_is_a_chunk_since_chunks_are_smaller_does_not_expire() -> None:
    fours = PAIRS.model_copy(update={"fragments_per_chunk": 4})
    _, exact = sent(fragment(0), fragment(1), settings=fours)
    _, step = sent(fragment(0), fragment(1), fragment(2), settings=fours)
    assert due_ms(exact.state, PAIRS) == due_ms(step.state, PAIRS) == 0
    assert numbers(pass_time(exact.state, 3, PAIRS, 0)) == [[0, 1]]
    gone = pass_time(step.state, 3, PAIRS, 10_000)
    assert numbers(gone) == [[0, 1]]
    assert gone.dropped == ((fragment(2), "expired"),)


def test_what_is_fresh_is_not_lost_behind_a_stale_head() -> None:
    settings = PAIRS.model_copy(update={"max_staleness": 1})
    _, step = sent(fragment(0), settings=settings)
    arrival, later = arrive(step.state, fragment(1, version=5), 5, settings)
    assert (arrival, later.chunks, later.dropped) == ("stored", (), ((fragment(0), "stale"),))
    assert numbers(arrive(later.state, fragment(2, version=5), 5, settings)[1]) == [[1, 2]]


def test_a_chunk_begins_behind_a_fragment_that_no_chunk_can_hold() -> None:
    """Those before it that are in no chunk go with it, as they are no chunk without it."""
    settings = PAIRS.model_copy(update={"max_staleness": 1, "fragments_per_chunk": 3})
    parts = [fragment(number, version=2 if number == 4 else 5) for number in (1, 2, 3, 4, 5, 6, 7)]
    step = ChunkingStep(WorkerProgress(session=1))
    for each in (*parts, fragment(0, version=5)):
        step = joined(step, arrive(step.state, each, 5, settings)[1])
    assert numbers(step) == [[0, 1, 2], [5, 6, 7]]
    assert [(each.number, why) for each, why in step.dropped] == [
        (3, "gap"),
        (4, "stale"),
    ]


def test_a_new_session_begins_at_number_0() -> None:
    _, step = sent(fragment(0), fragment(1), fragment(2), fragment(4))
    new = change_session(step.state, 2)
    assert new.dropped == ((fragment(2), "old_session"), (fragment(4), "old_session"))
    arrival, begun = arrive(step.state, fragment(0, session=2), 3, PAIRS)
    assert (arrival, begun.dropped, begun.state.session, begun.state.next_number) == ("stored", new.dropped, 2, 1)
    assert arrive(begun.state, fragment(5, session=1), 3, PAIRS) == ("old_session", ChunkingStep(begun.state))


def test_only_the_last_few_gaps_are_remembered() -> None:
    settings = PAIRS.model_copy(update={"reorder_window_s": 0})
    state = WorkerProgress(session=1)
    for turn in range(GAPS_REMEMBERED + 1):
        state = arrive(state, fragment(2 * turn + 1, turn), 3, settings)[1].state
        state = pass_time(state, 3, settings, turn).state
    assert len(state.given_up) == GAPS_REMEMBERED
    assert arrive(state, fragment(2, 99), 3, settings)[0] == "late"
    assert arrive(state, fragment(0, 99), 3, settings)[0] == "repeated"


@dataclass
class Plain:
    """The same worker, plainly: what is here by number, and where the open part starts."""

    settings: ReplaySettings
    session: int = 1
    version: int = 3
    start: int = 0
    heard_ms: int = 0
    here: dict[int, Fragment] = field(default_factory=dict)
    seen: dict[int, str] = field(default_factory=dict)
    chunks: list[list[int]] = field(default_factory=list)
    dropped: list[tuple[Fragment, FragmentDropReason | ChunkDropReason]] = field(default_factory=list)
    gaps: list[tuple[int, int]] = field(default_factory=list)

    @property
    def edge(self) -> int:
        number = self.start
        while number in self.here:
            number += 1
        return number

    @property
    def behind(self) -> list[Fragment]:
        return [each for number, each in self.here.items() if number > self.edge]

    def drop(self, upto: int, reason: FragmentDropReason | ChunkDropReason) -> None:
        for number in sorted(self.here):
            if number < upto:
                self.dropped.append((self.here.pop(number), reason))

    def give_up(self) -> None:
        gap = self.edge, min(each.number for each in self.behind) - 1
        self.drop(gap[0], "gap")
        self.gaps.append(gap)
        self.start = gap[1] + 1
        self.cut()

    def cut(self) -> None:
        size = self.settings.fragments_per_chunk
        while self.start < self.edge:
            head = range(self.start, min(self.start + size, self.edge))
            faults = [versions_drop_reason(self.here[number].versions, self.version, self.settings) for number in head]
            first = next((place for place, fault in enumerate(faults) if fault is not None), None)
            if first is not None:
                fault = faults[first]
                assert fault is not None
                self.drop(self.start + first, "gap")
                self.start += first + 1
                self.drop(self.start, fault)
            elif len(head) == size:
                self.chunks.append([self.here.pop(number).number for number in head])
                self.start += size
            else:
                break

    def wait(self, clock_ms: int) -> None:
        if self.edge - self.start >= self.settings.fragments_per_chunk:
            self.cut()
        silent = clock_ms - self.heard_ms >= self.settings.fragment_ttl_s * 1000
        while self.behind and (
            silent or clock_ms - min(each.accepted_ms for each in self.behind) >= self.settings.reorder_window_s * 1000
        ):
            self.give_up()
        if silent:
            self.start, open_until = self.edge, self.edge
            self.drop(open_until, "expired")

    def take(self, new: Fragment) -> Arrival:
        if new.session < self.session:
            return "old_session"
        if new.session > self.session:
            self.begin(new.session)
        else:
            self.wait(new.accepted_ms)
        self.heard_ms = new.accepted_ms
        if new.number in self.seen:
            return "repeated" if self.seen[new.number] == new.checksum else "conflict"
        if new.number < self.edge:
            return "late"
        self.seen[new.number] = new.checksum
        self.here[new.number] = new
        self.cut()
        while len(self.behind) > self.settings.max_waiting:
            self.give_up()
        return "stored"

    def begin(self, session: int) -> None:
        self.drop(1 << 60, "old_session")
        self.session, self.start, self.seen = session, 0, {}


POLICIES = st.builds(
    ReplaySettings,
    fragments_per_chunk=st.integers(1, 4),
    reorder_window_s=st.sampled_from([0.0, 0.5, 1.0, 100.0]),
    max_waiting=st.integers(1, 5),
    fragment_ttl_s=st.sampled_from([1.0, 3.0, 1000.0]),
    max_staleness=st.sampled_from([None, 0, 1, 2]),
)
EVENTS = st.lists(
    st.tuples(
        st.sampled_from(
            ["fragment"] * 12 + ["conflict", "old", "time", "time", "session", "version", "version", "size"]
        ),
        st.integers(0, 6) | st.integers(0, 14),
        st.sampled_from([0, 0, 0, 100, 600, 1500, 5000]),
    ),
    max_size=40,
)


@examples(600)
@given(POLICIES, EVENTS)
def test_it_does_what_the_plain_model_does(settings: ReplaySettings, events: list[tuple[str, int, int]]) -> None:
    """And every fragment that was stored is in one place: a chunk, the open part, waiting, dropped for a reason."""
    plain, whole, clock_ms, session = Plain(settings), ChunkingStep(WorkerProgress(session=1)), 0, 1
    stored, offset = list[Fragment](), 0
    for kind, number, passed_ms in events:
        clock_ms += passed_ms
        due = due_ms(whole.state, settings)
        if kind == "time":
            step = pass_time(whole.state, plain.version, settings, clock_ms)
            assert (step != ChunkingStep(whole.state)) == (due is not None and due <= clock_ms)
            plain.wait(clock_ms)
        elif kind == "session":
            session, offset = session + 1, 0
            step = change_session(whole.state, session)
            plain.begin(session)
        elif kind == "version":
            plain.version = max(1, plain.version + number - 2)
            continue
        elif kind == "size":
            plain.settings = settings = settings.model_copy(update={"fragments_per_chunk": 1 + number % 4})
            continue
        else:
            offset = max(offset, whole.state.next_number - 4)  # numbers go on as chunks are formed
            new = fragment(offset + number, clock_ms, "other" * (kind == "conflict"), session - (kind == "old"))
            new = replace(new, versions=fragment(0, version=max(0, plain.version - number % 3)).versions)
            arrival, step = arrive(whole.state, new, plain.version, settings, plain.seen)
            assert arrival is plain.take(new)
            stored += [new] * (arrival == "stored")
        whole = joined(whole, step)
        state = whole.state
        assert (numbers(whole), list(whole.dropped), list(whole.gaps)) == (plain.chunks, plain.dropped, plain.gaps)
        assert (state.session, state.next_number, state.heard_ms) == (plain.session, plain.edge, plain.heard_ms)
        in_chunks = [each for chunk in whole.chunks for each in chunk]
        places = [*in_chunks, *state.open_part, *state.waiting, *(each for each, _ in whole.dropped)]
        assert sorted(places, key=key) == sorted(stored, key=key)
        assert len(state.waiting) <= settings.max_waiting
        assert len(state.open_part) < settings.fragments_per_chunk or kind == "old"


def key(each: Fragment) -> tuple[int, int]:
    return each.session, each.number
