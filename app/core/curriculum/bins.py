"""Which ranks of ease are which bin. Bin 0 is the easiest; bins are equal within one item, whatever ties there are."""

from collections.abc import Sequence

from app.core.curriculum.orders import Counts, Part


def bin_of(rank: int, seen: int, n_bins: int) -> int:
    """Return the bin of a rank.

    Args:
        rank: From 0, the least ease first, as in `Order.EASE`.
        seen: Items in `Order.EASE` (with priors included), above ``rank``.
        n_bins: How many bins there are.
    """
    return ((seen - rank) * n_bins - 1) // seen


def ranks_of(bin_: int, seen: int, n_bins: int) -> range:
    """Return the ranks of a bin; it is empty where there are fewer items than bins."""
    return range(seen - (bin_ + 1) * seen // n_bins, seen - bin_ * seen // n_bins)


def middle(n_bins: int) -> int:
    """Return the bin of items of which nothing is known: not seen, and without a prior."""
    return n_bins // 2


def bin_law(parts: Sequence[Part], counts: Counts, n_bins: int, looked_up: Sequence[int] = ()) -> list[float]:
    """Return each bin's probability under a law: for ``bins_only``, and to compare strategies.

    Exact for what lies in EASE and UNSEEN. Which bins the places of other orders belong to only a look-up tells: their
    probability is spread as ``looked_up`` is.

    Args:
        parts: The law.
        counts: What it was made from.
        n_bins: How many bins there are.
        looked_up: Bins of items drawn from the parts in other orders, in any number.

    Raises:
        ValueError: There are such parts, and nothing was looked up.
    """
    raise NotImplementedError
