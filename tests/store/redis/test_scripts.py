"""A script's header is its contract: what it declares is what it uses, and Redis compiles it."""

import re

import pytest
from redis.asyncio import Redis

from app.store.redis import scripts

ALL = scripts.all_scripts()


def _header(script: scripts.Script) -> str:
    lines = scripts.paths()[script.name].read_text().splitlines()[1:]
    taken = []
    for line in lines:
        if not line.startswith("--"):
            break
        taken.append(line)
    return "\n".join(taken)


def test_there_are_scripts() -> None:
    assert len(ALL) >= 10


@pytest.mark.parametrize("script", ALL, ids=lambda script: script.name)
def test_a_header_says_purpose_keys_returns_and_cost(script: scripts.Script) -> None:
    header = _header(script)
    assert header.startswith(f"-- {script.name}: ")
    for part in ("-- KEYS[1]", "-- ARGV", "-- Returns ", "-- Cost: "):
        assert part in header, f"{script.name} says nothing about {part}"


@pytest.mark.parametrize("script", ALL, ids=lambda script: script.name)
def test_a_header_declares_every_key_the_script_uses(script: scripts.Script) -> None:
    header = _header(script)
    body = script.source.replace(header, "")
    used = {int(number) for number in re.findall(r"KEYS\[(\d+)\]", body)}
    declared = {int(number) for number in re.findall(r"KEYS\[(\d+)(?:\.\.)?\]", header)}
    assert used <= declared


@pytest.mark.parametrize("script", ALL, ids=lambda script: script.name)
def test_a_script_has_no_clock_of_its_own_and_makes_no_choices(script: scripts.Script) -> None:
    text = scripts.paths()[script.name].read_text()
    for forbidden in ("'TIME'", "math.random", "table.sort", "'KEYS'", "'SCAN'"):
        assert forbidden not in text


@pytest.mark.parametrize("script", ALL, ids=lambda script: script.name)
async def test_redis_compiles_it(redis_client: Redis, script: scripts.Script) -> None:
    assert await redis_client.script_load(script.source) in (script.digest, script.digest.encode())
