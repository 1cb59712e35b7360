"""How many examples hypothesis tries: the number of the test, or a tenth in `make test-fast`."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from tests.seeds import FUZZ, is_random

FULL, FAST, UNSHRUNK = "full", "fast", "unshrunk"
_FULL_EXAMPLES = settings().max_examples
# How long an example takes says more about what else the machine does than about the test.
_PATIENT = settings(deadline=None, derandomize=not is_random(FUZZ), suppress_health_check=[HealthCheck.too_slow])
settings.register_profile(FULL, _PATIENT)
settings.register_profile(UNSHRUNK, _PATIENT, phases=(Phase.explicit, Phase.generate))  # that it fails is enough
settings.register_profile(FAST, _PATIENT, max_examples=_FULL_EXAMPLES // 10)

LONG = [pytest.mark.long, pytest.mark.at_length]
"""The marks of cases that only `make test-long` runs."""


def examples(full: int) -> settings:
    """Decorate a property so that it runs on ``full`` examples, or on a tenth of them under the profile ``fast``."""
    return settings(max_examples=full * settings().max_examples // _FULL_EXAMPLES)


def briefly_and_at_length(names: str | tuple[str, ...], brief: Any, full: Any) -> pytest.MarkDecorator:
    """Run a test on a few cases in `make test`, and on many in `make test-long`: the two values of ``names``."""
    few, many = (given if isinstance(given, tuple) else (given,) for given in (brief, full))
    return pytest.mark.parametrize(
        names, [pytest.param(*few, id="briefly"), pytest.param(*many, id="at length", marks=LONG)]
    )


def run_machine(machine: Callable[[], RuleBasedStateMachine], examples: int, steps: int) -> None:
    """Run a state machine on so many examples, each of at most so many steps."""
    wanted = settings(max_examples=examples, stateful_step_count=steps, deadline=None)
    run_state_machine_as_test(machine, settings=wanted)
