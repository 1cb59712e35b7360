"""``python -m lachesis ping``: is the service there, is it ready, how is a run doing?

The other commands need the extra ``cli`` (`lachesis._cli.commands`).
"""

import argparse
import asyncio
import gc
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from importlib.util import find_spec
from pathlib import Path

from lachesis._exit_codes import NOT_ALLOWED, UNHEALTHY, UNREACHABLE, WELL, WRONG_USE, code_of
from lachesis._transport.http import Sender
from lachesis._transport.protocol import Call, get_json, model_reader
from lachesis._transport.run_calls import RunCalls
from lachesis._transport.settings import Settings
from lachesis._version import sdk_version
from lachesis.errors import LachesisError, PermissionDenied, ServiceError, UntrustedCertificate
from lachesis.wire.address import without_password
from lachesis.wire.printable import counted, printable
from lachesis.wire.status import RunStatus
from lachesis.wire.version import ServiceVersion

WITH_EXTRA = {
    "status": "show the runs, or the status of one",
    "top": "show all runs, live",
    "explain": "say whether a batch would form now, and why not",
    "events": "show what happened in a run, or follow it",
    "groups": "list the groups of a run",
    "show": "show a group: where it is, what happened to it, what is in it",
    "doctor": "say what is wrong between this machine and the service",
    "export": "write groups of a run into files",
    "import": "submit the groups of an export to a run",
}
"""The commands that need the extra ``cli``, and what they do."""

_COMPLETION_OPTIONS = {
    "--install-completion": "complete commands in the shell",
    "--show-completion": "print the completion for the shell",
}
"""The options that need the extra ``cli``, and what they do."""

