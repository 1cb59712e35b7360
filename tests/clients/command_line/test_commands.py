"""``python -m lachesis status | explain | events`` against a real service, and the same of ``python -m app``."""

import asyncio
import json
import re
import sys

import pytest
from redis.asyncio import Redis

from app.store.redis.keys import RunKeys
from lachesis import AsyncEnvironment, AsyncReplay, AsyncTrainer, Rank, Settings
from lachesis.errors import RunNotFound
from tests.api.access.conftest import Tokens, tokens
from tests.clients.command_line.terminal import in_terminal, piped, unread
from tests.clients.proxy import CuttingProxy
from tests.clients.run import group, submitted
from tests.forked import ROOT, environment
from tests.waiting import wait_until

__all__ = ["tokens"]  # the fixture

pytestmark = [pytest.mark.long, pytest.mark.timeout(200)]

HOSTILE = "[red]x[/red]\x1b[2J\x1b]0;t\x07\u202e\u2028 " + "n" * 180
WIDTHS = (80, 200)
MODULES = ("lachesis", "app")


async def populated(run: Settings) -> None:
    """Take and end a batch, and leave an environment with a hostile name and a batch with a hostile reason."""
    async with AsyncTrainer(run, name=HOSTILE) as trainer:
        async with AsyncEnvironment(HOSTILE, run) as environment:
            await submitted(environment, [group(1), group(2), group(3), group(4)])
            batch = await trainer.take()
            assert batch is not None
            await batch.ack()
            again = await trainer.take()
            assert again is not None
            await again.nack(HOSTILE)

        async def told() -> bool:
            page = await trainer._sender.send(trainer._calls.events("0", 1000))
            return "environment left" in [event.kind for event in page.events]  # the last one

        await wait_until(told)


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("columns", WIDTHS)
async def test_each_command_fits_the_terminal_and_shows_hostile_names_escaped(
    run: Settings, columns: int, module: str
) -> None:
    await populated(run)
    for words in (["status"], ["status", "math"], ["explain", "math"], ["events", "math"]):
        _, lines = await in_terminal(columns, *words, module=module, LACHESIS_URL=run.url)
        assert lines, words
        assert [line for line in lines if not line.isprintable()] == [], words
        assert max(map(len, lines)) <= columns, words
        if words == ["status", "math"]:
            (header,) = [line.split() for line in lines if line.startswith("environment ")]
            assert header[1:7] == ["alive", "queued", "promised", "got", "owed", "dropped"], "a long name hides none"
            assert header[7:] == (["buffered", "served", "seen"] if columns == 200 else [])
    text = "\n".join(lines)
    assert "[red]x[/red]" in text.replace("\n", "")
    assert r"\u001b[2J" in text.replace("\n", ""), "values of events are JSON"


async def test_the_status_lists_runs_and_shows_one(run: Settings) -> None:
    await populated(run)
    code, out, err = await piped("status", LACHESIS_URL=run.url)
    assert (code, err) == (0, "")
    header, row = out.splitlines()
    assert header.split()[:7] == ["run", "state", "step", "version", "dropped", "relaxed", "seq/s"]
    assert row.split()[:6] == ["math", "ready", "2", "0", "0", "0"]
    code, out, _ = await piped("status", "math", "--url", run.url)
    assert code == 0
    assert "run math: step 2" in out
    assert "groups: 4 accepted: 2 queued, 0 buffered, 0 leased, 2 delivered, 0 dropped" in out
    assert "[red]x[/red]" in out
    code, out, _ = await piped("status", "math", "--json", LACHESIS_URL=run.url)
    async with AsyncTrainer(run) as trainer:
        beside = {"explanation", "replay", "curricula"}
        assert json.loads(out).keys() == (await trainer.status()).model_dump().keys() | beside


