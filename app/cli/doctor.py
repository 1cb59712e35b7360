"""`python -m app doctor`: what is wrong on the server, and what to type."""

import asyncio
import contextlib
import errno
import os
import shlex
import socket
import sys
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any

import httpx
import typer

from app.cli.output import show, show_json
from app.cli.own_service import own_url, tls_context
from app.settings import InvalidSettings, ServiceSettings, load_settings
from app.tuning import lack_of_files
from lachesis.wire.errors import ForeignHost, ServiceError, StoreMisconfigured, StoreUnavailable, TooManyConnections
from lachesis.wire.findings import Finding, finding_lines, ok, problem, warning

if TYPE_CHECKING:
    from app.core.access.tokens import TokenRecord
    from app.store.access.store import AccessState

_PATIENCE_S = 2.0
_SOON_MS = 7 * 24 * 3600 * 1000
_ALL_SETTINGS = "docs/reference/service-settings.md has all settings and their values"


def doctor(
    json: Annotated[bool, typer.Option("--json", help="Print a finding in each line, as JSON.")] = False,
) -> None:
    """Check the service on this machine.

    That is: its settings, Redis, data directory, disk, port, limits, host names and tokens. Exits with 1 after a
    problem. Each problem comes with what to type. Nothing is changed. `python -m lachesis doctor` checks the way to the
    service, on the machine of a trainer or a worker.
    """
    worst = 0
    for found in _findings():
        worst = worst or int(found.state == "problem")
        if json:
            show_json(found.model_dump_json())
        else:
            show(finding_lines(found))
    if not json:
        show(["on the machine of a trainer or a worker, `python -m lachesis doctor RUN` checks the way to the service"])
    sys.exit(worst)


def _findings() -> Iterator[Finding]:
    try:
        settings = load_settings()
    except InvalidSettings as error:
        for line in str(error).splitlines():
            yield problem("settings", line, _ALL_SETTINGS)
        return
    from app.process.serve import checked_files  # late: the other commands need not wait for it

    try:
        checked_files(settings)
    except StoreMisconfigured as error:
        yield problem("settings", error.detail, _ALL_SETTINGS)
        return
    if settings.datasets_dir is not None and not os.path.isdir(settings.datasets_dir):  # pathlib may raise errors
        detail = f"LACHESIS_DATASETS_DIR={settings.datasets_dir} is not a directory: the service finds no datasets"
        yield warning("settings", detail, "create it, or name another")
    else:
        yield ok("settings", "all values can be used")
    yield from _store(settings, _other_credentials(settings))
    yield _port(settings)
    yield _open_files(settings)
    yield _host_name(settings)
    yield _json_parser()


def _other_credentials(settings: ServiceSettings) -> list[str]:
    """Return the settings that name credentials other than tokens."""
    given = {
        "LACHESIS_ADMIN_TOKEN_FILE": settings.admin_token_file,
        "LACHESIS_JWT_ISSUER": settings.jwt_issuer,
        "LACHESIS_TLS_RULES": settings.tls_rules,
    }
    return [name for name, value in given.items() if value is not None]


def _store(settings: ServiceSettings, others: Sequence[str]) -> Iterator[Finding]:
    from app.store.redis.address import store_url  # late: the other commands need not wait for them
    from app.store.server.checkup import examine_data_dir, examine_redis
    from app.store.server.embedded import running_url
    from app.store.server.probe import probe_patiently

    try:
        url = store_url(settings)
        if not url:
            yield from examine_data_dir(settings.data_dir, settings.redis_bin)
            url = running_url(settings.data_dir) or ""
        if not url:
            yield ok("redis", "the embedded Valkey does not run: the service starts it")
            return
        facts = asyncio.run(probe_patiently(url, _PATIENCE_S))
    except StoreUnavailable as error:
        yield problem("redis", error.detail, error.remedy)
        return
    yield from examine_redis(url, facts)
    yield from _access(settings, url, others)


