"""Decide which bodies get memory, which wait, and which are evicted.

A body holds memory as its bytes arrive, until it is answered. Claims are served in the order in which bodies first
claimed. Two bodies are *spared*: the oldest, and the oldest that is not slow. They get what they want, do not count
against the limits, and are never evicted. So the oldest can always finish, and no body waits for a slow one.

One sender has memory for a limited number of bodies. Its further bodies wait.
A sender is an address. The bodies of one account, such as a token, share higher limits, from whatever address they
come: otherwise one token with many addresses could hold all memory.

A body is *slow* if it takes longer than the patience to send `PACE_BYTES`. A body that waits, or has arrived, is not
slow. Slow bodies stay while there is room. If another body waits, the slowest are evicted first, and only if that makes
room. Bodies that were spared before, and are slow now, may exceed the limits: then the slowest are evicted, too, if
any body waits. Otherwise a sender could hold all memory with new bodies, each spared for a time.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

PACE_BYTES = 1024 * 1024
"""The bytes that a body must send within the patience."""


Owner = tuple[str, str]
"""A sender or an account, with that word before its name."""


@dataclass(frozen=True, slots=True)
class BodyClaim:
    """A body that holds or wants memory.

    Attributes:
        sender: Who sends it: bodies of one sender share a limit.
        held_bytes: The memory that it holds.
        wanted_bytes: The memory that it waits for, in all. None if it does not wait.
        arriving_s: How long its last `PACE_BYTES` have been arriving. 0 if it waits, or has arrived.
        account: Whose credentials came with it: bodies of one account share a limit, too. Empty for none.
    """

    sender: str
    held_bytes: int
    wanted_bytes: int | None
    arriving_s: float
    account: str = ""


@dataclass(frozen=True, slots=True)
class MemoryLimits:
    """The limits of the bodies that are not spared.

    Attributes:
        total_bytes: The most that all of them hold.
        sender_bytes: The most that those of one sender hold.
        patience_s: The longest time for `PACE_BYTES` while others wait.
        sender_bodies: The most bodies of one sender that hold anything.
        account_bytes, account_bodies: The same for one account.
    """

    total_bytes: int
    sender_bytes: int
    patience_s: float
    sender_bodies: int
    account_bytes: int
    account_bodies: int

    def of(self, sender: str, account: str) -> list[tuple[Owner, int, int]]:
        """Return who shares limits with a body: each owner, with the most bytes and the most bodies."""
        owners: list[tuple[Owner, int, int]] = [(("sender", sender), self.sender_bytes, self.sender_bodies)]
        if account:
            owners.append((("account", account), self.account_bytes, self.account_bodies))
        return owners


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Positions of the claims that are granted, and of the bodies that are evicted for them."""

    granted: tuple[int, ...]
    evicted: tuple[int, ...]


def plan_memory(claims: Sequence[BodyClaim], limits: MemoryLimits) -> MemoryPlan:
    """Grant claims, oldest first, and evict slow bodies for them.

    A claim that exceeds a limit of its sender or account waits, and delays no other one. A claim that exceeds the total
    also keeps all younger claims waiting: otherwise it could wait forever.

    Args:
        claims: All bodies, in the order in which they first claimed.
        limits: The limits.
    """
    held = _HeldMemory(claims, limits)
    if any(claim.wanted_bytes is not None for claim in claims):
        held.evict_excess()
    granted: list[int] = []
    for place, claim in enumerate(claims):
        if claim.wanted_bytes is None:
            continue
        if place not in held.spared:
            for_owners = held.evictions_for_owners(place)
            if for_owners is None:
                continue
            for_total = held.evictions_for_total(place, for_owners)
            if for_total is None:
                break
            held.grant(place, for_owners + for_total)
        granted.append(place)
    return MemoryPlan(tuple(granted), tuple(held.evicted))


