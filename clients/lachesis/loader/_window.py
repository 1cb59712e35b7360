"""The running and ended loads of a loop: which load to begin next, and which samples make the next batch."""

from collections import defaultdict, deque
from collections.abc import Iterator
from itertools import count
from typing import Generic, NamedTuple, TypeVar

from lachesis.loader._order import Order

T = TypeVar("T")


class Ticket(NamedTuple):
    """A sample to load: its epoch, its place in the epoch, and its index in the source."""

    epoch: int
    place: int
    sample: int


class Window(Generic[T]):
    """Begin loads in the order of the samples, and form batches of the loads that have ended. No batch spans epochs."""

    def __init__(
        self, order: Order, *, batch_size: int, most: int, ordered: bool, drop_last: bool, epochs: int | None
    ) -> None:
        """Begin at the position of the order.

        Args:
            order: The order of samples. It advances when batches are handed out.
            batch_size: Samples of a batch.
            most: Most loads that have begun and are not in a batch yet.
            ordered: Whether batches have the samples in order, or as they arrive.
            drop_last: Whether to leave out a batch that an epoch cannot fill. Its samples are not loaded.
            epochs: Epochs to load. None means no limit.
        """
        self._order = order
        self._batch_size = batch_size
        self._most = most
        self._ordered = ordered
        self._drop_last = drop_last
        self._left: dict[int, int] = {}  # samples that are not in a batch yet, of each epoch that has begun
        self._tickets = self._all_tickets(
            count(order.epoch) if epochs is None else range(order.epoch, order.epoch + epochs)
        )
        self._outstanding = 0
        self._flying: deque[Ticket] = deque()  # if ordered: tickets whose sample is not in the line yet
        self._landed: dict[Ticket, T] = {}  # if ordered: samples that wait for an earlier one
        self._line: defaultdict[int, deque[tuple[Ticket, T]]] = defaultdict(deque)  # samples for batches, by epoch

    def begin(self) -> Iterator[Ticket]:
        """Yield the tickets to load now. Call it before each wait for a batch."""
        while self._outstanding < self._most and (ticket := next(self._tickets, None)) is not None:
            self._outstanding += 1
            if self._ordered:
                self._flying.append(ticket)
            yield ticket

    @property
    def is_done(self) -> bool:
        """Whether there is no further batch."""
        return not self._outstanding

    def land(self, ticket: Ticket, value: T) -> None:
        """Store the result of a load, or its error."""
        if not self._ordered:
            self._line[ticket.epoch].append((ticket, value))
            return
        self._landed[ticket] = value
        while self._flying and self._flying[0] in self._landed:
            ticket = self._flying.popleft()
            self._line[ticket.epoch].append((ticket, self._landed.pop(ticket)))

    @property
    def is_ready(self) -> bool:
        """Whether all samples of the next batch have landed."""
        epoch = self._order.epoch
        return len(self._line[epoch]) >= min(self._batch_size, self._left[epoch])

    def take(self) -> list[tuple[Ticket, T]]:
        """Return the samples of the next batch, and remove them. The batch must be ready."""
        epoch = self._order.epoch
        line = self._line[epoch]
        return [line.popleft() for _ in range(min(self._batch_size, self._left[epoch]))]

    def hand_out(self, tickets: list[Ticket]) -> None:
        """Mark the samples of a batch as handed out."""
        epoch = self._order.epoch
        self._outstanding -= len(tickets)
        self._left[epoch] -= len(tickets)
        self._order.hand_out(ticket.place for ticket in tickets)
        if not self._left[epoch]:
            del self._left[epoch], self._line[epoch]
            self._order.go_to(epoch + 1)

    def _all_tickets(self, epochs: Iterator[int] | range) -> Iterator[Ticket]:
        for epoch in epochs:
            if len(self._order) < (self._batch_size if self._drop_last else 1):
                return  # no epoch has a batch
            places = self._order.places_left(epoch)
            if self._drop_last:
                places = places[: len(places) // self._batch_size * self._batch_size]
            if len(places):
                self._left[epoch] = len(places)
                samples = self._order.samples(epoch)
                yield from (Ticket(epoch, place, int(samples[place])) for place in places.tolist())
            elif epoch == self._order.epoch:  # resumed with another batch size: the rest of it fills no batch
                self._order.go_to(epoch + 1)
