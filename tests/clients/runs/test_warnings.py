"""An environment's process says what cannot work because of it, once."""

import pytest

from lachesis import AsyncEnvironment, AsyncTrainer, Group, Settings
from tests.clients.run import group, submitted


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    said = [record.getMessage() for record in caplog.records if record.name == "lachesis.environments.environment"]
    return [line for line in said if line.startswith("environment ")]


async def test_groups_that_fit_no_batch_are_warned_of_once_and_by_their_sender(
    run: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    async with AsyncEnvironment("math", run) as math, AsyncEnvironment("code", run) as code:
        await submitted(math, [group(1), _large()])
        await submitted(math, [_large()])
        await submitted(code, [group(1)])
    (line,) = warned(caplog)
    assert line.startswith("environment math: groups are too large for any batch")


async def test_an_environment_that_joins_with_too_large_a_minimum_is_warned(
    run: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    async with AsyncEnvironment("math", run, min_share=0.75), AsyncEnvironment("code", run, min_share=0.5):
        pass
    (line,) = warned(caplog)
    assert line.startswith("environment code: minimum shares sum to 1.25")


async def test_sizes_that_do_not_fit_are_warned_of_when_groups_arrive_and_not_on_joining(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    """The environments of a run join one after the other. Groups of 3 and of 2 fill a batch of 8."""
    async with AsyncTrainer(settings) as trainer:
        await trainer.create_run(batch_size=8)
    async with AsyncEnvironment("math", settings, group_size=3) as math:
        async with AsyncEnvironment("code", settings, group_size=2):
            await submitted(math, [_large()])
        assert warned(caplog) == []
        await submitted(math, [_large()])
    (line,) = warned(caplog)
    assert line.startswith("environment math: no groups of the sizes that environments declared or sent (3)")


async def test_the_outcomes_count_groups_that_are_dropped_for_their_length(settings: Settings) -> None:
    async with AsyncTrainer(settings) as trainer:
        await trainer.create_run(batch_size=2, max_sequence_tokens=2, long_sequences="drop")
        async with AsyncEnvironment("math", settings) as environment:
            await submitted(environment, [group(1, 2), group(1, 2, 3)])
            assert environment.outcomes == {"accepted": 1, "too_long": 1}


def _large() -> Group:
    """A group of three sequences, larger than a batch of the fixture's run."""
    return Group([[1]] * 3, [[1]] * 3, [1.0] * 3)
