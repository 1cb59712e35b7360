"""How many examples hypothesis tries: a test says how many in full, and runs without the slow tests take a tenth."""

from hypothesis import settings

FAST = "fast"
_FULL_EXAMPLES = settings().max_examples
settings.register_profile(FAST, max_examples=_FULL_EXAMPLES // 10, deadline=None)


def examples(full: int) -> settings:
    """Decorate a property so that it runs on ``full`` examples, or on a tenth of them under the profile ``fast``.

    There is no deadline for one example: other tests and people share the machine.
    """
    return settings(max_examples=full * settings().max_examples // _FULL_EXAMPLES, deadline=None)
