"""What the command line shows of an answer, whole and by its text: nothing of this needs a service."""

import inspect
from typing import Any

import pytest
from rich.console import Console, RenderableType

from lachesis._cli.group_output import content, history, listed
from lachesis._cli.groups import groups
from lachesis._cli.output import cut, explanation, short, span
from lachesis._cli.overview import Overview, SeenRun, overview, state
from lachesis._cli.status_output import StatusExtras, status
from lachesis.wire.batches import Explanation
from lachesis.wire.criteria import GroupCriteria
from lachesis.wire.curricula import CurriculumInfo
from lachesis.wire.groups import GroupContent, GroupHistory, ListedGroup
from lachesis.wire.runs import Run, UnreadableRun
from lachesis.wire.status import RunStatus

LEDGER = {
    "generated_tokens": 12_345_678, "trained_tokens": 6_000_000, "queued_tokens": 345_678, "leased_tokens": 0,
    "stale_tokens": 6_000_000, "filtered_tokens": 0, "dropped_tokens": 0, "surplus_tokens": 0,
    "cost": {
        "generated": 24.69, "trained": 12.0, "queued": 0.69, "leased": 0, "stale": 12, "filtered": 0, "dropped": 0,
        "surplus": 0,
    },
}  # fmt: skip
ENVIRONMENT = {
    "id": 3, "name": "gsm8k_0", "alive": True, "connected": True, "members": 2, "running_groups": 4,
    "last_seen_age_s": 12.4, "group_size": 8, "weight": 1.0, "queued_groups": 5, "queued_sequences": 40,
    "buffered_groups": 1, "buffered_sequences": 4, "served_sequences": 640, "share_promised": 0.25, "share_limit": None,
    "share_got": 0.314, "needs_sequences": 8, "owed_sequences": 7, "dropped": {"stale": 2, "constant_reward": 1},
    "ledger": LEDGER,
}  # fmt: skip
STATUS = {
    "current_step": 812, "queue_size": 5, "run": "math", "batch_size": 32, "trainer_started": True, "ready": False,
    "blocked": {
        "reason": "minimum_short", "detail": "environment 3 needs 8 sequences and has 4", "missing_sequences": 4,
        "missing_by_environment": {3: 4}, "unblocked_by": [], "expected_s": 12.3, "relaxes_s": None,
    },
    "pace": {
        "last_batch_age_s": 4.0, "batch_interval_s": 4.1, "trainer_idle_share": 0.03, "blocked_s": 4.0,
        "waiting_age_s": 1.0, "arriving_sequences_per_s": 7.256,
    },
    "intake_paused": True, "serving_paused": True, "oldest_waiting_s": 61.0,
    "environments": [ENVIRONMENT, {**ENVIRONMENT, "id": 12, "name": "n" * 40, "alive": False, "share_got": None}],
    "next_after": 12, "registered_environments": 5, "alive_environments": 1, "unowned_groups": 0,
    "groups": {
        "accepted": 100, "queued": 5, "buffered": 1, "leased": 8, "delivered": 83, "oversized": 2, "remembered": 86,
    },
    "bytes": {"queued": 1, "buffered": 2, "leased": 3, "kept": 4}, "ledger": LEDGER, "policy_version": 811,
    "kept_batches": 2, "dropped": {"stale": 2, "constant_reward": 1}, "staleness_forecast": None,
    "alert": {
        "started_age_s": 75, "sequences": 0, "dropped": {}, "environments": [3],
        "detail": "environment 3 sends too little",
    },
    "warnings": [{"kind": "sizes_do_not_fit", "detail": "no groups sum to 32", "environments": [3]}],
    "leases": [
        {"batch": f"b{number}", "state": "held", "step": 800 + number, "delivery_count": number % 2 + 1}
        for number in range(9)
    ],
    "relaxed_batches": 6,
    "ranks": {
        "batches": 10, "world_size": 4, "mean_imbalance": 0.0123, "mean_contiguous": 0.45, "mean_bound": 0.01,
        "last": {
            "method": "karmarkar_karp", "imbalance": 0.0, "max_over_min": 1.0, "contiguous": 0.5, "strided": 0.1,
            "bound": 0.0,
        },
    },
    "upkeep": {"detail": "Redis is full", "attempts": 3, "failing_age_s": 3.2},
    "limits": [{"name": "max_groups_per_s", "per_s": 20, "used": 0.754}], "durability": "a crash of the machine",
    "access": "insecure",
}  # fmt: skip


