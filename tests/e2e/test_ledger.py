"""The accounting of the end-to-end tests must itself be able to say no."""

import json
from pathlib import Path

from tests.e2e.ledger import Account, Batch, Sent, read_journal


def sent(acknowledged: int, unanswered: int = 0) -> Sent:
    """An environment that sent so many groups of two: `a0`, `a1`, ... answered and `u0`, ... not."""
    record = Sent("plain", acknowledged={f"a{i}" for i in range(acknowledged)})
    record.attempts.update([*record.acknowledged, *(f"u{i}" for i in range(unanswered))])
    return record


def batch(*groups: str) -> Batch:
    return Batch(tuple((group, 2, 0) for group in groups), before={}, after={})


def test_served_and_waiting_groups_add_up() -> None:
    assert Account.draw_up([sent(3)], [batch("a0", "a1")], waiting=1).complaints() == []


def test_a_lost_group_is_noticed() -> None:
    assert "waiting" in Account.draw_up([sent(3)], [batch("a0", "a1")], waiting=0).complaints()[0]


def test_a_group_that_appeared_from_nowhere_is_noticed() -> None:
    assert "more than" in Account.draw_up([sent(3)], [batch("a0", "a1")], waiting=2).complaints()[0]


def test_a_group_that_was_changed_on_the_way_is_noticed() -> None:
    assert "changed" in Account.draw_up([sent(3)], [batch("a0", "a1*")], waiting=2).complaints()[0]


def test_a_group_served_twice_is_noticed() -> None:
    account = Account.draw_up([sent(3)], [batch("a0", "a1"), batch("a1", "a2")], waiting=0)
    assert "more often" in account.complaints()[0]


def test_a_group_whose_answer_was_lost_may_have_arrived_or_not() -> None:
    assert Account.draw_up([sent(2, unanswered=1)], [batch("a0", "a1", "u0")], waiting=0).complaints() == []
    assert Account.draw_up([sent(2, unanswered=1)], [batch("a0", "a1")], waiting=0).complaints() == []


def test_a_repeated_batch_counts_as_redelivered() -> None:
    account = Account.draw_up([sent(2)], [batch("a0", "a1"), batch("a0", "a1")], waiting=0)
    assert (account.complaints(), account.redelivered, len(account.batches)) == ([], 1, 1)


def test_a_journal_tells_answered_from_open_and_from_unanswered(tmp_path: Path) -> None:
    journal = tmp_path / "journal.jsonl"
    group = {"group": "g", "size": 2, "env_id": 0}
    events = [
        {"event": "attempt", "attempt": "1", "groups": [group]},
        {"event": "closed", "attempt": "1"},
        {"event": "attempt", "attempt": "2", "groups": [group]},
        {"event": "answer", "attempt": "2", "status": 200},
        {"event": "closed", "attempt": "2"},
        {"event": "attempt", "attempt": "3", "groups": [group | {"group": "h"}]},
    ]
    journal.write_text("".join(json.dumps(event) + "\n" for event in events) + '{"event": "clo')
    record = Sent.read("plain", journal)
    assert (record.acknowledged, record.open_attempts, record.most_attempts, record.retried) == ({"g"}, 1, 2, 1)
    assert len(read_journal(journal)) == len(events)
