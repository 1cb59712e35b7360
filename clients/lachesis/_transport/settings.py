"""Where the service is, and how long to wait for it."""

import logging
import math
import os
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, fields, replace
from typing import Any

from lachesis.wire.address import split_run, without_password, wrong_run, wrong_url
from lachesis.wire.runs import DEFAULT_RUN

_PREFIX = "LACHESIS_"
_HIDDEN = "***"
_MOST_EDITS = 2
"""Most edits between a misspelt name and one of our variables; the service's own variables are further away."""

_FILES = ("token_file", "ca_file", "client_cert", "client_key")
_TOKEN = re.compile(r"[!-~]+")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Settings:
    """How to reach the service. `from_env` reads each setting from its variable, such as ``LACHESIS_URL``.

    Attributes:
        url: URL of the service, such as ``http://lachesis:8000``. A path is kept; leave ``/v1`` out. The URL of an
            Atropos client, ``http://lachesis:8000/runs/NAME/atropos``, also names the run.
        run: Name of the run.
        token: The token of this program; see docs/security.md of the service. It takes precedence over ``token_file``
            and over a password in the URL.
        token_file: A file that holds the token. It is read again after each change.
        ca_file: PEM file with the CA of the service's certificate, for ``https://``. None means the CAs of this system.
        client_cert: PEM file with a client certificate, for a service that identifies its clients by certificates.
        client_key: PEM file with the key of ``client_cert``. None means that the key is in ``client_cert``.
        connect_timeout_s: Longest time to connect.
        timeout_s: Longest time without progress of a request or reply. The wait for a batch is added to it.
        retry_budget_s: How long to repeat a request that got no answer, or that the service could not serve at that
            moment. It counts from the first failure, so a long wait for a batch does not use it up. 0: it is sent once.
    """

    url: str = "http://127.0.0.1:8000"
    _: KW_ONLY
    run: str = DEFAULT_RUN
    token: str | None = None
    token_file: str | None = None
    ca_file: str | None = None
    client_cert: str | None = None
    client_key: str | None = None
    connect_timeout_s: float = 5.0
    timeout_s: float = 30.0
    retry_budget_s: float = 60.0

    def __post_init__(self) -> None:
        given = {"url": self.url} if self.run == DEFAULT_RUN else {"url": self.url, "run": self.run}
        for name, value in _apart(given).items():
            object.__setattr__(self, name, value)
        for field in fields(self):
            if wrong := _wrong(field.name, getattr(self, field.name)):
                raise ValueError(f"{field.name}: {wrong}")

    def facts(self) -> dict[str, object]:
        """Return the settings that other objects show in their `repr`, without the password."""
        return {"run": self.run, "url": without_password(self.url)}

    def __repr__(self) -> str:
        shown = replace(self, url=without_password(self.url), token=self.token and _HIDDEN)
        given = {field.name: getattr(shown, field.name) for field in fields(self)}
        return f"Settings({', '.join(f'{name}={value!r}' for name, value in given.items() if value is not None)})"

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None, **given: str | float) -> "Settings":
        """Read the settings from environment variables. A variable that is not set leaves the default.

        A variable that looks misspelt is logged as a warning.

        Args:
            environ: Variables to read. None means those of this process.
            given: Settings by name; they take precedence over variables. A ``token_file`` does so over a token, too.

        Raises:
            ValueError: A variable has a wrong value; the message names it.
        """
        variables = os.environ if environ is None else environ
        _warn_of_misspelt(variables)
        values: dict[str, str | float] = {}
        # A variable with a token would take precedence over a file that is given.
        settled = {*given, "token"} if "token_file" in given else given.keys()
        for field in fields(cls):
            variable = _PREFIX + field.name.upper()
            if field.name not in settled and (text := variables.get(variable)) is not None:
                values[field.name] = _number(variable, text) if field.type is float else text
                if wrong := _wrong(field.name, values[field.name]):
                    raise ValueError(f"{variable}: {wrong}")
        return cls(**(_apart(values) | _apart(given)))