EXPLAINED: dict[str, Any] = {
    "ready": False, "reason": "minimum_short", "detail": "environment 3 needs 8 sequences and has 4",
    "last_batch_age_s": 4.0, "missing_sequences": 4, "missing_by_environment": {3: 4, 4: 1, 5: 2}, "unblocked_by": [],
    "expected_s": 12.6, "relaxes_s": 4.4, "leased_groups": 8, "stale_groups": 2, "arrived_groups": 100,
    "filtered_groups": {"constant_reward": 3, "reward_range": 1}, "alert": STATUS["alert"],
    "warnings": STATUS["warnings"],
    "environments": [
        {
            "environment": 3, "name": "gsm8k_0", "alive": True, "last_seen_age_s": 2.0, "last_group_age_s": 3600.0,
            "last_group_size": 8, "running_groups": 4, "sequences_per_s": 0.5,
        },
        {
            "environment": 4, "name": "math_0", "alive": True, "last_seen_age_s": 2.0, "last_group_age_s": None,
            "last_group_size": None, "running_groups": 4, "sequences_per_s": None,
        },
    ],
}  # fmt: skip
EXTRAS = StatusExtras(
    Explanation.model_validate(EXPLAINED),
    None,
    (
        CurriculumInfo.model_validate(
            {
                "name": "gsm8k", "settings": {"strategy": "plr"}, "items": 100, "items_seen": 42, "in_flight": 3,
                "observations": 50, "samples": 60, "bins": [], "categories": {},
            }
        ),
    ),
)  # fmt: skip


def seen(shown: RenderableType, width: int) -> list[str]:
    """Return the lines of an output on a terminal of this width."""
    terminal = Console(width=width, force_terminal=True, no_color=True, color_system=None, highlight=False)
    with terminal.capture() as captured:
        terminal.print(shown)
    return [line.rstrip() for line in captured.get().splitlines()]


def cells(shown: RenderableType, width: int) -> list[str]:
    """Return the same with one space between the columns of tables."""
    return [" ".join(line.split()) for line in seen(shown, width)]


LISTED = ListedGroup(
    id="g" * 16, state="queued", environment=3, environment_name="gsm8k-with-a-long-name", size=8, tokens=4096,
    mean_score=0.123456, policy_version=7, staleness=2, item="problem-000001-of-the-set", payload_bytes=100,
    received_age_s=90.0, batch=None, step=None, ended_age_s=None, reason=None,
)  # fmt: skip
GONE = LISTED.model_copy(
    update={
        "state": "dropped", "environment": None, "environment_name": None, "tokens": None, "mean_score": None,
        "policy_version": None, "staleness": None, "item": None, "step": 12, "reason": "stale",
    }
)  # fmt: skip


def test_the_command_groups_has_an_option_for_each_criterion_of_the_api() -> None:
    criteria = {name.removesuffix("_s") for name in GroupCriteria.model_fields}
    assert criteria - set(inspect.signature(groups).parameters) == set()


def test_a_narrow_list_of_groups_leaves_out_what_does_not_fit() -> None:
    assert seen(listed([LISTED, GONE], 129), 129) == [
        "group             state    environment  size  score    age",
        "gggggggggggggggg  queued   gsm8k-with…     8  0.123  2 min",
        "gggggggggggggggg  dropped  none            8         2 min",
    ]


def test_a_wide_list_of_groups_has_all_columns() -> None:
    assert cells(listed([LISTED, GONE], 130), 160) == [
        "group state environment item reason size score age tokens version stale step",
        "gggggggggggggggg queued gsm8k-with-a-long-name problem-00… 8 0.123 2 min 4096 7 2",
        "gggggggggggggggg dropped none stale 8 2 min 12",
    ]


def test_an_empty_list_of_groups_says_so() -> None:
    assert seen(listed([], 80), 80) == ["no group matches"]


