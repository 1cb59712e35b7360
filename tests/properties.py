"""How many examples hypothesis tries: a test says how many in full, and runs without the slow tests take a tenth."""

from hypothesis import HealthCheck, settings

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
