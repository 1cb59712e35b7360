"""The sources of settings, and the messages about wrong ones."""

import re
from pathlib import Path

import pytest

import lachesis
from app.settings import InvalidSettings, ServiceSettings, known_variables, load_settings


@pytest.fixture(autouse=True)
def blank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run each test in an empty working directory, without these variables."""
    monkeypatch.chdir(tmp_path)
    names = ("PORT", "WORKERS", "LOG_LEVEL", "REDIS_MAXMEMORY_BYTES", "REDIS_URL", "ALLOWED_HOSTS", "TOKEN")
    for name in [f"LACHESIS_{name}" for name in names]:
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


def load_settings_from(text: str) -> ServiceSettings:
    """Load the settings with a `.env` file of this text in the working directory."""
    Path(".env").write_text(text)
    return load_settings()


def documented_by_the_sdk() -> set[str]:
    page = (Path(__file__).parents[1] / "docs" / "how-to" / "python-sdk.md").read_text()
    return set(re.findall(r"^\| `(LACHESIS_\w+)` \|", page, re.M))


def test_the_environment_wins_over_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LACHESIS_PORT", "9001")
    settings = load_settings_from("LACHESIS_PORT=9002\nexport LACHESIS_WORKERS='3'\n# a comment\n")
    assert (settings.port, settings.workers) == (9001, 3)


def test_an_empty_variable_hides_its_line_of_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = "LACHESIS_REDIS_URL=redis://production\nLACHESIS_PORT=9002\nLACHESIS_ALLOWED_HOSTS=a.example\n"
    for name in ("LACHESIS_REDIS_URL", "LACHESIS_PORT", "LACHESIS_ALLOWED_HOSTS"):
        monkeypatch.setenv(name, "")
    settings = load_settings_from(lines)
    assert (settings.redis_url, settings.port, settings.allowed_hosts) == (None, 8000, None)


def test_an_empty_line_of_the_file_means_the_default() -> None:
    settings = load_settings_from("LACHESIS_REDIS_URL=\nLACHESIS_PORT=\n")
    assert (settings.redis_url, settings.port) == (None, 8000)


def test_a_tilde_in_a_path_stands_for_the_home_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shell replaces it. Without one, the data would be in a folder with this name."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    settings = load_settings_from("LACHESIS_DATA_DIR=~/lachesis\nLACHESIS_ADMIN_TOKEN_FILE=~/token\n")
    assert settings.data_dir == tmp_path / "home" / "lachesis"
    assert settings.admin_token_file == tmp_path / "home" / "token"
    with pytest.raises(InvalidSettings, match=r"LACHESIS_DATA_DIR=~no-such-user/data: .*write the whole path"):
        load_settings_from("LACHESIS_DATA_DIR=~no-such-user/data\n")


def test_blanks_around_a_value_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("HOST", " localhost "), ("REDIS_URL", "redis://store "), ("DATA_DIR", " ")):
        monkeypatch.setenv(f"LACHESIS_{name}", value)
    settings = load_settings()
    assert settings.redis_url is not None
    shown = settings.host, settings.redis_url.get_secret_value(), settings.data_dir
    assert shown == ("localhost", "redis://store", Path("data"))


def test_a_file_that_cannot_be_read_is_named() -> None:
    Path(".env").write_bytes(b"LACHESIS_DATA_DIR=d\xe9\n")
    with pytest.raises(InvalidSettings, match=r"^\.env is not UTF-8$"):
        load_settings()
    Path(".env").unlink()
    Path(".env").symlink_to("/proc/self/mem")  # a file that can be opened, and not read
    with pytest.raises(InvalidSettings, match=r"^\.env cannot be read: Input/output error$"):
        load_settings()


def test_variables_of_the_sdk_have_no_effect_in_the_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    load_settings_from("LACHESIS_TOKEN=canary\nLACHESIS_PORT=9002\n")
    warning = "lachesis: warning: LACHESIS_TOKEN in .env has no effect: set it in the environment\n"
    assert capsys.readouterr().err == warning
    monkeypatch.setenv("LACHESIS_TOKEN", "canary")
    load_settings()
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("LACHESIS_PORT 8030", "line 3 begins with LACHESIS_PORT and is not NAME=value"),
        ("export LACHESIS_TOKEN: canary", "line 3 begins with LACHESIS_TOKEN and is not NAME=value"),
        ("LACHESIS_TOKEN:canary==", "line 3 begins with LACHESIS_TOKEN and is not NAME=value"),
        ('LACHESIS_TOKEN="canary', "line 3 begins with LACHESIS_TOKEN and is not NAME=value"),
        ("LACHESIS_TOKENcanary", "line 3 is not NAME=value"),
        ("canary canary", "line 3 is not NAME=value"),
    ],
)
def test_a_malformed_line_of_the_file_is_named_without_its_value(line: str, said: str) -> None:
    with pytest.raises(InvalidSettings) as raised:
        load_settings_from(f"LACHESIS_WORKERS=2\n\n{line}\n")
    assert str(raised.value) == f".env, {said}"


def test_a_misspelt_variable_gets_a_suggestion(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LACHESIS_WORKER", "3")
    load_settings()
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
def test_a_wrong_value_is_named_with_its_variable(line: str, message: str) -> None:
    with pytest.raises(InvalidSettings) as refusal:
        load_settings_from(line)
    assert str(refusal.value).startswith(message)


def test_a_port_that_kubernetes_has_set_is_refused_with_its_origin() -> None:
    with pytest.raises(InvalidSettings, match=r"LACHESIS_PORT=tcp://10\.96\.0\.1:8000: .*enableServiceLinks: false"):
        load_settings_from("LACHESIS_PORT=tcp://10.96.0.1:8000")


NUMBERS = [name for name, field in ServiceSettings.model_fields.items() if field.annotation in (int, float)]


@pytest.mark.parametrize("value", ["-1", "nan", "1e400", "9" * 400, "9" * 5000, "many"])
@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_that_nothing_can_be_done_with_is_refused_in_a_line(name: str, value: str) -> None:
    with pytest.raises(InvalidSettings) as refusal:
        load_settings_from(f"LACHESIS_{name.upper()}={value}")
    assert str(refusal.value).startswith(f"LACHESIS_{name.upper()}={value[:50]}")
    assert len(str(refusal.value)) < 300


@pytest.mark.parametrize(
    "name", ["store_patience_s", "store_timeout_s", "header_timeout_s", "body_timeout_s", "environment_ttl_s"]
)
def test_a_time_in_which_nothing_can_be_answered_is_refused(name: str) -> None:
    with pytest.raises(InvalidSettings, match=f"LACHESIS_{name.upper()}=1e-9: .* greater than or equal to 0.05"):
        load_settings_from(f"LACHESIS_{name.upper()}=1e-9")


@pytest.mark.parametrize(
    "name", [name for name, field in ServiceSettings.model_fields.items() if field.annotation is float]
)
def test_numbers_are_finite(name: str) -> None:
    with pytest.raises(InvalidSettings, match=f"LACHESIS_{name.upper()}=inf: Input should be a finite number"):
        load_settings_from(f"LACHESIS_{name.upper()}=inf")


def test_a_log_level_may_be_written_in_capitals() -> None:
    assert load_settings_from("LACHESIS_LOG_LEVEL=INFO").log_level == "info"


def test_the_sdk_knows_the_variables_of_the_service(caplog: pytest.LogCaptureFixture) -> None:
    """A trainer beside the service has them in its environment too."""
    theirs = known_variables() - documented_by_the_sdk()
    assert len(theirs) > 10
    lachesis.Settings.from_env(dict.fromkeys(theirs, ""))
    assert caplog.records == []


def test_the_service_knows_the_variables_of_the_sdk() -> None:
    """People set them in the same shell."""
    documented = documented_by_the_sdk()
    assert documented
    assert documented <= known_variables()


def test_other_variables_may_be_in_the_file() -> None:
    """A file is shared with docker-compose.yml and other programs."""
    assert load_settings_from("LACHESIS_API_REPLICAS=2\nOTHER=1\nLACHESIS_PORT=9002\n").port == 9002


def test_a_misspelt_variable_of_the_file_gets_a_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    load_settings_from("LACHESIS_WORKER=3\n")
    assert "LACHESIS_WORKER is not a setting; did you mean LACHESIS_WORKERS?" in capsys.readouterr().err
