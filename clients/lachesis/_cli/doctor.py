"""The command ``doctor``: what is wrong between this machine and the service, and what to type."""

import os
import time
from collections.abc import AsyncIterator, Mapping
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import Annotated
from urllib.parse import urlsplit

import typer

from lachesis._cli import output, status_output
from lachesis._cli.session import InJson, Url, carry_out, settings_of
from lachesis._exit_codes import NOT_ALLOWED, UNHEALTHY, WELL, code_of
from lachesis._transport.credentials import Credentials
from lachesis._transport.http import Sender
from lachesis._transport.protocol import Call, Reply, get_json, model_reader
from lachesis._transport.run_calls import RunCalls
from lachesis._transport.settings import Settings
from lachesis._version import UNKNOWN, sdk_version
from lachesis.errors import (
    BY_CODE,
    ClosedByDefault,
    ForeignHost,
    LachesisError,
    PermissionDenied,
    RunNotFound,
    ServiceError,
    Unauthorized,
    UntrustedCertificate,
)
from lachesis.wire.address import is_readable_by_others, split_run, without_password
from lachesis.wire.findings import Finding, finding_lines, ok, problem, warning
from lachesis.wire.printable import counted
from lachesis.wire.states import EVERY_WRITE
from lachesis.wire.version import ServiceVersion

_MOST_SKEW_S = 5.0
_FILES = 1024
"""Open files that a worker with many connections and dataset files needs."""


def doctor(
    run: Annotated[
        str | None, typer.Argument(help="The run to check. Default: that of LACHESIS_RUN or of the URL, or none.")
    ] = None,
    url: Url = None,
    json: InJson = False,
) -> None:
    """Check the service, the token, clocks and limits, from this machine. If a run is named, check it, too.

    The exit code is that of the first problem: 1, 3 or 4. Each problem comes with what to type.
    `python -m app doctor` checks more, on the server.
    """
    settings = settings_of(url, run)
    with_run = run is not None or "LACHESIS_RUN" in os.environ or _run_of(url) is not None

    async def check(sender: Sender) -> int:
        code, console = WELL, output.console()
        async for found, failed in _findings(settings, sender, with_run):
            if json:
                typer.echo(output.as_json(found))
            else:
                for text in finding_lines(found):
                    console.print(output.line(text), soft_wrap=True)
            code = code or (failed if found.state == "problem" else WELL)
        return code

    carry_out(settings, check)


async def _findings(settings: Settings, sender: Sender, with_run: bool) -> AsyncIterator[tuple[Finding, int]]:
    """Yield what each check found, and the exit code that a problem of this check means."""
    yield _open_files(), UNHEALTHY
    if (sent := _plain_token(settings)) is not None:
        yield sent, UNHEALTHY
    began_s = time.monotonic()
    try:
        headers = await sender.send(Call("GET", "/healthz", _headers))
    except LachesisError as error:
        yield _no_answer(settings, error), code_of(error)
        return
    took_s = time.monotonic() - began_s
    yield ok("service", f"{without_password(settings.url)} answered in {1000 * took_s:.0f} ms"), WELL
    yield _clock(headers, took_s), UNHEALTHY
    yield await _ready(sender)
    token, failed = await _token(settings, sender)
    yield token, failed
    if token.state == "problem":
        return
    if not with_run:
        yield ok("run", "none is named, so none is checked"), WELL
        return
    async for found in _run(settings, sender):
        yield found, UNHEALTHY


def _run_of(url: str | None) -> str | None:
    """Return the run that the URL of a command names, or that of its variable."""
    return split_run(os.environ.get("LACHESIS_URL", "") if url is None else url)[1]


def _headers(reply: Reply) -> Mapping[str, str]:
    return reply.headers


def _open_files() -> Finding:
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return ok("open files", "this system has no limit")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < _FILES:
        return warning("open files", f"this shell allows {soft} open files and connections", f"ulimit -n {_FILES}")
    return ok("open files", "no limit" if soft == resource.RLIM_INFINITY else f"{soft} allowed, at most {hard}")


def _plain_token(settings: Settings) -> Finding | None:
    if not Credentials(settings).given or not is_readable_by_others(settings.url):
        return None
    host = urlsplit(settings.url).hostname
    remedy = "use https:// in LACHESIS_URL, if the service or a proxy before it speaks TLS (docs/security.md)"
    return warning("encryption", f"everyone between here and {host} can read the token", remedy)


