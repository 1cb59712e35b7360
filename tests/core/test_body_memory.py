"""Who gets memory, who waits and who is evicted: examples, and the properties that each plan has."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from app.core.body_memory import BodyClaim, MemoryLimits, MemoryPlan, plan_memory

LIMITS = MemoryLimits(
    total_bytes=10, sender_bytes=6, patience_s=2.0, sender_bodies=9, account_bytes=8, account_bodies=9
)


def holds(held: int, arriving_s: float = 0.0, sender: str = "a") -> BodyClaim:
    return BodyClaim(sender, held, None, arriving_s)


def of_account(claim: BodyClaim, account: str) -> BodyClaim:
    return replace(claim, account=account)


def wants(wanted: int, held: int = 0, sender: str = "b") -> BodyClaim:
    return BodyClaim(sender, held, wanted, 0.0)


def test_a_claim_that_fits_is_granted_and_nobody_goes() -> None:
    assert plan_memory([holds(9), holds(5, 99.0), wants(5)], LIMITS) == MemoryPlan((2,), ())


def test_the_slowest_bodies_are_evicted_for_a_waiting_one_as_needed() -> None:
    slow = [holds(3, 30.0), holds(2, 5.0, "c"), holds(3, 20.0, "c"), holds(2, 10.0)]
    assert plan_memory([holds(50), *slow, wants(2)], LIMITS) == MemoryPlan((5,), (1,))
    assert plan_memory([holds(50), *slow, wants(5)], LIMITS) == MemoryPlan((5,), (1, 3))


def test_nobody_goes_without_a_place() -> None:
    claims = [holds(50), holds(5, 30.0), holds(5, 1.0, "c")]
    assert plan_memory([*claims, wants(5)], LIMITS) == MemoryPlan((3,), (1,))
    assert plan_memory([*claims, wants(6)], LIMITS) == MemoryPlan((), ())


def test_a_sender_over_its_share_keeps_only_itself_waiting() -> None:
    assert plan_memory([holds(50), holds(6), wants(1, sender="a"), wants(4)], LIMITS) == MemoryPlan((3,), ())


def test_a_sender_over_its_share_loses_its_own_slow_bodies_only() -> None:
    claims = [holds(50), holds(4, 50.0, "b"), holds(4, 5.0), wants(3, sender="a")]
    assert plan_memory(claims, LIMITS) == MemoryPlan((3,), (2,))


def test_a_sender_with_many_bodies_begins_another_only_for_its_own_slow_ones() -> None:
    """And it keeps nobody else waiting. What has begun goes on."""
    few = replace(LIMITS, sender_bodies=2)
    claims = [holds(50), holds(1), holds(1), wants(1, sender="a")]
    assert plan_memory([*claims, wants(1)], few) == MemoryPlan((4,), ())
    assert plan_memory([holds(50), holds(1), wants(2, 1, "a"), wants(1, sender="a")], few) == MemoryPlan((2,), ())
    slow = [holds(50), holds(1), holds(1, 9.0), holds(1, 99.0, "b"), wants(1, sender="a")]
    assert plan_memory(slow, few) == MemoryPlan((4,), (2,))


def test_the_oldest_body_stays_and_the_oldest_prompt_one_never_waits() -> None:
    claims = [BodyClaim("a", 100, None, 1000.0), holds(6, 3.0), wants(200, 100), wants(11)]
    assert plan_memory(claims, LIMITS) == MemoryPlan((2,), ())
    assert plan_memory([wants(200, 100), wants(9)], LIMITS) == MemoryPlan((0,), ())


def test_a_token_with_many_addresses_has_limits_of_its_own() -> None:
    """It keeps no other token waiting, and its slow bodies go for its own."""
    many = [of_account(holds(2, sender=address), "t") for address in "cdef"]
    mine = of_account(wants(1, sender="g"), "t")
    assert plan_memory([holds(50), *many, mine, of_account(wants(2, sender="c"), "u")], LIMITS) == MemoryPlan((6,), ())
    slow = [of_account(holds(2, 9.0 + number, address), "t") for number, address in enumerate("cdef")]
    assert plan_memory([holds(50), *slow, mine], LIMITS) == MemoryPlan((5,), (4,))
    few = replace(LIMITS, account_bodies=4)
    assert plan_memory([holds(50), *[replace(one, held_bytes=1) for one in many], mine], few) == MemoryPlan((), ())


@st.composite
def situations(draw: st.DrawFn) -> tuple[list[BodyClaim], MemoryLimits]:
    """Bodies of few senders with small numbers, so that limits are met exactly and paces are equal."""
    claims = []
    for _ in range(draw(st.integers(0, 7))):
        held, sender = draw(st.integers(0, 6)), draw(st.sampled_from("abc"))
        if draw(st.booleans()):
            claim = wants(held + draw(st.integers(1, 5)), held, sender)
        else:
            claim = holds(max(1, held), float(draw(st.integers(0, 5))), sender)
        claims.append(of_account(claim, draw(st.sampled_from(["", "t", "u"]))))
    total, few = draw(st.integers(0, 20)), st.integers(0, 4)
    of_total = st.integers(0, total)
    return claims, MemoryLimits(total, draw(of_total), 2.0, draw(few), draw(of_total), draw(few))


def spared(claims: Sequence[BodyClaim]) -> set[int]:
    return {*range(len(claims))[:1], *[place for place, claim in enumerate(claims) if claim.arriving_s <= 2.0][:1]}


def own_room(claims: Sequence[BodyClaim], of: set[int], gone: set[int], limits: MemoryLimits, by: BodyClaim) -> bool:
    """Return whether the bodies with these places exceed no limit of the sender and of the account of ``by``."""
    there = [claims[place] for place in of - gone]
    for own, most_bytes, most_bodies in (
        ([one for one in there if one.sender == by.sender], limits.sender_bytes, limits.sender_bodies),
        ([one for one in there if by.account == one.account != ""], limits.account_bytes, limits.account_bodies),
    ):
        if sum(one.held_bytes for one in own) > most_bytes:
            return False
        if by.held_bytes == 0 and sum(one.held_bytes > 0 for one in own) > most_bodies:
            return False
    return True


def room(claims: Sequence[BodyClaim], of: set[int], gone: set[int], limits: MemoryLimits, by: BodyClaim) -> bool:
    """Return whether the bodies with these places exceed neither the limits of the sender of ``by`` nor the total."""
    total_bytes = sum(claims[place].held_bytes for place in of - gone)
    return total_bytes <= limits.total_bytes and own_room(claims, of, gone, limits, by)


def sets_of(places: Sequence[int]) -> Iterator[set[int]]:
    for size in range(len(places) + 1):
        yield from map(set, combinations(places, size))


def exceeding(claims: Sequence[BodyClaim], limits: MemoryLimits) -> set[int]:
    """Return the slow bodies that must go before any is granted: while a limit is exceeded, the slowest of those."""
    gone = set[int]()
    while any(claim.wanted_bytes is not None for claim in claims):
        there = set(range(len(claims))) - spared(claims) - gone
        total_bytes = sum(claims[place].held_bytes for place in there)
        bad = []
        for place in sorted(there):
            fits = own_room(claims, there, set(), limits, replace(claims[place], held_bytes=1))
            if claims[place].arriving_s > limits.patience_s and (not fits or total_bytes > limits.total_bytes):
                bad.append(place)
        if not bad:
            break
        gone.add(max(bad, key=lambda place: claims[place].arriving_s))
    return gone


def test_bodies_that_were_spared_do_not_add_up() -> None:
    """Each was the only one that was not slow, got all it wanted, and then stopped."""
    claims = [holds(50, 99.0), holds(40, 9.0), holds(40, 3.0), wants(40)]
    assert plan_memory(claims, LIMITS) == MemoryPlan((3,), (1, 2))
    assert plan_memory(claims[:3], LIMITS) == MemoryPlan((), ()), "nobody waits"


@given(situations())
def test_a_plan_has_all_its_properties(situation: tuple[list[BodyClaim], MemoryLimits]) -> None:
    claims, limits = situation
    plan = plan_memory(claims, limits)
    free = spared(claims)
    waiting = {place for place, claim in enumerate(claims) if claim.wanted_bytes is not None}
    slow = {place for place, claim in enumerate(claims) if claim.arriving_s > 2.0} - free
    granted, evicted = set(plan.granted), set(plan.evicted)
    assert free & waiting <= granted <= waiting
    assert evicted <= slow
    after = [
        replace(claim, held_bytes=claim.wanted_bytes) if place in granted and claim.wanted_bytes else claim
        for place, claim in enumerate(claims)
    ]
    counted = set(range(len(claims))) - free
    for place in granted - free:
        assert room(after, counted, evicted, limits, claims[place])
    before = exceeding(claims, limits)
    assert before <= evicted
    if not granted - free:
        assert evicted == before
    # Who goes is slower than who stays, of the same sender; and of all, unless the sender's own limit chose.
    for gone in evicted:
        for stays in slow - evicted:
            if (claims[stays].sender, claims[stays].account) == (claims[gone].sender, claims[gone].account):
                assert claims[gone].arriving_s >= claims[stays].arriving_s


@given(situations())
def test_each_decision_is_that_of_all_sets_of_slow_bodies(situation: tuple[list[BodyClaim], MemoryLimits]) -> None:
    """An oracle: replays the plan claim by claim, and tries every set of slow bodies that could go."""
    claims, limits = situation
    plan, free = plan_memory(claims, limits), spared(claims)
    state, gone, blocked = list(claims), exceeding(claims, limits), False
    assert plan.evicted[: len(gone)] == tuple(sorted(gone, key=lambda place: (-claims[place].arriving_s, place)))
    for place, claim in enumerate(claims):
        if claim.wanted_bytes is None:
            continue
        then = list(state)
        then[place] = replace(claim, held_bytes=claim.wanted_bytes)
        if place in free:
            assert place in plan.granted
            state = then
            continue
        counted = set(range(len(claims))) - free - gone
        slow = [other for other in counted if claims[other].arriving_s > limits.patience_s]
        sender_can = any(own_room(then, counted, going, limits, claim) for going in sets_of(slow))
        possible = [going for going in sets_of(slow) if room(then, counted, going, limits, claim)]
        assert (place in plan.granted) == (bool(possible) and not blocked)
        if place in plan.granted:
            state = then
            # Fewest by the slowest: what goes for this claim is what the plan lists next.
            listed = [other for other in plan.evicted if other not in gone]
            going = next(set(listed[:count]) for count in range(len(listed) + 1) if set(listed[:count]) in possible)
            gone |= going
        elif sender_can:
            blocked = True
    assert gone == set(plan.evicted)
