"""Draws from a law: places one after the other, none twice, by successive sampling (`app.core.successive`)."""

from collections.abc import Mapping, Sequence

from app.core.curriculum.orders import Draw, Order, Part


def choose(parts: Sequence[Part], n: int, seed: int, counter: int) -> list[Draw]:
    """Draw different places by a law without replacement, in the order to try them.

    An item that stands in two parts of different orders may be named twice: take it once. Of items that are refused
    (in flight, or gone) nothing need be known: draw again with the next counter, more (`draws_for`), and pass over
    what is taken already. So items come by the law restricted to those that can be had.

    Args:
        parts: The law; without any, nothing is drawn.
        n: How many, ``>= 0``; if there are no more places than that, all of them are drawn.
        seed: Of the curriculum's generator or the request's, 0 to 2**64 - 1.
        counter: How often it drew before, ``>= 0``. The same seed and counter give the same draws.
    """
    raise NotImplementedError


def draws_for(wanted: int, items: int, in_flight: int, attempt: int) -> int:
    """Return how many places to draw for so many items: more, the more is in flight and the more often it was tried.

    Args:
        wanted: Items still wanted, ``>= 0``.
        items: All items.
        in_flight: Items that will be refused.
        attempt: 0 for the first; by `ATTEMPTS` all there are have been asked for, or nearly.
    """
    raise NotImplementedError


def probability_of(part: Part, rank: int) -> float:
    """Return how likely one draw is this place of the part; 0 if the rank lies outside it."""
    raise NotImplementedError


def item_probability(parts: Sequence[Part], ranks: Mapping[Order, int], category: str = "") -> float:
    """Return how likely one draw is an item, over all the parts it stands in.

    Args:
        parts: The law.
        ranks: The item's rank in each order it stands in (those that the parts name suffice).
        category: Its category; ``ranks`` has its rank there under `Order.CATEGORY`.
    """
    raise NotImplementedError
