"""How long sequences may be."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from app.core.groups.length import position_of_too_long
from tests.properties import examples


@examples(100)
@given(st.lists(st.integers(1, 9), max_size=6), st.none() | st.integers(1, 9))
def test_a_sequence_is_named_if_and_only_if_one_is_too_long(lengths: list[int], limit: int | None) -> None:
    found = position_of_too_long(np.array(lengths, np.int64), limit)
    over = [position for position, tokens in enumerate(lengths) if limit is not None and tokens > limit]
    assert (found in over) if over else found is None
