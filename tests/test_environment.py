"""Where settings come from, and what is said of those that are wrong."""

import re
from pathlib import Path

import pytest

import lachesis
from app import environment
from app.environment import InvalidSettings, load_settings


@pytest.fixture(autouse=True)
def blank(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment that nobody else's settings are in, and that is as before afterwards."""
    for name in ("LACHESIS_PORT", "LACHESIS_WORKERS", "LACHESIS_LOG_LEVEL", "LACHESIS_REDIS_MAXMEMORY_BYTES"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


def env_file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / ".env"
    path.write_text(text)
    return path


def test_the_environment_wins_over_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LACHESIS_PORT", "9001")
    settings = load_settings(env_file(tmp_path, "LACHESIS_PORT=9002\nexport LACHESIS_WORKERS='3'\n# a comment\n"))
    assert (settings.port, settings.workers) == (9001, 3)


def test_a_line_that_is_no_setting_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettings, match=r"line 2: 'LACHESIS_PORT 8030' is not NAME=value"):
        load_settings(env_file(tmp_path, "LACHESIS_WORKERS=2\nLACHESIS_PORT 8030\n"))


def test_a_misspelt_setting_is_named_with_the_one_that_was_meant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LACHESIS_WORKER", "3")
    load_settings(tmp_path / "none")
    expected = "lachesis: warning: LACHESIS_WORKER is not a setting; did you mean LACHESIS_WORKERS?\n"
    assert capsys.readouterr().err == expected


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("LACHESIS_PORT=abc", "LACHESIS_PORT=abc: Input should be a valid integer"),
        ("LACHESIS_LOG_LEVEL=loud", "LACHESIS_LOG_LEVEL=loud: Input should be 'debug', 'info', 'warning' or 'error'"),
        ("LACHESIS_REDIS_MAXMEMORY_BYTES=1000", "LACHESIS_REDIS_MAXMEMORY_BYTES=1000: is less than"),
    ],
)
def test_a_wrong_value_is_named_with_its_variable(tmp_path: Path, line: str, message: str) -> None:
    with pytest.raises(InvalidSettings) as refusal:
        load_settings(env_file(tmp_path, line))
    assert str(refusal.value).startswith(message)


def test_a_log_level_may_be_written_in_capitals(tmp_path: Path) -> None:
    assert load_settings(env_file(tmp_path, "LACHESIS_LOG_LEVEL=INFO")).log_level == "info"


def test_the_variables_of_the_service_are_no_typos_to_the_sdk(caplog: pytest.LogCaptureFixture) -> None:
    """The other way round: whoever trains beside the service has them, too."""
    theirs = environment._known() - environment._OF_SDK
    assert len(theirs) > 10
    lachesis.Settings.from_env(dict.fromkeys(theirs, ""))
    assert caplog.records == []


def test_the_variables_of_the_sdk_are_no_typos() -> None:
    """People set them in the same shell."""
    page = (Path(__file__).parents[1] / "docs" / "how-to" / "python-sdk.md").read_text()
    documented = set(re.findall(r"^\| `(LACHESIS_\w+)` \|", page, re.M))
    assert documented
    assert documented <= environment._known()
