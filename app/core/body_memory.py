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
    spared = spared_of(claims, limits)
    counted = [place for place in range(len(claims)) if place not in spared]
    total_bytes = sum(claims[place].held_bytes for place in counted)
    owners = [limits.of(claim.sender, claim.account) for claim in claims]
    held: Counter[Owner] = Counter()
    bodies: Counter[Owner] = Counter()
    for place in counted:
        for owner, _, _ in owners[place]:
            held[owner] += claims[place].held_bytes
            bodies[owner] += claims[place].held_bytes > 0
    slow = [place for place in counted if claims[place].arriving_s > limits.patience_s]
    slow.sort(key=lambda place: -claims[place].arriving_s)
    granted: list[int] = []
    evicted: list[int] = []

    def evict(other: int) -> None:
        nonlocal total_bytes
        slow.remove(other)
        evicted.append(other)
        total_bytes -= claims[other].held_bytes
        for owner, _, _ in owners[other]:
            held[owner] -= claims[other].held_bytes
            bodies[owner] -= 1

    def making_room(place: int, more_bytes: int, more_bodies: int) -> list[int] | None:
        """Return the slow bodies that go so that a claim exceeds no limit of its owners; None if it still would."""
        going: list[int] = []
        for owner, most_bytes, most_bodies in owners[place]:
            own = [other for other in slow if any(owner == of for of, _, _ in owners[other])]
            freed = [other for other in own if other in going]
            freed_bytes = sum(claims[other].held_bytes for other in freed)
            excess_bytes = held[owner] - freed_bytes + more_bytes - most_bytes
            excess_bodies = more_bodies and bodies[owner] - len(freed) + 1 - most_bodies
            more_going = _slowest([other for other in own if other not in freed], claims, excess_bytes, excess_bodies)
            if more_going is None:
                return None
            going += more_going
        return going

    for place in list(slow) if any(claim.wanted_bytes is not None for claim in claims) else ():
        if total_bytes > limits.total_bytes or any(held[owner] > most for owner, most, _ in owners[place]):
            evict(place)
    for place, claim in enumerate(claims):
        if claim.wanted_bytes is None:
            continue
        granted.append(place)
        if place in spared:
            continue
        more_bytes = claim.wanted_bytes - claim.held_bytes
        more_bodies = int(claim.held_bytes == 0)
        going = making_room(place, more_bytes, more_bodies)
        if going is None:
            granted.pop()
            continue
        others = [other for other in slow if other not in going]
        freed_bytes = sum(claims[other].held_bytes for other in going)
        more_going = _slowest(others, claims, total_bytes - freed_bytes + more_bytes - limits.total_bytes)
        if more_going is None:
            granted.pop()
            break
        for other in going + more_going:
            evict(other)
        for owner, _, _ in owners[place]:
            bodies[owner] += more_bodies
            held[owner] += more_bytes
        total_bytes += more_bytes
    return MemoryPlan(tuple(granted), tuple(evicted))


def spared_of(claims: Sequence[BodyClaim], limits: MemoryLimits) -> set[int]:
    """Return the positions of the oldest body, and of the oldest that is not slow."""
    prompt = (place for place, claim in enumerate(claims) if claim.arriving_s <= limits.patience_s)
    return {0, next(prompt, 0)}


def _slowest(
    slow: Sequence[int], claims: Sequence[BodyClaim], excess_bytes: int, excess_bodies: int = 0
) -> list[int] | None:
    """Return the fewest of the slowest bodies that are and hold so much together; None if all of them are too few."""
    going: list[int] = []
    for place in slow:
        if excess_bytes <= 0 and excess_bodies <= 0:
            break
        going.append(place)
        excess_bytes -= claims[place].held_bytes
        excess_bodies -= 1
    return going if excess_bytes <= 0 and excess_bodies <= 0 else None