@pytest.mark.parametrize("columns", WIDTHS)
async def test_the_status_of_all_runs_shows_rates_and_exits_like_that_of_one(run: Settings, columns: int) -> None:
    name = "n" * 64
    async with AsyncTrainer(run) as trainer, AsyncEnvironment("math", run) as environment:
        ids = await submitted(environment, [group(1), group(2, 3, 4), group(5)])
        await trainer.delete_group(ids[2])
        await trainer.set_policy_version(7)
        batch = await trainer.take()
        assert batch is not None
        await batch.ack()

        async def rates_known() -> bool:
            pace = (await trainer.status()).pace
            return pace is not None and pace.arriving_sequences_per_s is not None

        await wait_until(rates_known)
        code, lines = await in_terminal(columns, "status", LACHESIS_URL=run.url)
        assert (code, len(lines)) == (0, 2)
        shown = dict(zip(lines[0].split(), lines[1].split(), strict=False))
        assert [shown[one] for one in ("run", "state", "step", "version")] == ["math", "blocked", "1", "7"]
        assert [shown[one] for one in ("dropped", "relaxed")] == ["1", "0"]
        assert float(shown["seq/s"]) >= 0
        assert ("80% of 5" if columns == 80 else "5  ") in lines[1]
        assert ("1 deleted" in lines[1]) == (columns == 200)
    async with AsyncTrainer(run, run=name) as other:
        await other.create_run(batch_size=2)
        async with AsyncEnvironment("large", run, run=name, group_size=3):

            async def is_warned() -> bool:
                return bool((await other.status()).warnings)

            await wait_until(is_warned)
            code, lines = await in_terminal(columns, "status", LACHESIS_URL=run.url)
            assert code == 1, "as for one run"
            assert max(map(len, lines)) <= columns
            assert lines[2].startswith("n" * 8)
            assert lines[2].split()[1] == "troubled"
            assert f"run {name}: warning:" in "".join(lines[3:])
            code, out, _ = await piped("status", "--json", LACHESIS_URL=run.url)
            assert code == 1
            math, troubled = json.loads(out)["runs"]
            assert (math["status"]["dropped"], math["status"]["ledger"]["trained_tokens"]) == ({"deleted": 1}, 4)
            assert troubled["status"]["warnings"] != []


@pytest.mark.parametrize("module", MODULES)
async def test_the_status_has_what_stands_beside_the_run(run: Settings, module: str) -> None:
    """Leased batches, ranks, rates, the replay buffer and the curricula."""
    async with AsyncTrainer(run) as trainer, AsyncEnvironment("math", run) as environment, AsyncReplay(run) as replay:
        await submitted(environment, [group(1), group(2, 3, 4)])
        await replay.set_up()
        await trainer.curriculum("gsm8k").set_up()
        await trainer.curriculum("gsm8k").register(["a", "b"])

        async def rates_known() -> bool:
            pace = (await trainer.status()).pace
            return pace is not None and pace.arriving_sequences_per_s is not None

        async for batch in trainer.batches(prefetch=0, rank=Rank(1, 2)):
            await wait_until(rates_known)  # a rate needs two looks, about a second apart
            _, out, err = await piped("status", "math", module=module, LACHESIS_URL=run.url)
            _, same, _ = await piped("status", "math", "--json", module=module, LACHESIS_URL=run.url)
            await batch.nack()
            break
    assert err == ""
    lines = out.splitlines()
    assert "not acknowledged: step 1 held, delivery 1" in lines
    assert "ranks: 1 batches for 2, mean imbalance 50.0% (contiguous 50.0%, bound 50.0%)" in lines
    assert [line for line in lines if line.startswith("arriving: ") and " sequences/s" in line]
    assert "replay: 0 chunks to sample from, 0 samples held" in lines
    assert "replay: samples wait: sampling 1 needs 1 chunk; 0 can be sampled" in lines
    assert "curriculum gsm8k: uniform, 0 of 2 items seen, 0 in flight" in lines
    found = json.loads(same)
    assert found["pace"]["arriving_sequences_per_s"] is not None
    assert (found["replay"]["sampleable_chunks"], found["curricula"][0]["name"]) == (0, "gsm8k")


async def test_a_run_that_is_not_there_comes_with_those_that_are(run: Settings) -> None:
    for words in (["status", "typo"], ["explain", "typo"], ["groups", "typo"], ["show", "x", "--run", "typo"]):
        code, out, err = await piped(*words, LACHESIS_URL=run.url)
        expected = f"lachesis: there is no run typo; there are: math. {RunNotFound.remedy}\n"
        assert (code, out, err) == (1, "", expected), words
    async with AsyncTrainer(run) as trainer:
        await trainer.delete_run()
    _, _, err = await piped("status", "typo", LACHESIS_URL=run.url)
    assert err == f"lachesis: there is no run typo; nobody has made one yet. {RunNotFound.remedy}\n"


async def test_failing_maintenance_is_shown(run: Settings, redis_client: Redis) -> None:
    await redis_client.set(RunKeys("math").marked_hashes, "no set")

    async def is_shown() -> bool:
        code, out, _ = await piped("status", "math", LACHESIS_URL=run.url)
        return code == 1 and "\nmaintenance of the run has been failing for " in out and "WRONGTYPE" in out

    await wait_until(is_shown)


