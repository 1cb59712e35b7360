"""Who a registering environment is."""

from dataclasses import replace

from app.core.enrolment import Application, enrol
from app.core.model import Environment

TTL_MS = 120_000


def test_the_first_of_a_name_is_number_zero() -> None:
    environment = enrol(Application("math", 8, 512, 1.0), {}, 1000, TTL_MS)
    assert (environment.environment, environment.name, environment.last_seen_ms) == (0, "math_0", 1000)


def test_a_second_of_the_same_name_beside_a_live_one_is_another() -> None:
    first = enrol(Application("math", 8, 512, 1.0), {}, 0, TTL_MS)
    second = enrol(Application("math", 8, 512, 1.0), {0: first}, TTL_MS // 4, TTL_MS)
    assert (second.environment, second.name) == (1, "math_1")


def test_one_that_comes_back_after_a_quarter_of_the_ttl_takes_its_place_with_what_it_says_now() -> None:
    first = enrol(Application("math", 8, 512, 1.0), {}, 0, TTL_MS)
    again = enrol(Application("math", 4, 256, 2.0, 0.25), {0: first}, TTL_MS // 4 + 1, TTL_MS)
    assert (again.environment, again.name) == (first.environment, first.name)
    assert (again.group_size, again.max_token_length, again.weight, again.min_share) == (4, 256, 2.0, 0.25)


def test_one_that_said_goodbye_is_replaced_at_once() -> None:
    first = replace(enrol(Application("math", 8, 512, 1.0), {}, 0, TTL_MS), connected=False)
    again = enrol(Application("math", 8, 512, 1.0), {0: first}, 1, TTL_MS)
    assert (again.environment, again.connected) == (0, True)


def test_ids_are_never_reused_for_other_names() -> None:
    def gone(environment: Environment) -> Environment:
        return replace(environment, connected=False)

    first = gone(enrol(Application("math", 8, 512, 1.0), {}, 0, TTL_MS))
    assert enrol(Application("code", 8, 512, 1.0), {0: first}, 0, TTL_MS).environment == 1
