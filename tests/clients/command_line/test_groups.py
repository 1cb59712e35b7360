"""``python -m lachesis groups | show`` against a real service."""

import json

import ml_dtypes
import numpy as np
import pytest

from lachesis import AsyncEnvironment, AsyncTrainer, Group, Settings
from tests.api.access.conftest import Tokens, tokens
from tests.clients.command_line.terminal import in_terminal, piped
from tests.clients.run import group, submitted
from tests.waiting import wait_until

__all__ = ["tokens"]  # the fixture

pytestmark = [pytest.mark.long, pytest.mark.timeout(200)]

HOSTILE = "[red]x[/red]\x1b[2J\x1b]0;t\x07\u202e\u2028 " + "n" * 180
CHAT = [[{"role": "user\x1b[31m", "content": f"2 + 2?\n{HOSTILE}"}]]


async def submit_hostile(run: Settings) -> list[str]:
    """Submit a group with hostile texts everywhere, and one without an item; their ids."""
    facts = {"item": HOSTILE, "metadata": {HOSTILE: HOSTILE}, "messages": CHAT}
    async with AsyncEnvironment(HOSTILE, run) as environment:
        return await submitted(environment, [group(1, 2, 3, **facts), group(5)])


@pytest.mark.parametrize(("columns", "module"), [(80, "lachesis"), (200, "lachesis"), (80, "app"), (200, "app")])
async def test_groups_fit_the_terminal_and_hostile_texts_are_escaped(run: Settings, columns: int, module: str) -> None:
    ids = await submit_hostile(run)
    code, lines = await in_terminal(columns, "groups", "math", module=module, LACHESIS_URL=run.url)
    assert code == 0
    assert lines[0].split()[:3] == ["group", "state", "environment"]
    assert sorted(line.split()[0] for line in lines[1:]) == sorted(ids), "ids are whole: people copy them"
    assert max(map(len, lines)) <= columns
    assert ("item" in lines[0]) == (columns == 200)
    code, shown = await in_terminal(columns, "show", ids[0], "--run", "math", module=module, LACHESIS_URL=run.url)
    assert code == 0
    text = "\n".join(shown)
    assert "tokens: 1 2 3" in text
    assert r"user\x1b[31m: 2 + 2?" in text
    assert "[red]x[/red]" in text
    assert [line for line in lines + shown if not line.isprintable()] == []


async def test_filters_and_pages_are_those_of_the_service(run: Settings) -> None:
    async with AsyncEnvironment("math", run) as environment:
        ids = await submitted(environment, [group(number, policy_version=0) for number in range(1, 6)])

    async def listed(*words: str) -> tuple[list[str], str]:
        code, out, err = await piped("groups", "math", "--json", *words, LACHESIS_URL=run.url)
        assert code == 0, err
        return [json.loads(line)["id"] for line in out.splitlines()], err

    newest, err = await listed("--limit", "2")
    assert newest == [ids[4], ids[3]]
    cursor = err.split("--cursor ")[1].strip()
    assert await listed("--cursor", cursor) == ([ids[2], ids[1], ids[0]], "")
    assert await listed("--state", "leased") == ([], "")
    assert (await listed("--environment", "math", "--score-min", "1"))[0] == ids[::-1]
    assert (await listed("--score-max", "0"))[0] == []
    assert (await listed("--step-min", "0"))[0] == []
    assert (await listed("--received-from", "2020-01-31"))[0] == ids[::-1]
    assert (await listed("--received-to", "2020-01-31T12:30:00"))[0] == []
    assert (await listed("--staleness-min", "1"))[0] == []
    assert (await listed("--size", "1"))[0] == ids[::-1]
    assert (await listed("--size", "2"))[0] == []
    assert (await listed("--older-than-version", "1"))[0] == ids[::-1]
    assert (await listed("--older-than-version", "0"))[0] == []
    code, out, _ = await piped("groups", "math", "--dropped", "stale", LACHESIS_URL=run.url)
    assert (code, out) == (0, "no group matches\n")
    for option in ("--state", "--dropped"):
        assert (await piped("groups", "math", option, "lost", LACHESIS_URL=run.url))[0] == 2
    assert (await piped("groups", "math", "--received-to", "soon", LACHESIS_URL=run.url))[0] == 2
    assert (await piped("groups", "math", "--environment", "none such", LACHESIS_URL=run.url))[0] == 1


async def test_a_group_is_shown_part_by_part_and_whole_as_json(run: Settings) -> None:
    async with AsyncEnvironment("math", run) as environment:
        half = {"half": np.array([1.5], ml_dtypes.bfloat16)}
        two = Group([[1, 2, 3], [4, 5]], [[-100, 2, 3], [-100, 5]], [0.5, 1.0], tensors=half)
        (one,) = await submitted(environment, [two])
    _, out, _ = await piped("show", one, "--sequence", "1", "--tokens", "1", LACHESIS_URL=run.url, LACHESIS_RUN="math")
    assert "sequences have 3, 2 tokens\n" in out
    assert "sequence 1: score 1; 0 of the first 1 tokens are trained on\ntokens: 4 … 1 more\n" in out
    _, out, _ = await piped("show", one, "--json", "--run", "math", LACHESIS_URL=run.url)
    assert json.loads(out)["content"]["tokens"] == [[1, 2, 3], [4, 5]]
    assert json.loads(out)["content"]["tensors"]["half"]["dtype"] == "BF16"
    assert (await piped("show", one, "--sequence", "2", "--run", "math", LACHESIS_URL=run.url))[0] == 2
    assert (await piped("show", "unknown", "--run", "math", LACHESIS_URL=run.url))[0] == 1


async def test_a_group_without_readable_contents_says_why(run: Settings, tokens: Tokens) -> None:
    (kept, gone) = await submit_hostile(run)
    async with AsyncTrainer(run) as trainer:
        await trainer.delete_group(gone)
        code, out, _ = await piped("show", gone, "--run", "math", LACHESIS_URL=run.url)
        assert code == 0
        assert f"group {gone}: dropped\n" in out
        assert ", because: deleted\n" in out
        assert "no contents: " in out
        viewer = await tokens.make("viewer", "math")

        async def is_shown_without() -> bool:
            _, shown, _ = await piped("show", kept, "--run", "math", LACHESIS_URL=run.url, LACHESIS_TOKEN=viewer)
            return "no contents: " in shown and "tokens: " not in shown and f"group {kept}: queued\n" in shown

        await wait_until(is_shown_without)
