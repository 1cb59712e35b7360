"""The buffer of an environment."""

from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from lachesis._transport.protocol import REQUEST_BYTES
from lachesis.environments.outbox import MOST_GROUPS_SENT, Outbox, Parcel
from lachesis.errors import LachesisError
from tests.properties import examples

NO = LachesisError("no")


def parcel(name: int, size: int = 10) -> Parcel:
    return Parcel(str(name), bytes(size))


def test_there_is_room_until_it_is_full() -> None:
    outbox = Outbox(2, 25)
    outbox.put(parcel(0))
    assert outbox.has_room(15)
    assert not outbox.has_room(16)
    outbox.put(parcel(1))
    assert not outbox.has_room(1)


def test_a_group_larger_than_the_buffer_has_room_when_it_is_alone() -> None:
    outbox = Outbox(2, 25)
    assert outbox.has_room(1000)
    outbox.put(parcel(0, 1000))
    assert not outbox.has_room(0)


def test_a_request_is_kept_to_a_size_and_a_number() -> None:
    outbox = Outbox(1000, 2**40)
    for name in range(100):
        outbox.put(parcel(name))
    assert len(outbox.next()) == MOST_GROUPS_SENT
    huge = Outbox(1000, 2**40)
    huge.put(parcel(0, REQUEST_BYTES + 1))
    huge.put(parcel(1))
    assert [one.group for one in huge.next()] == ["0"]


def test_a_refused_request_is_sent_by_group_so_only_bad_ones_fail() -> None:
    outbox = Outbox(100, 1000)
    for name in range(4):
        outbox.put(parcel(name))
    outbox.refused(outbox.next(), NO)
    arrived = []
    while outbox:
        (one,) = outbox.next()
        if one.group == "2":
            outbox.refused([one], NO)
        else:
            outbox.arrived([one])
            arrived.append(one.group)
    assert arrived == ["0", "1", "3"]
    assert outbox.failures() == {"2": NO}
    assert outbox.failures() == {}


def test_after_those_groups_were_tried_alone_requests_hold_many_again() -> None:
    outbox = Outbox(100, 1000)
    for name in range(5):
        outbox.put(parcel(name))
        if name == 1:
            outbox.refused(outbox.next(), NO)
    for _ in range(2):
        outbox.arrived(outbox.next())
    assert [one.group for one in outbox.next()] == ["2", "3", "4"]


def test_groups_of_different_recorded_spans_go_in_different_requests() -> None:
    outbox, spans = Outbox(100, 1000), [f"00-{'1' * 32}-{number:016x}" for number in range(2)]
    traces = ["", f"{spans[0]}-00", f"{spans[1]}-00", f"{spans[0]}-01", f"{spans[0]}-01", f"{spans[1]}-01", ""]
    for name, trace in enumerate(traces):
        outbox.put(Parcel(str(name), b"", {"traceparent": trace} if trace else {}))
    sent = []
    while len(outbox):
        sent.append("".join(one.group for one in outbox.next()))
        outbox.arrived(outbox.next())
    assert sent == ["012", "34", "5", "6"]


@given(st.lists(st.sampled_from(["put", "arrive", "refuse", "give up"]), max_size=60))
@examples(300)
def test_every_group_arrives_fails_or_waits_in_the_order_they_came(deeds: list[str]) -> None:
    outbox, waiting, failed = Outbox(8, 100), deque[str](), set[str]()
    for name, deed in enumerate(deeds):
        if deed == "put" and outbox.has_room(10):
            outbox.put(parcel(name))
            waiting.append(str(name))
        elif deed == "give up":
            outbox.give_up(NO)
            failed |= set(waiting)
            waiting.clear()
        elif deed != "put" and waiting:
            sent = outbox.next()
            assert [one.group for one in sent] == list(waiting)[: len(sent)]
            if deed == "arrive" or len(sent) == 1:
                (outbox.arrived if deed == "arrive" else lambda one: outbox.refused(one, NO))(sent)
                gone = {waiting.popleft() for _ in sent}
                failed |= gone if deed == "refuse" else set()
            else:
                outbox.refused(sent, NO)
        assert len(outbox) == len(waiting)
    assert set(outbox.failures()) == failed
