"""How many examples hypothesis tries: a test says how many in full, and runs without the slow tests take a tenth."""

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from tests.seeds import FUZZ, is_random

FULL, FAST = "full", "fast"
_FULL_EXAMPLES = settings().max_examples
# How long an example takes says more about what else the machine does than about the test.
_PATIENT = settings(deadline=None, derandomize=not is_random(FUZZ), suppress_health_check=[HealthCheck.too_slow])
settings.register_profile(FULL, _PATIENT)
settings.register_profile(FAST, _PATIENT, max_examples=_FULL_EXAMPLES // 10)


def examples(full: int) -> settings:
    """Decorate a property so that it runs on ``full`` examples, or on a tenth of them under the profile ``fast``."""
    return settings(max_examples=full * settings().max_examples // _FULL_EXAMPLES)


def briefly_and_at_length(brief: tuple[int, int], full: tuple[int, int]) -> pytest.MarkDecorator:
    """Run a state machine on ``examples`` of ``steps``: a few in `make test`, many in `make test-long`."""
    variants = [pytest.param(*brief, id="briefly"), pytest.param(*full, id="at length", marks=pytest.mark.long)]
    return pytest.mark.parametrize(("examples", "steps"), variants)


def run_machine(machine: Callable[[], RuleBasedStateMachine], examples: int, steps: int) -> None:
    """Run a state machine on so many examples, each of at most so many steps."""
    wanted = settings(max_examples=examples, stateful_step_count=steps, deadline=None)
    run_state_machine_as_test(machine, settings=wanted)
