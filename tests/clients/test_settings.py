"""Settings of the SDK, from code and from the environment."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from lachesis import Settings

PAGE = Path(__file__).parents[2] / "docs/sdk.md"


def test_every_setting_can_be_read_from_the_environment() -> None:
    environ = {
        "LACHESIS_URL": "https://lachesis.example/base",
        "LACHESIS_RUN": "math",
        "LACHESIS_CONNECT_TIMEOUT_S": "1.5",
        "LACHESIS_TIMEOUT_S": "2",
        "LACHESIS_RETRY_BUDGET_S": "0",
    }
    assert len(environ) == len(fields(Settings))
    assert Settings.from_env(environ) == Settings(
        url="https://lachesis.example/base", run="math", connect_timeout_s=1.5, timeout_s=2, retry_budget_s=0
    )


def test_an_empty_environment_leaves_the_defaults() -> None:
    assert Settings.from_env({}) == Settings()


def test_what_is_given_counts_more_than_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LACHESIS_RUN", "math")
    monkeypatch.setenv("LACHESIS_TIMEOUT_S", "3")
    settings = Settings.from_env(run="code")
    assert (settings.run, settings.timeout_s) == ("code", 3)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("LACHESIS_URL", "lachesis:8000"),
        ("LACHESIS_RUN", "a/b"),
        ("LACHESIS_RUN", ""),
        ("LACHESIS_TIMEOUT_S", "soon"),
        ("LACHESIS_TIMEOUT_S", "0"),
        ("LACHESIS_CONNECT_TIMEOUT_S", "-1"),
        ("LACHESIS_RETRY_BUDGET_S", "nan"),
        ("LACHESIS_RETRY_BUDGET_S", "inf"),
    ],
)
def test_a_variable_that_makes_no_sense_is_refused_by_name(name: str, value: str) -> None:
    setting = name.removeprefix("LACHESIS_").lower()
    with pytest.raises(ValueError, match=rf"{name}|{setting}"):
        Settings.from_env({name: value})


def test_every_setting_is_documented_with_its_default() -> None:
    shown = dict(re.findall(r"^\| `(LACHESIS_\w+)` \| `(.+?)` \|", PAGE.read_text(), re.M))
    assert set(shown) == {f"LACHESIS_{field.name.upper()}" for field in fields(Settings)}
    assert Settings.from_env(shown) == Settings()
