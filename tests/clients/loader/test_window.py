"""What to load next, and what makes a batch, without loading anything."""

from hypothesis import given
from hypothesis import strategies as st

from lachesis.loader._order import Order, Share
from lachesis.loader._window import Ticket, Window


@given(st.data())
def test_batches_are_right_in_whatever_order_loads_end(data: st.DataObject) -> None:
    """Never more under way than may be; every sample of an epoch once; no batch of two epochs."""
    samples, batch_size = data.draw(st.integers(1, 12)), data.draw(st.integers(1, 5))
    ordered, drop_last = data.draw(st.booleans()), data.draw(st.booleans())
    epochs, most = data.draw(st.integers(1, 3)), batch_size * data.draw(st.integers(1, 4))
    order = Order(samples, 1, Share.of(samples, 0, 1, equal=False))
    window: Window[int] = Window(
        order, batch_size=batch_size, most=most, ordered=ordered, drop_last=drop_last, epochs=epochs
    )
    expected = [order.samples(epoch).tolist() for epoch in range(epochs)]
    flying: list[Ticket] = []
    loaded = taken = 0
    batches: list[list[Ticket]] = []
    while True:
        begun = list(window.begin())
        loaded += len(begun)
        flying += begun
        assert loaded - taken <= most
        if window.is_done:
            break
        while not window.is_ready:
            ticket = flying.pop(data.draw(st.integers(0, len(flying) - 1)))
            window.land(ticket, ticket.sample)
        batch = window.take()
        assert all(ticket.sample == value for ticket, value in batch)
        batches.append([ticket for ticket, _ in batch])
        taken += len(batch)
        window.hand_out(batches[-1])
    whole = samples // batch_size * batch_size if drop_last else samples
    assert loaded == taken == whole * epochs
    for epoch in range(epochs):
        own = [batch for batch in batches if batch[0].epoch == epoch]
        assert all({ticket.epoch for ticket in batch} == {epoch} for batch in own)
        assert [len(batch) for batch in own[:-1]] == [batch_size] * (len(own) - 1)
        came = [ticket.sample for batch in own for ticket in batch]
        assert (came if ordered else sorted(came)) == (
            expected[epoch][:whole] if ordered else sorted(expected[epoch][:whole])
        )
    assert order.epoch == (epochs if whole else 0)
    assert not window._flying, "tickets of delivered samples are still kept"


def test_loads_of_the_next_epoch_are_begun_before_this_one_ends() -> None:
    order = Order(4, None, Share.of(4, 0, 1, equal=False))
    window: Window[int] = Window(order, batch_size=2, most=6, ordered=False, drop_last=False, epochs=2)
    tickets = list(window.begin())
    assert [(ticket.epoch, ticket.sample) for ticket in tickets] == [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1)]
    for ticket in tickets[3:]:  # the next epoch's are there first, and wait
        window.land(ticket, ticket.sample)
    assert not window.is_ready
    window.land(tickets[1], 1)
    assert window.is_ready
    assert [value for _, value in window.take()] == [3, 1]