def test_the_history_of_a_group_leaves_out_what_has_not_happened() -> None:
    waiting = GroupHistory(
        id="g1", state="queued", environment=None, size=8, tokens=None, mean_score=None, policy_version=None,
        staleness=None, item=None, payload_bytes=12_345, received_age_s=59.4, batch=None, step=None, ended_age_s=None,
        reason=None,
    )  # fmt: skip
    ended = waiting.model_copy(
        update={
            "state": "dropped", "environment": 3, "environment_name": "math", "policy_version": 0, "batch": "b1",
            "step": 4, "ended_age_s": 7200.0, "reason": "stale", "filtered_by": "constant_reward",
            "annotations": ["advantage", "entropy"],
        }
    )  # fmt: skip
    assert seen(history(waiting), 100) == [
        "group g1: queued",
        "environment none, 8 sequences, 12,345 bytes, policy version unknown",
        "received 59 s ago",
    ]
    assert seen(history(ended), 100) == [
        "group g1: dropped",
        "environment math, 8 sequences, 12,345 bytes, policy version 0",
        "received 59 s ago",
        "the filter constant_reward matched it and kept it with a weight",
        "batch b1 of step 4",
        "ended 2 h ago, because: stale",
        "annotations: advantage, entropy",
    ]


def test_contents_are_cut_after_two_thousand_characters_of_a_line_and_two_hundred_lines() -> None:
    facts: dict[str, Any] = {"id": "g1", "state": "queued", "size": 2, "lengths": [2, 5], "sequence": 1}
    columns = {"tokens": [[7, 8]], "masks": [[-100, 8]], "scores": [0.5]}
    short_one = GroupContent.model_validate({**facts, **columns, "metadata": {"a": "é"}, "cost": 1.5})
    assert seen(content(short_one), 100) == [
        "sequences have 2, 5 tokens",
        "sequence 1: score 0.5; 1 of the first 2 tokens are trained on",
        "tokens: 7 8 … 3 more",
        'metadata: {"a": "é"}',
        "cost: 1.5",
    ]
    equal = GroupContent.model_validate({**facts, **columns, "lengths": [5, 5]})
    assert seen(content(equal), 100)[0] == "sequences have 5 tokens"
    lines = GroupContent.model_validate({**facts, **columns, "item": "x" * 512, "messages": [[
        {"role": "user", "content": "y" * 2001},
        {"role": "assistant", "content": "\n".join(map(str, range(201)))},
        {"role": "tool", "content": "\n".join(map(str, range(200)))},
    ]]})  # fmt: skip
    shown = seen(content(lines), 3000)
    assert shown[3] == f"user: {'y' * 1993}…"
    assert [shown[4], shown[5], shown[203], shown[204]] == [
        "assistant: 0",
        "    1",
        "    199",
        "    … 693 characters in all (--json has them)",
    ]
    assert [shown[205], shown[404]] == [
        "tool: 0",
        "    199",
    ]
    assert shown[405:] == [f"item: {'x' * 512}"]


def test_the_status_of_a_run_says_all_there_is() -> None:
    found = RunStatus.model_validate(STATUS)
    assert seen(status(found, 109, EXTRAS), 110) == [
        "run math: step 812, policy version 811, batches of 32",
        "storage: a crash of the machine",
        "LACHESIS_INSECURE is set: everyone who reaches the service may do everything",
        "serving is paused: the run hands out no batches",
        "intake is paused: environments start no groups",
        "next batch: blocked: environment 3 needs 8 sequences and has 4",
        "groups: 100 accepted: 5 queued, 1 buffered, 8 leased, 83 delivered, 3 dropped (1 constant_reward, 2 stale)",
        "tokens: 12,345,678 generated: 6,000,000 trained, 345,678 queued, 6,000,000 stale; cost 24.69, 12.00 trained",
        "oversized (larger than a batch): 2",
        "oldest waiting group: 1 min",
        "relaxed batches: 6",
        "not acknowledged: step 800 held, delivery 1; step 801 held, delivery 2; step 802 held, delivery 1; step 803",
        "held, delivery 2; step 804 held, delivery 1; step 805 held, delivery 2; step 806 held, delivery 1; step 807",
        "held, delivery 2; …",
        "ranks: 10 batches for 4, mean imbalance 1.2% (contiguous 45.0%, bound 1.0%)",
        "limit max_groups_per_s = 20: 75% used",
        "arriving: 7.26 sequences/s, measured over at most a minute; a batch is expected in 13 s",
        "curriculum gsm8k: plr, 42 of 100 items seen, 3 in flight",
        "alert since 1 min ago: environment 3 sends too little",
        "maintenance of the run has been failing for 3 s: Redis is full",
        "warning: no groups sum to 32",
        "",
        "environment                   alive  queued  promised  got  owed  dropped",
        "3 gsm8k_0                       yes       5       25%  31%     7        3",
        "12 nnnnnnnnnnnnnnnnnnnnnnnn…     no       5       25%    -     7        3",
        "… and 3 more",
    ]
    assert seen(status(found, 110, EXTRAS), 110)[-4:] == [
        "environment                   alive  queued  promised  got  owed  dropped  buffered  served      seen",
        "3 gsm8k_0                       yes       5       25%  31%     7        3         1     640  12 s ago",
        "12 nnnnnnnnnnnnnnnnnnnnnnnn…     no       5       25%    -     7        3         1     640  12 s ago",
        "… and 3 more",
    ]