def _access(settings: ServiceSettings, url: str, others: Sequence[str]) -> Iterator[Finding]:
    from app.core.access.loopback import TWO_WAYS
    from app.process.serve import needs_no_tokens, resolve
    from app.store.access.store import AccessStore
    from app.store.redis.client import RedisClient

    async def read() -> "tuple[AccessState, Sequence[TokenRecord]]":
        connection = RedisClient(url, _PATIENCE_S)
        try:
            state, records, _ = await AccessStore(connection).all()
            return state, records
        finally:
            await connection.aclose()

    try:
        state, records = asyncio.run(read())
    except ServiceError as error:
        yield problem("tokens", str(error.detail), error.remedy)
        return
    if not (state.closed or others):
        address = settings.host
        with contextlib.suppress(OSError):  # `_port` says so
            _, address = resolve(settings.host, settings.port)
        if needs_no_tokens(settings, address):
            yield ok("tokens", "no tokens: the service answers everyone who reaches it")
        else:
            yield problem("tokens", f"no tokens, and LACHESIS_HOST={settings.host} is not a loopback address", TWO_WAYS)
        return
    valid = [one for one in records if not one.has_ended(state.now_ms)]
    ending = [one for one in valid if _ends_soon(one, state.now_ms)]
    for one in ending:
        detail = f"token {one.token_id} ({' '.join(filter(None, (one.role, one.name)))}) expires within a week"
        yield warning("tokens", detail, _successor(one))
    if others:
        yield ok("tokens", f"{len(valid)} are valid, besides the credentials of {' and '.join(others)}")
    elif not any(one.role == "operator" for one in valid):
        detail = "the service asks for credentials, and no token of an operator is valid"
        yield warning("tokens", detail, "python -m app token create --role operator")
    elif not ending:
        yield ok("tokens", f"{len(valid)} are valid")


def _ends_soon(token: "TokenRecord", now_ms: int) -> bool:
    """Return whether a token ends within a week, and was made for a longer time."""
    if token.expires_ms is None or token.expires_ms - token.created_ms <= _SOON_MS:
        return False
    return token.expires_ms < now_ms + _SOON_MS


def _successor(token: "TokenRecord") -> str:
    """Return the command that creates a token with the same rights. It has no limits and does not expire."""
    options = ["--role", token.role]
    for run in token.runs:
        options += ["--run", run]
    if token.environment is not None:
        options += ["--environment", token.environment]
    if token.contents:
        options += ["--contents"]
    if token.name:
        options += ["--name", token.name]
    return f"python -m app token create {shlex.join(options)}"


def _port(settings: ServiceSettings) -> Finding:
    from app.process.serve import listen

    place = f"{settings.host}:{settings.port}"
    try:
        listen(settings.host, settings.port).close()
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            detail = f"the service cannot listen on {place}: {error.strerror}"
            return problem("port", detail, "set LACHESIS_HOST to one of this machine, or LACHESIS_PORT above 1023")
    else:
        return ok("port", f"{place} is free: the service does not run")
    answer = _health(settings)
    if answer == {"status": "ok"}:
        return ok("port", f"the service answers at {place}")
    if answer.get("code") == TooManyConnections.code:
        detail = f"the service at {place} refuses connections: {answer.get('detail')}"
        return problem("port", detail, TooManyConnections.remedy)
    detail = f"another program, or a service that does not answer, has {place}"
    return problem("port", detail, f"ss -ltnp 'sport = :{settings.port}' names it; or LACHESIS_PORT=8001")


def _health(settings: ServiceSettings) -> dict[str, Any]:
    """Return what `/healthz` answers at the port of the service; nothing if that is no JSON object."""
    url = own_url(settings)
    try:
        verify = tls_context(settings) if url.startswith("https:") else False
        answer = httpx.get(f"{url}/healthz", timeout=_PATIENCE_S, trust_env=False, verify=verify).json()
    except (httpx.HTTPError, OSError, ValueError):
        return {}
    return answer if isinstance(answer, dict) else {}


def _open_files(settings: ServiceSettings) -> Finding:
    if lack := lack_of_files(settings.max_connections):
        return warning("open files", *lack)
    detail = "enough for LACHESIS_MAX_CONNECTIONS, if the service has the limit of this shell; if not, its log says so"
    return ok("open files", detail)


def _host_name(settings: ServiceSettings) -> Finding:
    from app.api.http.browser_guard import HostNames

    name = socket.getfqdn()
    try:
        HostNames(settings.allowed_hosts or (), settings.host).check(name.encode())
    except ForeignHost as error:
        listed = ",".join((*(settings.allowed_hosts or ()), name))
        return warning("host names", str(error.detail), f"LACHESIS_ALLOWED_HOSTS={listed}, if clients use this name")
    return ok("host names", f"clients may use {name}")


def _json_parser() -> Finding:
    if find_spec("simdjson"):
        return ok("JSON parser", "simdjson")
    detail = "without simdjson, groups in JSON take about four times the CPU time; those in binary take no more"
    build = "python -m pip install --no-binary pysimdjson pysimdjson"
    return warning("JSON parser", detail, f"use Python 3.11 to 3.13, or build it, with a C++ compiler: {build}")
