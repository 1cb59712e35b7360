"""Settings of the SDK, from code and from the environment."""

import functools
import re
import sys
from collections.abc import Callable
from dataclasses import fields
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lachesis import AsyncEnvironment, AsyncTrainer, Environment, Settings, Trainer
from lachesis._transport.settings import edit_distance, may_be_near
from lachesis.errors import InvalidField

PAGE = Path(__file__).parents[3] / "docs/how-to/python-sdk.md"


def test_every_setting_can_be_read_from_the_environment() -> None:
    environ = {
        "LACHESIS_URL": "https://lachesis.example/base",
        "LACHESIS_RUN": "math",
        "LACHESIS_TOKEN": "secret",
        "LACHESIS_TOKEN_FILE": "token.txt",
        "LACHESIS_CA_FILE": "ca.pem",
        "LACHESIS_CLIENT_CERT": "client.crt",
        "LACHESIS_CLIENT_KEY": "client.key",
        "LACHESIS_CONNECT_TIMEOUT_S": "1.5",
        "LACHESIS_TIMEOUT_S": "2",
        "LACHESIS_RETRY_BUDGET_S": "0",
    }
    assert len(environ) == len(fields(Settings))
    assert Settings.from_env(environ) == Settings(
        url="https://lachesis.example/base",
        run="math",
        token="secret",
        token_file="token.txt",
        ca_file="ca.pem",
        client_cert="client.crt",
        client_key="client.key",
        connect_timeout_s=1.5,
        timeout_s=2,
        retry_budget_s=0,
    )


def test_an_empty_environment_leaves_the_defaults() -> None:
    assert Settings.from_env({}) == Settings()


def test_a_misspelt_variable_is_warned_of_with_the_one_that_was_meant(caplog: pytest.LogCaptureFixture) -> None:
    Settings.from_env({"LACHESIS_RETRY_BUDGET": "5", "LACHESIS_TIMEOUT": "5", "RETRY_BUDGET_S": "5"})
    assert [record.getMessage() for record in caplog.records] == [
        "LACHESIS_RETRY_BUDGET is not a setting; did you mean LACHESIS_RETRY_BUDGET_S?",
        "LACHESIS_TIMEOUT is not a setting; did you mean LACHESIS_TIMEOUT_S?",
    ]