async def test_explain_exits_with_1_while_there_is_no_batch(run: Settings) -> None:
    code, out, _ = await piped("explain", LACHESIS_URL=run.url, LACHESIS_RUN="math")
    assert code == 1
    assert out.startswith("no batch: too_few_sequences: ")
    async with AsyncEnvironment("math", run) as environment:
        await submitted(environment, [group(1), group(2)])
    code, out, _ = await piped("explain", "math", LACHESIS_URL=run.url)
    assert (code, out) == (0, "a batch is ready\n")
    code, out, _ = await piped("explain", "math", "--json", LACHESIS_URL=run.url)
    assert json.loads(out)["ready"] is True


async def test_explain_names_the_environment_that_must_send(run: Settings) -> None:
    async with AsyncEnvironment("math", run, min_share=0.5) as environment:
        await submitted(environment, [group(1)])
        async with AsyncEnvironment("code", run, min_share=0.5):
            code, out, _ = await piped("explain", "math", LACHESIS_URL=run.url)
    assert code == 1, out
    assert re.search(r"^environment \d+ lacks 1 sequence: code, heard \d+ s ago, no group yet$", out, re.M), out


async def test_events_are_lines_or_json_the_last_ones_if_there_are_many(run: Settings) -> None:
    await populated(run)
    code, out, _ = await piped("events", "math", "--json", LACHESIS_URL=run.url)
    events = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert events[0]["kind"] == "run created"
    kinds = [event["kind"] for event in events]
    assert kinds.index("batch taken") < kinds.index("batch acknowledged") < kinds.index("batch given back")
    code, out, _ = await piped("events", "math", "--limit", "2", "--json", LACHESIS_URL=run.url)
    assert [json.loads(line)["id"] for line in out.splitlines()] == [event["id"] for event in events[-2:]]
    code, out, _ = await piped("events", "math", "--after", events[-2]["id"], LACHESIS_URL=run.url)
    assert len(out.splitlines()) == 1
    assert events[-1]["kind"] in out


@pytest.mark.parametrize("module", ["lachesis", "app"])
@pytest.mark.parametrize("command", ["events", "status", "groups"])
async def test_a_command_whose_output_nobody_reads_ends_as_after_sigpipe(
    run: Settings, command: str, module: str
) -> None:
    await populated(run)
    for words in ([command, "math"], [command, "math", "--json"]):
        assert await unread(*words, module=module, LACHESIS_URL=run.url) == (141, "")