class _HeldMemory:
    """What bodies and their owners hold while claims are granted, without the spared bodies.

    Attributes:
        spared: Positions of the bodies that limits leave alone.
        evicted: Positions of the bodies that were evicted, in order.
    """

    def __init__(self, claims: Sequence[BodyClaim], limits: MemoryLimits) -> None:
        self._claims, self._limits = claims, limits
        self._owners = [limits.of(claim.sender, claim.account) for claim in claims]
        self.spared = spared_of(claims, limits)
        self.evicted: list[int] = []
        counted = [place for place in range(len(claims)) if place not in self.spared]
        slow = [place for place in counted if claims[place].arriving_s > limits.patience_s]
        self._slow = sorted(slow, key=lambda place: -claims[place].arriving_s)
        self._total_bytes = 0
        self._held_bytes: Counter[Owner] = Counter()
        self._bodies: Counter[Owner] = Counter()
        for place in counted:
            self._add(place, claims[place].held_bytes, int(claims[place].held_bytes > 0))

    def evict_excess(self) -> None:
        """Evict slow bodies, the slowest first, while they and others hold more than a limit."""
        for place in list(self._slow):
            exceeds_own = any(self._held_bytes[owner] > most for owner, most, _ in self._owners[place])
            if exceeds_own or self._total_bytes > self._limits.total_bytes:
                self._evict(place)

    def evictions_for_owners(self, place: int) -> list[int] | None:
        """Return the slow bodies that must go for the limits of a claim's owners; None if it still exceeds one."""
        going: list[int] = []
        more_bytes, more_bodies = self._more(place)
        for owner, most_bytes, most_bodies in self._owners[place]:
            own = [other for other in self._slow if any(owner == of for of, _, _ in self._owners[other])]
            freed = [other for other in own if other in going]
            excess_bytes = self._held_bytes[owner] - self._bytes_of(freed) + more_bytes - most_bytes
            excess_bodies = more_bodies and self._bodies[owner] - len(freed) + 1 - most_bodies
            left = [other for other in own if other not in freed]
            more_going = _slowest(left, self._claims, excess_bytes, excess_bodies)
            if more_going is None:
                return None
            going += more_going
        return going

    def evictions_for_total(self, place: int, going: Sequence[int]) -> list[int] | None:
        """Return the bodies that must go besides ``going`` for the total limit; None if the claim still exceeds it."""
        more_bytes, _ = self._more(place)
        excess_bytes = self._total_bytes - self._bytes_of(going) + more_bytes - self._limits.total_bytes
        return _slowest([other for other in self._slow if other not in going], self._claims, excess_bytes)

    def grant(self, place: int, going: Sequence[int]) -> None:
        """Evict the bodies ``going``, and count what the claim gets."""
        for other in going:
            self._evict(other)
        self._add(place, *self._more(place))

    def _more(self, place: int) -> tuple[int, int]:
        """Return the bytes and the bodies that a claim adds."""
        claim = self._claims[place]
        return (claim.wanted_bytes or 0) - claim.held_bytes, int(claim.held_bytes == 0)

    def _evict(self, place: int) -> None:
        self._slow.remove(place)
        self.evicted.append(place)
        self._add(place, -self._claims[place].held_bytes, -1)

    def _add(self, place: int, more_bytes: int, more_bodies: int) -> None:
        self._total_bytes += more_bytes
        for owner, _, _ in self._owners[place]:
            self._held_bytes[owner] += more_bytes
            self._bodies[owner] += more_bodies

    def _bytes_of(self, places: Sequence[int]) -> int:
        return sum(self._claims[place].held_bytes for place in places)


def spared_of(claims: Sequence[BodyClaim], limits: MemoryLimits) -> set[int]:
    """Return the positions of the oldest body, and of the oldest that is not slow."""
    prompt = (place for place, claim in enumerate(claims) if claim.arriving_s <= limits.patience_s)
    return {0, next(prompt, 0)}


def _slowest(
    slow: Sequence[int], claims: Sequence[BodyClaim], excess_bytes: int, excess_bodies: int = 0
) -> list[int] | None:
    """Return the fewest slowest bodies whose bytes and number cover the excess; None if all together do not."""
    going: list[int] = []
    for place in slow:
        if excess_bytes <= 0 and excess_bodies <= 0:
            break
        going.append(place)
        excess_bytes -= claims[place].held_bytes
        excess_bodies -= 1
    return going if excess_bytes <= 0 and excess_bodies <= 0 else None
