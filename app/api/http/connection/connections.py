"""Count the open connections of this process, and limit them: in all, for each address, token and run."""

from collections import Counter
from collections.abc import Iterator, MutableMapping
from typing import Any, Literal

from app import telemetry
from app.services.access.credentials import GivenCredentials
from lachesis.wire.errors import TooManyConnections

STATE_KEY = "connections"
"""Where the lifespan of the application puts the counts, for the protocol."""

OPEN_CONNECTION = "lachesis.open_connection"
"""The key of a scope for the connection of a request."""

Exceeded = Literal["total", "address", "token", "run"]


class OpenConnections:
    """The open connections of one process.

    Args:
        most: The largest number of connections.
        most_of_address: The largest number from one address.
        most_of_account: The largest number with one token, from all addresses.

    Attributes:
        refusals: Why a connection over a limit is refused.
    """

    def __init__(self, most: int, most_of_address: int, most_of_account: int) -> None:
        self.most = most
        self.most_of_address = most_of_address
        self.most_of_account = most_of_account
        self.refusals: dict[Exceeded, str] = {
            "total": f"the process has {most} open connections, the smaller of LACHESIS_MAX_CONNECTIONS and what its "
            "limit of open files allows",
            "address": "this address has LACHESIS_MAX_CONNECTIONS_PER_ADDRESS open connections to the process",
            "token": "the sender has LACHESIS_MAX_CONNECTIONS_PER_TOKEN open connections to the process, from all "
            "addresses",
            "run": "the run has max_connections open connections to the process",
        }
        self._open = 0
        self._of_address: Counter[str] = Counter()
        self._of_account: Counter[str] = Counter()
        self._of_run: Counter[str] = Counter()
        self._refused: dict[Exceeded, int] = dict.fromkeys(self.refusals, 0)

    def enter(self, address: str) -> "OpenConnection | Exceeded":
        """Count a new connection.

        Returns:
            The connection; or the limit that it would exceed. Then it is not counted as open.
        """
        exceeded: Exceeded
        if self._open >= self.most:
            exceeded = "total"
        elif self._of_address[address] >= self.most_of_address:
            exceeded = "address"
        else:
            self._open += 1
            self._of_address[address] += 1
            return OpenConnection(self, address)
        self._refused[exceeded] += 1
        return exceeded

    def of_account(self, account: str) -> int:
        """Return how many connections belong to an account."""
        return self._of_account[account]

    def of_run(self, run: str) -> int:
        """Return how many connections belong to a run."""
        return self._of_run[run]

    def samples(self) -> Iterator[telemetry.Sample]:
        """Yield what the metrics say of connections."""
        yield telemetry.CONNECTIONS, (), self._open
        for exceeded, count in self._refused.items():
            yield telemetry.CONNECTIONS_REFUSED, (exceeded,), count

    def _move_account(self, before: str | None, account: str) -> None:
        """Let a connection belong to another account."""
        self._move(self._of_account, before, account, self.most_of_account, "token")

    def _move_run(self, before: str | None, run: str, most: int | None) -> None:
        """Let a connection belong to another run."""
        self._move(self._of_run, before, run, most, "run")

    def _move(self, counts: Counter[str], before: str | None, name: str, most: int | None, limit: Exceeded) -> None:
        if most is not None and counts[name] >= most:
            self._refused[limit] += 1
            raise TooManyConnections(self.refusals[limit])
        _count_down(counts, before)
        counts[name] += 1

    def _leave(self, address: str, account: str | None, run: str | None) -> None:
        self._open -= 1
        _count_down(self._of_address, address)
        _count_down(self._of_account, account)
        _count_down(self._of_run, run)


class OpenConnection:
    """A connection that counts as open. It belongs to the account and the run of the last requests that had room.

    Attributes:
        run: The run that it belongs to; None before its first request in a run.
        credentials: The last Authorization header that was read on it, and what the header says; None before the first.
    """

    __slots__ = ("_account", "_address", "_all", "credentials", "run")

    def __init__(self, everything: OpenConnections, address: str) -> None:
        self._all = everything
        self._address = address
        self._account: str | None = None
        self.run: str | None = None
        self.credentials: tuple[bytes, GivenCredentials] | None = None

    def belong_to(self, account: str) -> None:
        """Note with whose credentials a request came over this connection.

        Raises:
            TooManyConnections: The account has too many others.
        """
        if account != self._account:
            self._all._move_account(self._account, account)
            self._account = account

    def enter_run(self, run: str, most: int | None) -> None:
        """Note in which run a request is that came over this connection.

        Args:
            run: Another run than before.
            most: How many connections the run may have; None for no limit.

        Raises:
            TooManyConnections: The run has too many others.
        """
        self._all._move_run(self.run, run, most)
        self.run = run

    def leave(self) -> None:
        """Note that the connection has ended."""
        self._all._leave(self._address, self._account, self.run)


def count_connection(scope: MutableMapping[str, Any], account: str | None) -> None:
    """Count the connection of a request for its sender. A sender without an identity is not counted.

    Raises:
        TooManyConnections: The account has too many others.
    """
    connection: OpenConnection | None = scope.get(OPEN_CONNECTION)
    if connection is not None and account is not None:
        connection.belong_to(account)


def _count_down(counts: Counter[str], name: str | None) -> None:
    if name is not None:
        counts[name] -= 1
        if not counts[name]:
            del counts[name]