def settings_from(
    settings: Settings | str | None, url: str | None, run: str | None, token: str | None = None
) -> Settings:
    """Return the settings for the arguments of a trainer, an environment, a buffer or a curriculum.

    Args:
        settings: All of them, or the service's URL. None means the environment variables.
        url, run, token: They take precedence over ``settings``.

    Raises:
        TypeError: Two URLs are given, or ``settings`` has another type.
        ValueError: A value is wrong; the message names it.
    """
    named = {"url": url, "run": run, "token": token}
    given: dict[str, Any] = {name: value for name, value in named.items() if value is not None}
    if isinstance(settings, Settings):
        return replace(settings, **_apart(given))
    if isinstance(settings, str):
        if url is not None:
            raise TypeError(f"two URLs are given: {settings!r} and url={url!r}")
        return Settings.from_env(**{**given, "url": settings})
    if settings is not None:
        raise TypeError(f"settings: should be lachesis.Settings or the service's URL, not {settings!r}")
    return Settings.from_env(**given)


def wrong_token(token: Any) -> str | None:
    """Return why ``token`` cannot be a token; None if it can. The message does not show it."""
    if isinstance(token, str) and _TOKEN.fullmatch(token):
        return None
    return "should be one token of printable ASCII characters, without spaces"


def _apart(given: dict[str, Any]) -> dict[str, Any]:
    """Split the run from a URL of the Atropos API.

    Raises:
        ValueError: A different run is given, too.
    """
    url, run = split_run(given["url"]) if isinstance(given.get("url"), str) else (None, None)
    if run is None:
        return given
    if given.get("run", run) != run:
        raise ValueError(
            f"run: is {given['run']!r}, but the URL names {run!r}: give the same run, or a URL without one"
        )
    return {**given, "url": url, "run": run}


def _warn_of_misspelt(variables: Mapping[str, str]) -> None:
    """Warn of names close to those of settings. Other names may be variables of the service."""
    ours = [_PREFIX + field.name.upper() for field in fields(Settings)]
    for variable in sorted(set(variables) - set(ours)):
        near = [name for name in ours if may_be_near(variable.upper(), name)]
        edits, name = min(((edit_distance(variable.upper(), name), name) for name in near), default=(math.inf, ""))
        if edits <= _MOST_EDITS:
            log.warning("%s is not a setting; did you mean %s?", variable, name)


def may_be_near(one: str, other: str) -> bool:
    """Return False only if more than `_MOST_EDITS` are between two names: too many characters are in one alone.

    It is much quicker than the distance: a container may have thousands of variables, which Kubernetes sets.
    """
    if abs(len(one) - len(other)) > _MOST_EDITS:
        return False
    return (Counter(one) - Counter(other)).total() <= _MOST_EDITS


def edit_distance(one: str, other: str) -> int:
    """Return the edit distance: characters to insert, remove, replace or swap with the next.

    Source: optimal string alignment; F. Damerau, *A technique for computer detection and correction of spelling
    errors* (1964).
    """
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, a in enumerate(one, start=1):
        before, last, row = row, before, [i]
        for j, b in enumerate(other, start=1):
            row.append(min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (a != b)))
            if i > 1 and j > 1 and a == other[j - 2] and one[i - 2] == b:
                row[j] = min(row[j], last[j - 2] + 1)
    return row[-1]


def _wrong(name: str, value: Any) -> str | None:
    """Return what is wrong with the value of a setting, or None."""
    if name == "url":
        return wrong_url(value)
    if name == "run":
        return wrong_run(value)
    if name == "token":
        return None if value is None else wrong_token(value)
    if name in _FILES:
        return None if value is None or str(value) else "should name a file"
    if not isinstance(value, int | float):
        return f"should be a number of seconds, not {value!r}"
    if name == "retry_budget_s":
        return None if 0 <= value < math.inf else f"should be a finite number, 0 or more, not {value}"
    return None if 0 < value < math.inf else f"should be a finite number above 0, not {value}"


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{name}: should be a number, not {text!r}") from None