@pytest.mark.parametrize(
    ("variable", "meant"),
    [
        ("LACHESIS_URI", "LACHESIS_URL"),
        ("LACHESIS_ULR", "LACHESIS_URL"),
        ("LACHESIS_URLS", "LACHESIS_URL"),
        ("LACHESSIS_URL", "LACHESIS_URL"),
        ("LACHSIS_RUN", "LACHESIS_RUN"),
        ("LACHESISRUN", "LACHESIS_RUN"),
        ("lachesis_run", "LACHESIS_RUN"),
        ("LACHESIS_RNU", "LACHESIS_RUN"),
        ("LACHESIS_TIMOUT_S", "LACHESIS_TIMEOUT_S"),
        ("LACHESIS_CONECT_TIMEOUT", None),
        ("LACHESIS_PORT", None),
        ("URL", None),
    ],
)
def test_variables_are_taken_for_misspelt_by_their_edit_distance(
    variable: str, meant: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    Settings.from_env({variable: "1"})
    said = [] if meant is None else [f"{variable} is not a setting; did you mean {meant}?"]
    assert [record.getMessage() for record in caplog.records] == said


@given(st.text("abc", max_size=5), st.text("abc", max_size=5))
def test_the_edit_distance_is_the_fewest_edits(one: str, other: str) -> None:
    """Held against the definition, by recursion."""

    @functools.cache
    def fewest(a: str, b: str) -> int:
        if not a or not b:
            return len(a) + len(b)
        edits = [fewest(a[1:], b) + 1, fewest(a, b[1:]) + 1, fewest(a[1:], b[1:]) + (a[0] != b[0])]
        if len(a) > 1 and len(b) > 1 and a[:2] == b[1::-1]:
            edits.append(fewest(a[2:], b[2:]) + 1)
        return min(edits)

    assert edit_distance(one, other) == fewest(one, other)


@given(st.text("abc", max_size=8), st.text("abc", max_size=8))
def test_no_name_within_two_edits_is_passed_over(one: str, other: str) -> None:
    assert may_be_near(one, other) or edit_distance(one, other) > 2


def test_variables_of_other_programs_take_no_time() -> None:
    """Kubernetes sets seven variables for each service of a namespace."""
    services = {f"{service}_{name}": "1" for service in range(1000) for name in ("PORT_80_TCP_ADDR", "SERVICE_HOST")}
    compared: list[str] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code is edit_distance.__code__:
            compared.append(frame.f_locals["one"])

    sys.setprofile(note)
    try:
        Settings.from_env(services | {"LACHESIS_ULR": "1"})
    finally:
        sys.setprofile(None)
    assert set(compared) == {"LACHESIS_ULR"}


def test_a_url_of_the_atropos_surface_names_the_run_as_well(make: Callable[..., Settings]) -> None:
    url, plain = "http://gate/base/runs/x%2Dy/atropos", Settings("http://gate/base", run="x-y")
    for said_so in (url, f"{url}/"):
        assert make(said_so) == make(url=said_so) == make(Settings(said_so)) == plain
        assert make(said_so, run="x-y") == make(Settings("http://b", run="c"), url=said_so) == plain
        assert Settings(said_so) == Settings(said_so, run="x-y") == Settings.from_env({}, url=said_so) == plain
    assert Settings.from_env({"LACHESIS_URL": url}) == plain
    assert Settings.from_env({"LACHESIS_URL": url}, run="z") == Settings("http://gate/base", run="z")
    assert Settings.from_env({"LACHESIS_RUN": "z"}, url=url) == plain
    said = "^run: is 'z', but the URL names 'x-y': give the same run, or a URL without one$"
    for wrong in (lambda: make(url, run="z"), lambda: Settings(url, run="z")):
        with pytest.raises(ValueError, match=said):
            wrong()
    with pytest.raises(ValueError, match=said):
        Settings.from_env({"LACHESIS_URL": url, "LACHESIS_RUN": "z"})
    with pytest.raises(ValueError, match="run: should be the name of a run"):
        Settings("http://gate/runs/a b/atropos")


def test_a_path_that_a_proxy_put_before_the_service_is_kept() -> None:
    for url in ("http://gate/v1beta", "http://gate/v1/lachesis/", "http://v1", "http://gate/nov1"):
        assert Settings(url).url == url


def test_what_is_given_counts_more_than_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LACHESIS_RUN", "math")
    monkeypatch.setenv("LACHESIS_TIMEOUT_S", "3")
    settings = Settings.from_env(run="code")
    assert (settings.run, settings.timeout_s) == ("code", 3)


def test_a_token_file_that_is_given_counts_more_than_a_token_in_a_variable() -> None:
    environ = {"LACHESIS_TOKEN": "secret", "LACHESIS_TOKEN_FILE": "token.txt"}
    assert Settings.from_env(environ, token_file="own.txt") == Settings(token_file="own.txt")
    both = Settings.from_env(environ, token="own", token_file="own.txt")
    assert (both.token, both.token_file) == ("own", "own.txt")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("LACHESIS_URL", "lachesis:8000"),
        ("LACHESIS_URL", "http://"),
        ("LACHESIS_URL", "http://lachesis:many"),
        ("LACHESIS_URL", "http://lachesis:99999"),
        ("LACHESIS_URL", "http://[::1"),
        ("LACHESIS_URL", "http://lachesis:8000/v1"),
        ("LACHESIS_RUN", "a/b"),
        ("LACHESIS_RUN", "my run"),
        ("LACHESIS_RUN", ""),
        ("LACHESIS_TIMEOUT_S", "soon"),
        ("LACHESIS_TIMEOUT_S", "0"),
        ("LACHESIS_TIMEOUT_S", "inf"),
        ("LACHESIS_CONNECT_TIMEOUT_S", "-1"),
        ("LACHESIS_RETRY_BUDGET_S", "nan"),
        ("LACHESIS_RETRY_BUDGET_S", "inf"),
    ],
)
def test_a_variable_that_makes_no_sense_is_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(ValueError, match=f"^{name}: should "):
        Settings.from_env({name: value})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"url": "localhost:8000"}, "url: .*; did you mean 'http://localhost:8000'"),
        ({"url": "http://lachesis/v1/"}, "url: should name the service alone, without '/v1/'; give the run as `run`"),
        ({"url": "http://gate/base/v1/runs/a"}, "url: should name the service alone, without '/v1/runs/a'"),
        ({"url": None}, "url: should start with http://.*, not None"),
        ({"run": "a b"}, "run: should be the name of a run"),
        ({"run": 3}, "run: should be the name of a run"),
        ({"timeout_s": "30"}, "timeout_s: should be a number of seconds, not '30'"),
        ({"retry_budget_s": None}, "retry_budget_s: should be a number of seconds, not None"),
        ({"retry_budget_s": float("inf")}, "retry_budget_s: should be a finite number, 0 or more, not inf"),
        ({"timeout_s": float("inf")}, "timeout_s: should be a finite number above 0, not inf"),
    ],
)
def test_a_wrong_value_is_refused_by_name(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=f"^{said}"):
        Settings(**given)


