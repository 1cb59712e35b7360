"""Who a registering environment is."""

from dataclasses import replace

import pytest

from app.core.environments.record import NEWCOMER_MS, EnvironmentRecord
from app.core.environments.registration import MOST_NAMESAKES, RegistrationRequest, register
from lachesis.wire.errors import TooManyNewEnvironments

TTL_MS = 120_000


def test_the_first_of_a_name_is_number_zero() -> None:
    environment = register(RegistrationRequest("math", 8, 512, 1.0), {}, 0, 1000, TTL_MS)
    assert (environment.environment, environment.name, environment.registered_ms) == (0, "math_0", 1000)


def test_two_of_one_name_that_start_at_the_same_moment_are_two() -> None:
    """Neither has given a sign of life by then: clients are silent for 5 s after they register."""
    first = register(RegistrationRequest("math", 8, 512, 1.0), {}, 0, 0, TTL_MS)
    for clock_ms in (0, NEWCOMER_MS):
        assert register(RegistrationRequest("math", 8, 512, 1.0), {0: first}, 1, clock_ms, TTL_MS).environment == 1


def test_an_unanswered_registration_binds_as_long_as_a_newcomer_then_is_taken_over() -> None:
    ghost = register(RegistrationRequest("math", 8, 512, 1.0, 0.5), {}, 0, 1000, TTL_MS)
    assert ghost.alive(1000 + NEWCOMER_MS, TTL_MS)
    assert not ghost.alive(1001 + NEWCOMER_MS, TTL_MS)
    assert (
        register(RegistrationRequest("math", 8, 512, 1.0), {0: ghost}, 1, 1001 + NEWCOMER_MS, TTL_MS).environment == 0
    )


def test_one_that_gave_a_sign_of_life_binds_until_it_is_silent_for_the_ttl() -> None:
    known = replace(register(RegistrationRequest("math", 8, 512, 1.0), {}, 0, 0, TTL_MS), heard_ms=1000)
    assert known.alive(1000 + TTL_MS, TTL_MS)
    assert not known.alive(1001 + TTL_MS, TTL_MS)


def test_signs_of_life_of_a_predecessor_count_no_more() -> None:
    first = replace(register(RegistrationRequest("math", 8, 512, 1.0), {}, 0, 0, TTL_MS), heard_ms=1000)
    again = register(RegistrationRequest("math", 8, 512, 1.0), {0: first}, 1, 1001 + TTL_MS // 4, TTL_MS)
    assert (again.environment, again.heard_ms, again.last_seen_ms) == (0, None, 1001 + TTL_MS // 4)


def test_a_second_of_the_same_name_beside_a_live_one_is_another() -> None:
    first = replace(register(RegistrationRequest("math", 8, 512, 1.0), {}, 0, 0, TTL_MS), heard_ms=0)
    second = register(RegistrationRequest("math", 8, 512, 1.0), {0: first}, 1, TTL_MS // 4, TTL_MS)
    assert (second.environment, second.name) == (1, "math_1")


def test_an_environment_that_returns_after_silence_keeps_its_place_with_new_settings() -> None:
    first = replace(register(RegistrationRequest("math", 8, 512, 1.0), {}, 0, 0, TTL_MS), heard_ms=0)
    again = register(RegistrationRequest("math", 4, 256, 2.0, 0.25), {0: first}, 1, TTL_MS // 4 + 1, TTL_MS)
    assert (again.environment, again.name) == (first.environment, first.name)
    assert (again.group_size, again.max_token_length, again.weight, again.min_share) == (4, 256, 2.0, 0.25)


def test_an_environment_that_returns_keeps_the_maximum_share_that_only_an_operator_sets() -> None:
    first = replace(register(RegistrationRequest("math", 8, 512, 1.0), {}, 0, 0, TTL_MS), left_ms=0, max_share=0.25)
    assert register(RegistrationRequest("math", 4, 256, 2.0, 0.5), {0: first}, 1, 1, TTL_MS).max_share == 0.25


def test_one_that_left_is_replaced_at_once() -> None:
    first = replace(register(RegistrationRequest("math", 8, 512, 1.0), {}, 0, 0, TTL_MS), left_ms=0)
    again = register(RegistrationRequest("math", 8, 512, 1.0), {0: first}, 1, 1, TTL_MS)
    assert (again.environment, again.connected) == (0, True)


def test_ids_are_never_reused_for_other_names() -> None:
    def gone(environment: EnvironmentRecord) -> EnvironmentRecord:
        return replace(environment, left_ms=0)

    first = gone(register(RegistrationRequest("math", 8, 512, 1.0), {}, 0, 0, TTL_MS))
    assert register(RegistrationRequest("code", 8, 512, 1.0), {0: first}, 1, 0, TTL_MS).environment == 1


# Senders that may act for one environment only


def fleet(number: int, min_share: float | None = None) -> dict[int, EnvironmentRecord]:
    """Environments of one name that all live at 0 ms, registered by such a sender."""
    environments: dict[int, EnvironmentRecord] = {}
    for key in range(number):
        asked = RegistrationRequest("math", 8, 512, 1.0, min_share)
        one = register(asked, environments, key, 0, TTL_MS, as_one=True)
        environments[key] = replace(one, heard_ms=0)
    return environments


def test_namesakes_of_one_sender_have_together_the_minimum_of_one_environment() -> None:
    shares = [env.min_share for env in fleet(4, 0.4).values()]
    assert shares == pytest.approx([0.4, 0.4, 0.2, 0.0])
    assert [env.min_share for env in fleet(2).values()] == [None, None]
    again = register(RegistrationRequest("math", 8, 512, 1.0, 1.0), fleet(2, 0.4), 2, TTL_MS, TTL_MS, as_one=True)
    assert (again.environment, again.min_share) == (0, pytest.approx(0.6)), "it takes the place of a silent one"
    other = register(RegistrationRequest("code", 8, 512, 1.0, 0.5), fleet(4, 0.4), 4, 0, TTL_MS, as_one=True)
    assert other.min_share == 0.5


def test_one_sender_registers_few_namesakes_and_replaces_silent_ones() -> None:
    full = fleet(MOST_NAMESAKES)
    asked = RegistrationRequest("math", 8, 512, 1.0)
    with pytest.raises(TooManyNewEnvironments, match="one leaves or is silent for 30 s") as refused:
        register(asked, full, MOST_NAMESAKES, 0, TTL_MS, as_one=True)
    assert refused.value.retry_after_s == 30
    assert register(asked, full, MOST_NAMESAKES, 0, TTL_MS).name == f"math_{MOST_NAMESAKES}", "others may have more"
    assert register(asked, full, MOST_NAMESAKES, 1 + TTL_MS // 4, TTL_MS, as_one=True).name == "math_0"
