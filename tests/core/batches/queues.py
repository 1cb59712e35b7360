"""Queues and bounds small enough for brute force, for properties."""

from hypothesis import strategies as st

from app.core.model import Bounds
from tests.core.batches.oracle import Group

ENVIRONMENTS = st.sampled_from([None, 0, 1, 2])
SIZES = st.integers(1, 9) | st.sampled_from([2, 4, 6, 8])
QUEUES = st.lists(st.builds(Group, ENVIRONMENTS, SIZES), max_size=11)
BATCH_SIZES = st.integers(1, 20)
BOUNDS = st.dictionaries(
    st.integers(0, 3),
    st.builds(
        lambda low, more: Bounds(low, None if more is None else low + more),
        st.integers(0, 7),
        st.none() | st.integers(0, 9),
    ),
    max_size=3,
)
