"""Unmodified Atropos environments and the library's trainer client against the service, on good days and on bad ones.

One environment of the four submits in binary (`lachesis.atropos`); all else of it is the library's, too.

`make e2e` runs all of it; `-m "e2e and not slow"` leaves out the long versions.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.e2e.ledger import Account, Batch
from tests.e2e.processes import kill, wait_until
from tests.e2e.service import Service
from tests.e2e.story import BATCH_SIZE, MINIMUM_SEQUENCES, USUAL, Story

pytestmark = pytest.mark.e2e

PATIENCE_S = 300.0
PLENTY_OF_BATCHES = 4
PLENTY_OF_LOOKS = 5
ITEMS = 40


@pytest.fixture
def one_worker(tmp_path: Path) -> Iterator[Service]:
    service = Service(tmp_path)
    yield service
    service.stop()


@pytest.fixture
def three_workers(tmp_path: Path) -> Iterator[Service]:
    service = Service(tmp_path, workers=3)
    yield service
    service.stop()


@pytest.fixture
def closed(tmp_path: Path) -> Iterator[Service]:
    """A service that asks everyone for a token."""
    service = Service(tmp_path, closed=True)
    yield service
    service.stop()


@pytest.mark.slow
def test_real_clients_get_exact_batches_and_lose_no_group(one_worker: Service, tmp_path: Path) -> None:
    with Story(one_worker, tmp_path) as story:
        a_good_day(story, batches=300)


def test_real_clients_authenticate_with_the_password_of_their_base_url(closed: Service, tmp_path: Path) -> None:
    """Each environment has a token for itself alone."""
    tokens = {name: closed.token("environment", runs=["default"], environment=name) for name in USUAL}
    tokens["trainer"] = closed.token("trainer", runs=["default"])
    with Story(closed, tmp_path, tokens=tokens) as story:
        a_good_day(story, batches=30)


def a_good_day(story: Story, batches: int) -> None:
    """Nothing fails, so nothing is sent twice, served twice or left unexplained."""
    story.wait_for_batches(batches, PATIENCE_S)
    account = story.finish()
    assert_promises_kept(story, account)
    assert account.redelivered == 0
    assert all(sent.retried == 0 for sent in account.sent), "a request failed on a good day"
    assert not any(sent.refused for sent in account.sent), "a valid group was refused"
    assert_submitted_natively(story, "binary", account)


@pytest.mark.parametrize("between", [pytest.param(8, id="short"), pytest.param(60, id="long", marks=pytest.mark.slow)])
def test_real_clients_survive_killed_workers_and_redis(between: int, three_workers: Service, tmp_path: Path) -> None:
    """The bad day: kill -9 of a worker and of Redis; the clients are never touched."""
    service = three_workers
    with Story(service, tmp_path, names=("plain", "minimum", "lists")) as story:
        story.wait_for_batches(between, PATIENCE_S)
        kill(service.worker_pids()[0])
        story.wait_for_batches(between, PATIENCE_S)
        kill(service.redis_pid())
        story.wait_for_batches(between, PATIENCE_S)
        assert max(sent.most_attempts for sent in story.sent()) <= 2, "a client needed more than one retry"
        assert_promises_kept(story, story.finish())


@pytest.mark.slow
def test_real_clients_survive_a_restart_of_the_service(three_workers: Service, tmp_path: Path) -> None:
    """The worst day: kill -9 of everything at once.

    By chance rather than by us, the library's three tries fall within the restart, and a client gives up: their waits
    are random, from nothing on. So this is not among the tests that every change has to pass.
    """
    service = three_workers
    with Story(service, tmp_path, names=("plain", "minimum", "lists")) as story:
        story.wait_for_batches(60, PATIENCE_S)
        service.kill_everything()
        service.start()
        story.wait_for_batches(60, PATIENCE_S)
        assert_promises_kept(story, story.finish())


def test_real_clients_end_if_their_token_is_wrong(closed: Service, tmp_path: Path) -> None:
    """An environment shows the answer. The library's trainer says only that it cannot reach the service."""
    wrong = closed.token("trainer", runs=["default"])[:-1] + "~"
    with Story(closed, tmp_path, names=("plain",), tokens={"plain": wrong, "trainer": wrong}) as story:
        environment = story.environments["plain"]
        assert environment.wait(60) != 0
        assert "Status: 401" in environment.log.read_text()
        assert '"code":"unauthorized"' in environment.log.read_text()
        assert story.trainer.wait(60) != 0
        assert "Atropos API server not reachable" in story.trainer.log.read_text()


def test_a_native_trainer_gets_groups_of_atropos_environments(three_workers: Service, tmp_path: Path) -> None:
    """Also while a worker and Redis are killed: a group sent in binary is repeated by its id, and stored once."""
    service = three_workers
    with Story(service, tmp_path, "native_trainer.py", ("plain", "binary")) as story:
        story.wait_for_batches(5, PATIENCE_S)
        kill(service.worker_pids()[0])
        story.wait_for_batches(5, PATIENCE_S)
        kill(service.redis_pid())
        story.wait_for_batches(5, PATIENCE_S)
        account = story.finish()
        print(account.summary())
        assert account.complaints() == []
        assert {batch.sequences for batch in account.batches} == {BATCH_SIZE}
        assert all(sent.acknowledged & set(account.served()) for sent in account.sent), "a way that nothing came on"
        assert_submitted_natively(story, "binary", account)


