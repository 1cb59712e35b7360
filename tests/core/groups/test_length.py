"""How long sequences may be."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.groups.length import position_of_too_long, sequence_limit
from app.core.runs.settings import Policy
from tests.core.views import EMPTY
from tests.properties import examples


@examples(100)
@given(st.lists(st.integers(1, 9), max_size=6), st.none() | st.integers(1, 9))
def test_a_sequence_is_named_if_and_only_if_one_is_too_long(lengths: list[int], limit: int | None) -> None:
    found = position_of_too_long(np.array(lengths, np.int64), limit)
    over = [position for position, tokens in enumerate(lengths) if limit is not None and tokens > limit]
    assert (found in over) if over else found is None


@pytest.mark.parametrize(
    ("registered", "setting", "limit"),
    [(512, None, 512), (512, 8, 8), (8, 512, 512), (1, None, 1), (0, None, None), (-1, None, None)],
)
def test_what_the_run_is_set_to_counts_more_than_what_a_trainer_registered(
    registered: int, setting: int | None, limit: int | None
) -> None:
    assert EMPTY.config is not None
    config = EMPTY.config.model_copy(update={"max_token_len": registered})
    assert sequence_limit(config, Policy(max_sequence_tokens=setting)) == limit
    assert sequence_limit(None, Policy(max_sequence_tokens=setting)) == setting