MAKERS: dict[str, Callable[..., Any]] = {
    "Trainer": Trainer,
    "AsyncTrainer": AsyncTrainer,
    "AsyncEnvironment": partial(AsyncEnvironment, "gsm8k"),
    "Environment": partial(Environment, "gsm8k"),
}


@pytest.fixture(params=MAKERS)
def make(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Settings]:
    """Make a trainer or an environment where LACHESIS_RUN is ``math``; the settings it has."""
    monkeypatch.delenv("LACHESIS_URL", raising=False)
    monkeypatch.setenv("LACHESIS_RUN", "math")

    def _make(*arguments: Any, **named: Any) -> Settings:
        made = MAKERS[request.param](*arguments, **named)
        if isinstance(made, Trainer):
            made.close()
        return cast(Settings, made.settings)

    return _make


def test_a_service_can_be_given_in_every_way_that_one_would_try(make: Callable[..., Settings]) -> None:
    url, given = "http://lachesis:1", Settings("http://lachesis:3", run="code")
    assert make() == Settings(run="math")
    assert make(url) == make(url=url) == make(settings=url) == Settings(url, run="math")
    assert make(url, run="code") == make(url=url, run="code") == Settings(url, run="code")
    assert make(given) == make(settings=given) == given
    assert make(given, run="math") == Settings("http://lachesis:3", run="math")
    assert make(given, url=url) == Settings(url, run="code")


def test_what_is_no_service_is_refused_with_what_to_do(make: Callable[..., Settings]) -> None:
    with pytest.raises(ValueError, match=r"url: should start with http://.* did you mean 'http://localhost:8000'"):
        make("localhost:8000")
    with pytest.raises(ValueError, match="run: should be the name of a run"):
        make(run="a/b")
    with pytest.raises(TypeError, match=r"two URLs are given: 'http://a' and url='http://b'"):
        make("http://a", url="http://b")
    with pytest.raises(TypeError, match=r"settings: should be lachesis.Settings or the service's URL, not 8000"):
        make(8000)


@pytest.mark.parametrize("cls", [AsyncEnvironment, Environment])
def test_a_url_where_the_name_belongs_is_noticed(cls: type) -> None:
    with pytest.raises(ValueError, match=r"name: .*not 'http://lachesis:8000'; a URL comes second, or as url="):
        cls("http://lachesis:8000")


def test_settings_of_an_environment_that_are_wrong_are_refused_by_name() -> None:
    for wrong in ({"group_size": 0}, {"weight": -1}, {"min_share": 2}, {"max_share": "half"}):
        (name,) = wrong
        with pytest.raises(InvalidField, match=f"^{name}: ") as raised:
            AsyncEnvironment("gsm8k", **wrong)  # type: ignore[arg-type]
        assert raised.value.errors[0]["loc"] == [name]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"heartbeat_s": 0}, "heartbeat_s: should be above 0, not 0"),
        ({"heartbeat_s": float("nan")}, "heartbeat_s: should be above 0, not nan"),
        ({"drain_s": -1}, "drain_s: should be 0 or more, not -1"),
        ({"buffer_groups": 0}, "buffer_groups: should be 1 or more, not 0"),
    ],
)
def test_times_and_sizes_of_an_environment_that_are_wrong_are_refused_by_name(
    given: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        AsyncEnvironment("gsm8k", **given)


def test_every_setting_is_documented_with_its_default() -> None:
    shown = dict(re.findall(r"^\| `(LACHESIS_\w+)` \| (none|`.+?`) \|", PAGE.read_text(), re.M))
    assert set(shown) == {f"LACHESIS_{field.name.upper()}" for field in fields(Settings)}
    defaults = {name: value.strip("`") for name, value in shown.items() if value != "none"}
    assert Settings.from_env(defaults) == Settings()