_LIBRARIES = ("typer", "rich")
_SCRIPT = "lachesis"
_COMPLETION = "_LACHESIS_COMPLETE"
"""The variable by which a shell asks the script for completions."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Carry out a command line."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    first = words[0] if words else ""
    if first in _COMPLETION_OPTIONS and _program() != _SCRIPT:  # a shell would complete all commands of `python`
        return _say(f"a shell completes the command {_SCRIPT} alone: run {_SCRIPT} {first}", WRONG_USE)
    if _COMPLETION in os.environ or first in WITH_EXTRA or first in _COMPLETION_OPTIONS:
        return _with_extra(words)
    given = _parser().parse_args(words)
    try:
        settings = Settings.from_env(
            **{name: value for name, value in (("url", given.url), ("run", given.run)) if value is not None},
            timeout_s=given.timeout_s,
            connect_timeout_s=given.timeout_s,
            retry_budget_s=0,
        )
        sender = Sender(settings)
    except ValueError as error:
        given.fail(str(error))
    answer = asyncio.run(_ping(settings, sender, given.run is not None or "LACHESIS_RUN" in os.environ))
    if given.json:
        print(answer.as_json())
    else:
        answer.tell()
    return answer.code


def _parser() -> argparse.ArgumentParser:
    """Build the parser of ``ping``. Its help also lists the commands and options that need the extra ``cli``."""
    parser = argparse.ArgumentParser(prog=_program(), description="Lachesis from the command line.")
    parser.add_argument("--version", action="version", version=f"lachesis {sdk_version()}", help="print the version")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    ping = commands.add_parser(
        "ping",
        help="ask a service whether it is well",
        description="Ask a service whether it is there and ready, and how a run is doing.",
        epilog=f"Exits with {WELL} if all is well, {UNHEALTHY} if it is not ready or has no such run, "
        f"{WRONG_USE} after wrong use, {UNREACHABLE} if it does not answer, {NOT_ALLOWED} if the token does not "
        f"allow it.",
    )
    ping.add_argument("url", nargs="?", help="such as http://127.0.0.1:8000, which is the default; or LACHESIS_URL")
    ping.add_argument("--run", help="also say how this run is doing; default: LACHESIS_RUN, if it is set")
    ping.add_argument("--timeout-s", type=float, default=5.0, help="how long to wait for each answer (%(default)s)")
    ping.add_argument("--json", action="store_true", help="print JSON in one line")
    ping.set_defaults(fail=ping.error)
    needs = " (extra `cli`)" if _missing_libraries() else ""
    for name, meaning in WITH_EXTRA.items():
        commands.add_parser(name, help=meaning + needs, add_help=False)
    for name, meaning in _COMPLETION_OPTIONS.items() if _program() == _SCRIPT else ():
        parser.add_argument(name, action="store_true", help=meaning + needs)
    return parser


def _program() -> str:
    """Return how the user calls this program: as the script that pip installs, or as a module."""
    return _SCRIPT if Path(sys.argv[0]).stem == _SCRIPT else f"python -m {_SCRIPT}"


def _missing_libraries() -> list[str]:
    return [name for name in _LIBRARIES if find_spec(name) is None]


def _with_extra(words: list[str]) -> int:
    if missing := _missing_libraries():
        return _say(f"this command needs {' and '.join(missing)}: pip install {' '.join(missing)}", WRONG_USE)
    from lachesis._cli.commands import run_words  # late: ping needs neither

    gc.freeze()  # Python looks through everything for garbage when it ends: a fifth of the time of a command
    return run_words(words, _program())


@dataclass(frozen=True, slots=True)
class _PingResult:
    """What ping found out, and its exit code."""

    url: str
    code: int
    error: str | None = None
    version: str | None = None
    answered_ms: float | None = None
    ready: bool = False
    run: RunStatus | None = None
    note: str | None = None

    def as_json(self) -> str:
        """Return it in one line."""
        facts = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "code"}
        return json.dumps(facts | {"run": None if self.run is None else self.run.model_dump(mode="json")})

    def tell(self) -> None:
        """Say it to people: what is well to stdout, what is not to stderr."""
        if self.version is not None:
            _say(f"Lachesis {self.version} at {self.url} answered in {self.answered_ms:.1f} ms")
        if self.ready:
            _say("ready: Redis answers")
        if self.run is not None:
            _say(_described(self.run))
        if self.note is not None:
            _say(self.note)
        if self.error is not None:
            _say(self.error, self.code)


async def _ping(settings: Settings, sender: Sender, with_run: bool) -> _PingResult:
    answer = _PingResult(without_password(settings.url), WELL)
    async with sender:
        try:
            began_s = time.monotonic()
            await sender.send(get_json("/healthz"))
            answered_ms = 1000 * (time.monotonic() - began_s)
            version = (await sender.send(Call("GET", "/version", model_reader(ServiceVersion)))).version
        except ServiceError as error:
            return replace(answer, code=code_of(error), error=f"{answer.url} answered with an error: {error}")
        except UntrustedCertificate as error:
            return replace(answer, code=code_of(error), error=str(error))
        except LachesisError as error:
            return replace(answer, code=UNREACHABLE, error=f"no Lachesis answers at {answer.url}: {error}")
        answer = replace(answer, version=version, answered_ms=answered_ms)
        try:
            await sender.send(get_json("/readyz"))
            answer = replace(answer, ready=True)
            if with_run:
                found = await sender.send(RunCalls(settings.run).status())
                answer = replace(answer, run=found)
        except PermissionDenied:  # a worker's token: all that it can ask is well
            return replace(answer, note=f"run {settings.run}: the role of this token may not read its status")
        except LachesisError as error:
            return replace(answer, code=code_of(error), error=f"not well: {error}")
    return answer


def _described(run: RunStatus) -> str:
    state = "a batch is ready" if run.ready else f"no batch yet: {run.blocked.detail if run.blocked else 'unknown'}"
    environments = counted(run.registered_environments, "environment")
    return (
        f"run {run.run}: step {run.current_step}, batches of {run.batch_size}, "
        f"{counted(run.queue_size, 'group')} in the queue, {run.alive_environments} of {environments} alive; {state}"
    )


def _say(line: str, code: int = WELL) -> int:
    print(printable(line), file=sys.stderr if code else sys.stdout)
    return code


if __name__ == "__main__":
    sys.exit(main())
