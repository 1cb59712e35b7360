"""The format of log lines, whatever names users choose."""

import json
import logging
import subprocess
import sys
from datetime import datetime
from typing import Any

import pytest

from app import events
from app.logs import RESERVED, JsonLines, LogBackoff, TextLines
from tests.api.log_capture import every_event

HOSTILE = 'x\n2026-01-01T00:00:00.000+00:00 INFO lachesis.events [1] run deleted run=y\r\x1b[2J\u2028\u202e\ud800"='


def record(message: str = "run created", fields: dict[str, Any] | None = None, error: Any = None) -> logging.LogRecord:
    made = logging.LogRecord("lachesis.events", logging.INFO, __file__, 1, message, None, error)
    if fields is not None:
        made.fields = fields
    return made


def parsed_time(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    assert moment.utcoffset() is not None, "a time without its zone"
    return moment


def test_a_text_line_has_time_level_logger_process_and_message() -> None:
    made = record(fields={"run": "math", "batch_size": 8, "changes": {"a": 1}, "name": "two words"})
    time, rest = TextLines().format(made).split(" ", 1)
    assert abs(parsed_time(time).timestamp() - made.created) < 0.001
    assert rest == (
        f'INFO lachesis.events [{made.process}] run created run=math batch_size=8 changes={{"a": 1}} name="two words"'
    )


def test_a_json_line_is_one_object_with_the_same() -> None:
    made = record(fields={"run": "math", "batch_size": 8})
    line = json.loads(JsonLines().format(made))
    assert abs(parsed_time(line.pop("time")).timestamp() - made.created) < 0.001
    assert line == {
        "level": "info",
        "logger": "lachesis.events",
        "process": made.process,
        "message": "run created",
        "run": "math",
        "batch_size": 8,
    }


@pytest.mark.parametrize("lines", [TextLines(), JsonLines()], ids=["text", "json"])
@pytest.mark.parametrize("place", ["message", "field", "nested"])
def test_a_name_cannot_forge_a_line_nor_reach_the_terminal(lines: logging.Formatter, place: str) -> None:
    made = {
        "message": lambda: record(HOSTILE),
        "field": lambda: record(fields={"run": HOSTILE}),
        "nested": lambda: record(fields={"changes": {HOSTILE: [HOSTILE]}}),
    }[place]()
    line = lines.format(made)
    assert line.isprintable()
    line.encode()


@pytest.mark.parametrize("lines", [TextLines(), JsonLines()], ids=["text", "json"])
@pytest.mark.parametrize("place", ["message", "field", "nested"])
def test_a_token_that_was_sent_as_a_name_is_not_shown(lines: logging.Formatter, place: str) -> None:
    secret = "c4n4ry-" * 6
    token = f"lch_env_0f3a5c7e9b1d_{secret}"
    fields = {"message": {}, "field": {"run": token}, "nested": {"changes": [{token: token}]}}[place]
    line = lines.format(record(f"a {token}" if place == "message" else "run created", fields=fields))
    assert "lch_" in line
    assert secret not in line


def test_values_are_distinguished_whatever_is_in_them() -> None:
    line = TextLines().format(record(fields={"name": "a run=b", "empty": "", "other": 'c" run=d'}))
    assert line.endswith(r' name="a run=b" empty="" other="c\" run=d"')


def test_a_traceback_follows_indented_and_cannot_forge_a_line() -> None:
    try:
        raise ValueError(HOSTILE)
    except ValueError:
        made = record("failed", error=sys.exc_info())
    first, *others = TextLines().format(made).split("\n")
    assert first.endswith(" failed")
    assert others
    assert all(line.startswith("    ") and line.isprintable() for line in others)
    assert "\n" not in JsonLines().format(made)
    assert "ValueError" in json.loads(JsonLines().format(made))["exception"]


def test_every_event_has_a_message_and_distinct_fields() -> None:
    kinds = list(every_event())
    assert kinds
    for kind in kinds:
        names = set(kind.names())
        assert names.isdisjoint(RESERVED)
        assert names.isdisjoint(("caller", "agent", "forwarded_for"))


def test_a_long_name_is_cut() -> None:
    made = events.EnvironmentJoined(run="r", environment=1, name="n" * 5000)
    assert made.message == "environment joined"
    assert made.values() == {"run": "r", "environment": 1, "name": "n" * events.MOST_CHARACTERS + "…"}


def test_repeated_lines_are_written_less_and_less_often() -> None:
    now = 0.0
    backoff = LogBackoff(1.0, 8.0, clock=lambda: now)
    written = []
    for second in range(60):
        now = float(second)
        if backoff.is_due("a"):
            written.append(second)
    assert written == [0, 1, 3, 7, 15, 23, 31, 39, 47, 55]
    assert backoff.is_due("b")
    backoff.forget("a")
    assert backoff.is_due("a")
    assert not backoff.is_due("a")


FETCH = """
import sys
from logging.config import dictConfig

import httpx

from app.logs import log_config

dictConfig(log_config(sys.argv[1], "text"))
httpx.Client(transport=httpx.MockTransport(lambda request: httpx.Response(200))).get("https://issuer.example.org/keys")
"""


@pytest.mark.parametrize("level", ["info", "debug"])
def test_only_debug_logs_each_fetch_from_the_issuer_of_tokens(level: str) -> None:
    """Anyone can cause two fetches a second by tokens with unknown keys, and the URL may hold a secret."""
    ended = subprocess.run([sys.executable, "-c", FETCH, level], capture_output=True, text=True, check=True)
    assert ("https://issuer.example.org/keys" in ended.stderr) == (level == "debug")
