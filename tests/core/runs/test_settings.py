"""The settings of a run, and those of the trainer that registered it."""

import pytest
from pydantic import ValidationError

from app.core.runs.settings import SHORTEST_MEMORY_MS, Policy, sequence_limit
from tests.core.views import EMPTY


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


def test_every_policy_remembers_the_end_of_a_batch_while_its_trainer_may_ask() -> None:
    assert Policy(history_retention_s=120, dedup_window_s=0).remembered_ms == SHORTEST_MEMORY_MS
    with pytest.raises(ValidationError):
        Policy(history_retention_s=119.9)
