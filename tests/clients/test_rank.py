"""Which rank a process is, as far as the client can tell what is wrong with it."""

import re
from typing import Any

import pytest

from lachesis import Rank, Settings, Trainer


def test_a_rank_says_of_itself_what_is_not_usual() -> None:
    assert Rank(1, 4).query() == {"rank": 1, "world_size": 4}
    unusual = Rank(0, 1, equal=False, micro_batch_tokens=512, same_number=False).query()
    assert unusual == {"rank": 0, "world_size": 1, "equal": False, "micro_batch_tokens": 512, "same_number": False}


@pytest.mark.parametrize(
    ("numbers", "options", "message"),
    [
        ((4, 4), {}, "rank 4 of a world of 4: ranks are 0 to 3"),
        (("0", "4"), {}, "rank: should be a whole number, not '0'"),
        ((0, 4.0), {}, "world_size: should be a whole number, not 4.0"),
        ((-1, 4), {}, "rank: Input should be greater than or equal to 0"),
        ((0, 4), {"ended_by": "rank0"}, "ended_by: Input should be 'all' or 'rank_0'"),
        ((0, 4), {"micro_batch_tokens": 0}, "micro_batch_tokens: Input should be greater than or equal to 1"),
        ((0, 4), {"padded": True}, "padded: only with micro_batch_tokens"),
    ],
)
def test_what_no_rank_can_be_is_refused_before_anything_is_sent(
    numbers: tuple[Any, Any], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        Rank(*numbers, **options)


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"WORLD_SIZE": "4"}, "RANK: is not set"),
        ({"RANK": "0"}, "WORLD_SIZE: is not set"),
        ({"RANK": "first", "WORLD_SIZE": "4"}, "RANK: should be a whole number, not 'first'"),
    ],
)
def test_a_variable_that_is_missing_or_wrong_is_named(environ: dict[str, str], message: str) -> None:
    assert Rank.from_env({"RANK": "3", "WORLD_SIZE": "4"}, spread=True) == Rank(3, 4, spread=True)
    with pytest.raises(ValueError, match=message):
        Rank.from_env(environ)


def test_a_trainer_is_told_its_rank_as_a_rank() -> None:
    said = r"should be a Rank, such as Rank.from_env\(\), not 3"
    with Trainer(Settings("http://127.0.0.1:9", run="math")) as trainer, pytest.raises(TypeError, match=said):
        next(iter(trainer.batches(rank=3)))  # type: ignore[arg-type]