def _no_answer(settings: Settings, error: LachesisError) -> Finding:
    """Find out why the service does not answer, or answers something else."""
    if isinstance(error, ForeignHost):
        return problem("host name", str(error.detail), "set LACHESIS_ALLOWED_HOSTS for the service, and restart it")
    if isinstance(error, ServiceError) and error.code in BY_CODE:
        return problem("service", error.detail, error.remedy)
    if isinstance(error, ServiceError):
        return problem("service", f"another program answers: {error}", "correct LACHESIS_URL or --url")
    text, parts = str(error), urlsplit(settings.url)
    if "Name or service not known" in text or "getaddrinfo" in text or "name resolution" in text:
        return problem(
            "host name", text, f"correct the name in LACHESIS_URL; getent hosts {parts.hostname} must find it"
        )
    if isinstance(error, UntrustedCertificate):
        return problem("certificate", text, "set LACHESIS_CA_FILE to the file of the CA that signed the certificate")
    port = parts.port or (443 if parts.scheme == "https" else 80)
    remedy = f"start the service (make run), or correct LACHESIS_URL; a firewall may close port {port}"
    return problem("service", text, remedy)


def _clock(headers: Mapping[str, str], took_s: float) -> Finding:
    """Compare clocks by the header ``Date``, which has whole seconds."""
    now = datetime.now(timezone.utc)
    try:
        theirs = parsedate_to_datetime(headers.get("date", ""))
    except ValueError:
        return warning("clock", "the service tells no time", "a proxy before the service may have removed Date")
    ahead_s = (now - theirs.replace(tzinfo=theirs.tzinfo or timezone.utc)).total_seconds()
    if abs(ahead_s) <= _MOST_SKEW_S + took_s:
        return ok("clock", f"within {_MOST_SKEW_S:g} s of the service")
    direction = "ahead of" if ahead_s > 0 else "behind"
    detail = f"this machine is {abs(ahead_s):.0f} s {direction} the service: logs do not match, and JWTs may be refused"
    return problem("clock", detail, "timedatectl set-ntp true, on the machine whose clock is wrong")


async def _ready(sender: Sender) -> tuple[Finding, int]:
    try:
        await sender.send(get_json("/readyz"))
    except LachesisError as error:
        return problem("ready", str(error), "python -m app doctor, on the server"), code_of(error)
    return ok("ready", "Redis can be used, and maintenance runs"), WELL


async def _token(settings: Settings, sender: Sender) -> tuple[Finding, int]:
    given = "no token is given, and the service asks for none"
    if Credentials(settings).given:
        given = "the service accepts requests with this token"
    try:
        theirs = (await sender.send(Call("GET", "/version", model_reader(ServiceVersion)))).version
    except Unauthorized as error:
        remedy = "set LACHESIS_TOKEN or LACHESIS_TOKEN_FILE; python -m app token create, on the server, makes a token"
        return problem("token", str(error), remedy), NOT_ALLOWED
    except PermissionDenied:
        return warning("token", f"{given}; its role may read only metrics", "use a token of another role"), WELL
    except ClosedByDefault as error:
        return problem("token", error.detail, error.remedy), NOT_ALLOWED
    except LachesisError as error:
        return _no_answer(settings, error), code_of(error)
    ours = sdk_version()
    if ours not in (theirs, UNKNOWN):
        mixed = f"{given}; the service has version {theirs}, the SDK {ours}"
        return warning("version", mixed, _install(theirs)), WELL
    return ok("token", f"{given}; the service has version {theirs}"), WELL


def _install(theirs: str) -> str:
    return f"pip install '.[cli]', in a clone of version {theirs}"


async def _run(settings: Settings, sender: Sender) -> AsyncIterator[Finding]:
    calls = RunCalls(settings.run)
    try:
        found = await sender.send(calls.status())
    except RunNotFound as error:
        yield problem("run", str(error), "correct the name or LACHESIS_RUN, or create the run: Trainer.create_run")
        return
    except PermissionDenied:
        yield ok("run", f"the role of this token may not read the status of {settings.run}: nothing more is checked")
        return
    except LachesisError as error:
        yield problem("run", str(error), "python -m app doctor, on the server")
        return
    if found.durability.endswith(EVERY_WRITE):
        yield ok("persistence", found.durability)
    else:
        remedy = "LACHESIS_FSYNC=always; for a Redis of your own: appendonly yes, appendfsync always"
        yield warning("persistence", found.durability, remedy)
    if found.access == "insecure":
        remedy = "python -m app token create --role operator, and remove LACHESIS_INSECURE"
        yield warning("access", "LACHESIS_INSECURE is set: everyone who reaches the service may do everything", remedy)
    troubles = status_output.troubles(found)
    for trouble in troubles:
        yield problem("run", trouble, f"lachesis explain {settings.run}")
    if not troubles:
        waits = "" if found.blocked is None else f"; no batch yet: {found.blocked.detail}"
        queued = counted(found.groups.queued, "group")
        yield ok("run", f"{settings.run}: step {found.current_step}, {queued} queued, no warning{waits}")