async def endless(run: Settings, *words: str) -> tuple[asyncio.subprocess.Process, asyncio.StreamReader]:
    """Start a command that does not end by itself. Return the process and what it writes."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-u", "-m", "lachesis", *words, stdout=pipe, stderr=pipe, env=environment(LACHESIS_URL=run.url)
    )
    assert process.stdout is not None
    return process, process.stdout


async def test_followed_events_come_until_the_run_is_deleted(run: Settings) -> None:
    process, shown = await endless(run, "events", "math", "--follow", "--json")
    async with asyncio.timeout(150), AsyncTrainer(run) as trainer:
        assert json.loads(await shown.readline())["kind"] == "run created"
        await trainer.change_run(max_staleness=7)
        assert json.loads(await shown.readline())["changes"] == {"max_staleness": 7}
        await trainer.delete_run()
        assert json.loads(await shown.readline())["kind"] == "run deleted"
        assert await process.wait() == 0


async def test_followed_events_continue_after_the_service_was_away(run: Settings, proxy: CuttingProxy) -> None:
    process, shown = await endless(run, "events", "math", "--follow", "--json")
    assert process.stderr is not None
    async with asyncio.timeout(150), AsyncTrainer(run) as trainer:
        assert json.loads(await shown.readline())["kind"] == "run created"
        service, proxy.upstream = proxy.upstream, None
        await proxy.drop_all()
        told = (await process.stderr.readline()).decode()
        assert re.match(r"lachesis: GET \S+/events\?.*\. Trying again until the service answers$", told)
        refused = proxy.refused
        await wait_until(lambda: proxy.refused > refused)
        proxy.upstream = service
        await trainer.change_run(max_staleness=7)
        assert json.loads(await shown.readline())["changes"] == {"max_staleness": 7}
        process.send_signal(2)
        assert await process.wait() == 0


async def watched_status(run: Settings) -> tuple[asyncio.subprocess.Process, asyncio.StreamReader]:
    """Start to watch the status of math in JSON. Return the process and what it writes."""
    return await endless(run, "status", "math", "--watch", "--json")


async def test_a_watched_status_goes_on_until_it_is_interrupted(run: Settings) -> None:
    process, shown = await watched_status(run)
    async with asyncio.timeout(150):
        for _ in range(2):
            assert json.loads(await shown.readline())["run"] == "math"
        process.send_signal(2)
        assert await process.wait() == 0


async def test_a_watched_status_is_printed_again_into_a_pipe(run: Settings) -> None:
    process, shown = await endless(run, "status", "math", "--watch")
    async with asyncio.timeout(150):
        for _ in range(2):
            while not (line := await shown.readline()).startswith(b"run math: "):
                assert line, "it has ended"
        process.send_signal(2)
        assert await process.wait() == 0


async def test_a_watched_status_continues_after_the_service_was_away(run: Settings, proxy: CuttingProxy) -> None:
    process, shown = await watched_status(run)
    async with asyncio.timeout(150):
        assert json.loads(await shown.readline())["run"] == "math"
        service, proxy.upstream = proxy.upstream, None
        await proxy.drop_all()
        while "error" not in (found := json.loads(await shown.readline())):
            assert found["run"] == "math"
        assert found["error"].startswith("GET ")
        proxy.upstream = service
        while "run" not in (found := json.loads(await shown.readline())):
            assert found.keys() == {"error"}
        assert found["run"] == "math"
        process.send_signal(2)
        assert await process.wait() == 0


async def test_a_watched_status_ends_if_there_is_no_such_run(run: Settings) -> None:
    assert (await piped("status", "none", "--watch", LACHESIS_URL=run.url))[0] == 1


async def test_exit_codes_tell_what_is_wrong(run: Settings, proxy: CuttingProxy, tokens: Tokens) -> None:
    assert (await piped("status", "none", LACHESIS_URL=run.url))[0] == 1
    assert (await piped("status", "--wrong", LACHESIS_URL=run.url))[0] == 2
    assert (await piped("explain", "math", LACHESIS_URL="localhost:8000"))[0] == 2
    assert (await piped("events", "math", "--limit", "0", LACHESIS_URL=run.url))[0] == 2
    code, out, err = await piped("events", "math", "--after", "yesterday", LACHESIS_URL=run.url)
    assert (code, out) == (2, ""), "the service finds it"
    assert err.startswith("lachesis: query.after: ")
    code, out, err = await piped("status", "math", LACHESIS_URL="http://127.0.0.1:1")
    assert (code, out) == (3, "")
    assert err.startswith("lachesis: GET http://127.0.0.1:1/v1/runs/math/status: ")
    await tokens.make("operator")

    async def closed() -> bool:
        return (await piped("status", "math", LACHESIS_URL=run.url))[0] == 4

    await wait_until(closed)
    viewer = await tokens.make("viewer", "math")
    code, out, err = await piped("status", "math", LACHESIS_URL=run.url, LACHESIS_TOKEN=viewer)
    assert (code, err) == (0, "")
    assert viewer not in (await piped("status", "other", LACHESIS_URL=run.url, LACHESIS_TOKEN=viewer))[2]


async def test_without_the_extra_the_command_says_what_to_install(run: Settings) -> None:
    script = (
        "import sys, importlib.util as u; found = u.find_spec\n"
        "import lachesis.__main__ as m\n"
        "m.find_spec = lambda name: None if name == 'typer' else found(name)\n"
        "sys.exit(m.main(['status']))"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, stderr=asyncio.subprocess.PIPE, env=environment(), cwd=ROOT / "clients"
    )
    _, err = await process.communicate()
    assert process.returncode == 2
    assert err.decode() == "this command needs typer: pip install typer\n"


async def test_a_password_in_the_url_is_refused_in_arguments_and_used_from_the_variable(
    run: Settings, tokens: Tokens
) -> None:
    """Other users can read command lines, and cannot read variables."""
    token = await tokens.make("viewer", "*")
    url = run.url.replace("://", f"://name:{token}@")
    for words in (("status", "--url", url), ("doctor", "--url", url), ("status", "--url", "http://name@host")):
        code, out, err = await piped(*words)
        assert (code, out, "LACHESIS_TOKEN_FILE" in err, token in err) == (2, "", True, False), err
    assert (await piped("status", LACHESIS_URL=url))[0] == 0