def test_an_explanation_names_what_each_environment_lacks() -> None:
    assert seen(explanation(Explanation.model_validate(EXPLAINED)), 100) == [
        "no batch: minimum_short: environment 3 needs 8 sequences and has 4",
        "expected in 13 s at the present rates",
        "minimums are relaxed in 4 s",
        "environment 3 lacks 4 sequences: gsm8k_0, heard 2 s ago, last group 1 h ago",
        "environment 4 lacks 1 sequence: math_0, heard 2 s ago, no group yet",
        "environment 5 lacks 2 sequences",
        "filtered groups: 3 by constant_reward, 1 by reward_range, of 100 lately",
        "alert: environment 3 sends too little",
        "warning: no groups sum to 32",
    ]
    ready = {**EXPLAINED, "ready": True, "expected_s": None, "relaxes_s": None, "missing_by_environment": {}}
    ready |= {"filtered_groups": {}, "alert": None, "warnings": []}
    assert seen(explanation(Explanation.model_validate(ready)), 100) == ["a batch is ready"]


def test_the_overview_has_a_row_for_each_run_and_names_what_is_wrong() -> None:
    troubled = RunStatus.model_validate(STATUS)
    healthy = RunStatus.model_validate(
        {**STATUS, "alert": None, "warnings": [], "upkeep": None, "ready": True, "blocked": None, "pace": None,
         "batch_size": -1, "dropped": {}, "ledger": {**LEDGER, "generated_tokens": 0}}
    )  # fmt: skip
    assert (state(troubled), state(healthy)) == ("troubled", "ready")
    run = Run.model_construct
    runs = (
        SeenRun(run(name="math"), troubled),
        SeenRun(run(name="n" * 70), healthy),
        SeenRun(run(name="old"), None, "the service is busy"),
    )
    all_runs = Overview(runs, (UnreadableRun(name="broken", detail="no settings"),), has_more=True)
    wrong = [
        "run broken cannot be read: no settings",
        "run old: the service is busy",
        "run math: alert since 1 min ago: environment 3 sends too little",
        "run math: maintenance of the run has been failing for 3 s: Redis is full",
        "run math: warning: no groups sum to 32",
        "… and more: these are the first 1000",
    ]
    assert cells(overview(all_runs, 179), 179) == [
        "run state step version dropped relaxed seq/s trained",
        "math troubled 812 811 3 6 7.26 49% of 12M",
        "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn… ready 812 811 0 6 - -",
        "old ?",
        *wrong,
    ]
    assert cells(overview(all_runs, 180), 180) == [
        "run state step version dropped relaxed seq/s generated trained batch size queued leased drop reasons",
        "math troubled 812 811 3 6 7.26 12,345,678 6,000,000 32 5 8 2 stale, 1 constant_reward",
        "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn… ready 812 811 0 6 - 0 6,000,000 - 5 8",
        "old ?",
        *wrong,
    ]
    assert seen(overview(Overview((), (), has_more=False), 80), 80) == ["there are no runs"]


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0, "0 s"), (59.4, "59 s"), (60, "1 min"), (3599, "60 min"), (3600, "1 h"), (86_400, "1 d"), (172_800, "2 d")],
)
def test_a_time_is_shown_in_its_largest_unit(seconds: float, shown: str) -> None:
    assert span(seconds) == shown


@pytest.mark.parametrize(
    ("count", "shown"),
    [(0, "0"), (999, "999"), (1000, "1.0k"), (9949, "9.9k"), (9950, "10k"), (999_499, "999k"), (999_500, "1.0M"),
     (10**15, "1000T")],
)  # fmt: skip
def test_a_large_count_has_few_characters(count: int, shown: str) -> None:
    assert short(count) == shown


def test_a_long_text_is_cut_at_its_length() -> None:
    assert (cut("abc", 3), cut("abcd", 3), len(cut("x" * 201))) == ("abc", "ab…", 200)