def test_an_atropos_environment_uses_a_curriculum(one_worker: Service, tmp_path: Path) -> None:
    """The recipe of docs/how-to/curriculum.md as it is written there, of 40 items some of which the model can do."""
    with Story(one_worker, tmp_path, names=("curriculum",)) as story:
        story.wait_for_batches(15, PATIENCE_S)
        account = story.finish()
        assert account.complaints() == []
        hands: Counter[str] = Counter()
        scores: dict[str, list[float]] = defaultdict(list)
        for event in story.events("curriculum"):
            if event["event"] == "drawn":
                hands[event["key"]] += 1
                assert hands[event["key"]] == 1, "an item was handed out that somebody was at"
            elif event["event"] == "scored":
                hands[event["key"]] -= 1
                scores[event["key"]].append(event["mean"])
        assert len(scores) > ITEMS / 2
        items = "/v1/runs/default/curricula/gsm8k"
        wait_until("all is counted", lambda: story.service.read(items)["observations"] == total(scores))
        for key, means in scores.items():
            assert story.service.read(f"{items}/items/{key}")["history"] == pytest.approx(means[-50:])
        assert story.service.read(items)["settings"]["strategy"] == "learnability"


def test_real_clients_start_no_groups_in_a_pause_and_continue_after_it(one_worker: Service, tmp_path: Path) -> None:
    """In the first pause they join, in the second they are at work."""
    one_worker.send("POST", "/v1/runs", name="default", batch_size=BATCH_SIZE, intake_paused=True)
    with Story(one_worker, tmp_path, names=("minimum", "binary")) as story:
        for _ in range(2):
            done = {name: len(story.events(name)) for name in story.environments}
            one_worker.send("PATCH", "/v1/runs/default", intake_paused=True)
            for name in story.environments:
                paused = wait_for(story, name, "paused", done[name], PLENTY_OF_LOOKS)
                assert "begun" not in paused[paused.index("paused") :]
            one_worker.send("PATCH", "/v1/runs/default", intake_paused=False)
            for name in story.environments:
                wait_for(story, name, "begun", len(story.events(name)))
            story.wait_for_batches(2, PATIENCE_S)
        account = story.finish()
        assert account.complaints() == []
        assert all(sent.acknowledged for sent in account.sent), "an environment sent nothing"


def wait_for(story: Story, name: str, event: str, after: int, times: int = 1) -> list[str]:
    """Give what an environment wrote down after its first events, once one more event is there so many times."""

    def written() -> list[str]:
        return [str(each["event"]) for each in story.events(name)[after:]]

    story.environments[name].wait_until(f"{name} wrote {event!r}", lambda: written().count(event) >= times)
    return written()


def total(scores: Mapping[str, list[float]]) -> int:
    """Count scores."""
    return sum(map(len, scores.values()))


def assert_submitted_natively(story: Story, name: str, account: Account) -> None:
    """Check that the service knows an environment's groups by the ids it gave them: the Atropos surface takes none."""
    paths = [f"/v1/runs/default/groups/{group}" for group in story.named(name)]
    for path in paths:  # those of cancelled workers may still be on their way
        wait_until(f"{path} has arrived", lambda path=path: story.service.has(path), 30)  # type: ignore[misc]
    lives = [story.service.read(path) for path in paths]
    assert {life["environment"] for life in lives} == {story.env_id(name)}
    assert not any(life["state"] == "buffered" for life in lives)
    (sent,) = (sent for sent in account.sent if sent.name == name)
    assert set(sent.attempts.values()) == {1}, "its sender repeats a group, not its environment"
    assert sum(life["state"] == "delivered" for life in lives) == len(set(account.served()) & set(sent.attempts))


def assert_promises_kept(story: Story, account: Account) -> None:
    """Check what must hold on any day, and print the account."""
    print(account.summary())
    assert account.complaints() == []
    assert [batch.sequences for batch in account.batches] == [BATCH_SIZE] * len(account.batches)
    assert all(sent.acknowledged for sent in account.sent), "an environment sent nothing"
    minimum = story.env_id("minimum")
    bound = [batch for batch in account.batches if must_keep_minimum(batch, minimum)]
    assert len(bound) >= PLENTY_OF_BATCHES, "too few batches were formed while the minimum was in force"
    assert [b.sequences_of(minimum) for b in bound if b.sequences_of(minimum) < MINIMUM_SEQUENCES] == []
    status = story.service.status()
    groups = status["groups"]
    assert groups["accepted"] == groups["queued"] + groups["buffered"] + groups["leased"] + groups["delivered"]
    assert status["dropped"] == {}
    assert status["relaxed_batches"] == 0
    assert {environment["name"] for environment in status["environments"]} == {
        f"{name}_0" for name in story.environments
    }


def must_keep_minimum(batch: Batch, environment: int) -> bool:
    """Return whether an environment was alive before and after the batch was asked for, so its minimum bound it."""
    return all(
        any(e["id"] == environment and e["alive"] for e in status.get("environments", []))
        for status in (batch.before, batch.after)
    )
