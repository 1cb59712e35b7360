"""The alert of a run, as a sentence."""

from dataclasses import replace

from app.core.runs.alert import alert_of
from app.core.runs.counters import Sent
from app.core.runs.view import RunView
from tests.core.views import EMPTY, environment

SINCE_MS, NOW_MS = 1_000, 61_000


def waiting_for(scarce: int, min_share: float | None) -> RunView:
    """Return a run of which environment 0 has sent its part, and so many others have sent nothing for a minute."""
    others = {key: environment(key, heard_ms=NOW_MS, min_share=min_share) for key in range(1, scarce + 1)}
    return replace(
        EMPTY,
        clock_ms=NOW_MS,
        environments={0: environment(0, heard_ms=NOW_MS), **others},
        lanes={(0, 4): 8},
        scarce=dict.fromkeys(others, SINCE_MS),
    )


def detail_of(view: RunView) -> str:
    found = alert_of(view)
    assert found is not None
    return found.detail


def test_the_alert_names_the_minimum_only_where_there_is_one() -> None:
    promised = detail_of(waiting_for(1, 0.5))
    assert promised.startswith("environment 1 (env1_0) has sent too little for its minimum for 60 s: batches wait")
    free = detail_of(waiting_for(1, None))
    assert free.startswith("environment 1 (env1_0) has sent too little for its part of a batch for 60 s: batches wait")


def test_the_alert_says_when_a_silent_environment_is_no_longer_live() -> None:
    """Without a sign of life it is probably dead, and its minimum ends by itself."""
    view = waiting_for(1, 0.5)
    assert detail_of(view).endswith("60 s: batches wait while it is live: relax_scarce_after_s is null")
    silent = environment(1, heard_ms=NOW_MS - 50_000, min_share=0.5)
    view = replace(view, environments={**view.environments, 1: silent}, environment_ttl_ms=120_000)
    assert detail_of(view).endswith("It gave its last sign of life 50 s ago, and is live for 120 s after it")


def test_the_alert_names_the_settings_that_drop_groups_of_an_environment_that_sends_some() -> None:
    """It cannot end by itself where all groups are dropped."""
    view = waiting_for(1, 0.5)
    dropped = {("zero_variance", 1): 3, ("stale", 1): 1, ("deleted", 1): 2, ("pass_rate", 0): 7}
    view = replace(view, dropped=dropped, sent={1: Sent(SINCE_MS, 4, 8)})
    told = (
        "relax_scarce_after_s is null. The run has queued 8 of its sequences so far, and dropped 4 of its groups: "
        "stale 1, zero_variance 3. Change max_staleness, filter_zero_variance"
    )
    assert detail_of(view).endswith(f"{told} or set relax_scarce_after_s")
    relaxing = replace(view, policy=view.policy.model_copy(update={"relax_scarce_after_s": 60.0}))
    assert detail_of(relaxing).endswith("Change max_staleness, filter_zero_variance")
    before = replace(view, sent={1: Sent(SINCE_MS - 1, 4, 8)})
    assert detail_of(before).endswith("relax_scarce_after_s is null"), "it has sent nothing since"
    assert detail_of(replace(view, dropped={("deleted", 1): 2})).endswith("relax_scarce_after_s is null")


def test_a_long_name_leaves_room_for_what_the_alert_says() -> None:
    view = waiting_for(1, 0.5)
    view = replace(view, environments={**view.environments, 1: replace(view.environments[1], name="n" * 4096)})
    detail = detail_of(view)
    assert detail.startswith(f"environment 1 ({'n' * 77}...) has sent too little for its minimum")


def test_the_alert_says_when_there_are_more_environments_than_it_names() -> None:
    config = EMPTY.config
    assert config is not None
    many = replace(waiting_for(9, None), config=config.model_copy(update={"batch_size": 80}))
    many = replace(many, lanes={(0, 4): 80})
    assert detail_of(many).count("has sent too little") == 8
    assert detail_of(many).endswith("; …")
