"""`python -m app token`: tokens, from a shell on the server.

The commands work on the Redis of the service directly. If no service runs, they start the embedded Valkey for a moment.
They say on stderr which Redis it was. Where there is no data, they create none. Only `create` does, with `--new-data`
or if LACHESIS_DATA_DIR names the place.
"""

import asyncio
import os
import pwd
import re
import shlex
import socket
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from json import dumps as json_text
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from pydantic import BaseModel, ValidationError

from app.cli.output import fail, show, show_json
from app.settings import InvalidSettings, ServiceSettings, load_settings
from lachesis._cli.output import console, cut, span, table
from lachesis.wire.access import TOKEN_ID, Role, TokenCreate, TokenInfo, TokenRotate
from lachesis.wire.errors import LachesisError
from lachesis.wire.printable import printable
from lachesis.wire.problems import format_validation_error

if TYPE_CHECKING:
    from app.services.access.tokens import TokenAdministration, TokenFacts

_InJson = Annotated[bool, typer.Option("--json", help="Print JSON, one value per line.")]

T = TypeVar("T")
B = TypeVar("B", bound=BaseModel)

_WIDE, _LONG, _SHORT = 140, 40, 10
"""From how many columns on names and runs are long in lists of tokens; characters of a long and of a short one."""

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_DURATION = re.compile(r"(\d+)([smhd])")

_OPTIONS = {"runs": "--run", "expires_s": "--expires", "overlap_s": "--overlap"}
"""Options whose name is not that of their field."""


def _valid_time(text: str | None) -> str | None:
    if text is not None:
        _seconds(text)
    return text


def _valid_id(token: str) -> str:
    if not re.fullmatch(TOKEN_ID, token):
        raise typer.BadParameter("the id has 12 hexadecimal digits; `python -m app token list` shows it")
    return token


_TokenId = Annotated[str, typer.Argument(callback=_valid_id, help="The id of the token, as listed.")]

tokens_cli = typer.Typer(
    help="Create, list, revoke and rotate tokens, on the server.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


@tokens_cli.command()
def create(
    role: Annotated[Role, typer.Option(help="environment, trainer, viewer, operator or metrics.")],
    run: Annotated[
        list[str] | None, typer.Option(help="A run, or a pattern such as 'math-*'. May be repeated.")
    ] = None,
    expires: Annotated[
        str | None, typer.Option(callback=_valid_time, help="When it ends: 30d, 12h, 90m. Default: never.")
    ] = None,
    environment: Annotated[
        str | None, typer.Option(help="Role environment: the only environment that it may act for.")
    ] = None,
    contents: Annotated[bool, typer.Option(help="Role viewer: it may read contents of groups.")] = False,
    name: Annotated[str, typer.Option(help="A name for people.")] = "",
    max_requests_per_s: Annotated[float | None, typer.Option(help="Most requests per second. Default: any.")] = None,
    max_bytes_per_s: Annotated[float | None, typer.Option(help="Most bytes of bodies per second.")] = None,
    max_groups_per_s: Annotated[float | None, typer.Option(help="Most submitted groups per second.")] = None,
    max_queued_groups: Annotated[int | None, typer.Option(help="Most of its groups in the queue of a run.")] = None,
    max_queued_bytes: Annotated[int | None, typer.Option(help="Most bytes of their payload.")] = None,
    new_data: Annotated[
        bool, typer.Option("--new-data", help="Create the data directory if this place has none.")
    ] = False,
    json: _InJson = False,
) -> None:
    """Create a token and print it, once. The first token closes the service."""
    asked = _checked(
        TokenCreate,
        role=role,
        runs=run or (),
        expires_s=None if expires is None else _seconds(expires),
        environment=environment,
        contents=contents,
        name=name,
        max_requests_per_s=max_requests_per_s,
        max_bytes_per_s=max_bytes_per_s,
        max_groups_per_s=max_groups_per_s,
        max_queued_groups=max_queued_groups,
        max_queued_bytes=max_queued_bytes,
    )
    from app.api.wire.access import scope_of  # late: the other commands need not wait for it

    scope = scope_of(asked)
    facts, text = _with_tokens(
        lambda tokens: tokens.create(scope, asked.expires_s), audited=True, creates=True, new_data=new_data
    )
    typer.echo(f"token {facts.record.token_id} for role {asked.role}; it is not shown again:", err=True)
    _show_secret(facts, text, json)


@tokens_cli.command("list")
def list_tokens(json: _InJson = False) -> None:
    """List all tokens, without secrets."""
    from app.api.wire.access import shown_token  # late: the other commands need not wait for it

    found = [shown_token(facts) for facts in _with_tokens(lambda tokens: tokens.list())]
    if json:
        for token in found:
            show_json(token.model_dump_json())
        return
    if not found:
        typer.echo("there are no tokens")
        return
    header = ("id", "name", "role", "runs", "state", "ends", "last used")
    most = _LONG if console().width >= _WIDE else _SHORT
    show([table(header, [_row(token, most) for token in found], left=5)])


@tokens_cli.command()
def revoke(token: _TokenId, json: _InJson = False) -> None:
    """Revoke a token. All processes refuse it within 5 s."""
    _with_tokens(lambda tokens: tokens.revoke(token), audited=True)
    typer.echo(json_text({"id": token, "state": "revoked"}) if json else f"token {token} is revoked")


@tokens_cli.command()
def rotate(
    token: _TokenId,
    overlap: Annotated[
        str, typer.Option(callback=_valid_time, help="How long the present secret stays valid: 30m, 24h.")
    ] = "1h",
    json: _InJson = False,
) -> None:
    """Give a token a new secret, and print the token, once."""
    asked = _checked(TokenRotate, overlap_s=_seconds(overlap))
    facts, text = _with_tokens(lambda tokens: tokens.rotate(token, asked.overlap_s), audited=True)
    _show_secret(facts, text, json)


@tokens_cli.command()
def reopen(json: _InJson = False) -> None:
    """Let a service on loopback answer everyone again, from its next start. Refused while a token is valid."""
    _with_tokens(lambda tokens: tokens.reopen(), audited=True)
    said = "the service is open from its next start, unless it has an admin token file, a JWT issuer or TLS rules"
    typer.echo(json_text({"closed": False}) if json else said)


def _show_secret(facts: "TokenFacts", text: str, json: bool) -> None:
    from app.api.wire.access import created_token  # late: the other commands need not wait for it

    try:
        if json:
            show_json(created_token(facts, text).model_dump_json())
        else:
            typer.echo(text)
    except OSError as error:  # such as a file on a full disk
        token = facts.record.token_id
        fail(f"token {token} is valid, but its text was not printed: {error.strerror}. Rotate or revoke it")


def _with_tokens(
    use: Callable[["TokenAdministration"], Coroutine[Any, Any, T]],
    *,
    audited: bool = False,
    creates: bool = False,
    new_data: bool = False,
) -> T:
    """Use the tokens in the Redis of the service, and add the command to the audit trail if it is audited.

    Args:
        use: What to do with the tokens.
        audited: Whether the command is in the audit trail.
        creates: Whether to create a missing data directory at a place that a setting names.
        new_data: Whether to create a missing data directory at the default place, too.
    """
    try:
        settings = load_settings()
        may_create = new_data or (creates and "data_dir" in settings.model_fields_set)
        with _redis_of_service(settings, may_create=may_create) as (url, place):
            result = asyncio.run(_used(settings, url, use, audited=audited))
            typer.echo(f"lachesis: used the tokens in {place}", err=True)
            return result
    except (InvalidSettings, LachesisError) as error:
        fail(str(error))


@contextmanager
def _redis_of_service(settings: ServiceSettings, *, may_create: bool) -> Iterator[tuple[str, str]]:
    """Find the Redis of the service, or start the embedded Valkey until the block ends. Yield its URL and place."""
    from app.process.store import open_store  # late: the other commands need not wait for them
    from app.store.redis.address import store_url
    from app.store.server.data_dir import has_data, refuse_root
    from app.store.server.embedded import running_url
    from app.store.server.probe import place_of

    home = settings.data_dir.absolute()
    url = store_url(settings) if settings.redis_url else running_url(settings.data_dir)
    if url:
        yield url, place_of(url) if settings.redis_url else f"the running service on {home}/"
        return
    if not (may_create or has_data(home)):
        fail(
            f"there is no data in {home}/, so no service uses it: run this command in the working directory of the "
            "service, or set LACHESIS_DATA_DIR or LACHESIS_REDIS_URL as the service has it; "
            "`token create --new-data` creates the directory for a service that starts here later"
        )
    refuse_root(home)
    with open_store(settings) as store:
        yield store.url, f"{home}/, which no service uses now"


async def _used(
    settings: ServiceSettings,
    url: str,
    use: Callable[["TokenAdministration"], Coroutine[Any, Any, T]],
    *,
    audited: bool,
) -> T:
    """Use the tokens in a Redis, with an entry in the audit trail if the command is audited."""
    from app.services.access.audit import AuditTrail, RequestKind  # late: the other commands need not wait for them
    from app.services.access.tokens import TokenAdministration
    from app.store.access.audit import AuditStore
    from app.store.access.rate_limits import LimitStore
    from app.store.access.store import AccessStore
    from app.store.redis.client import RedisClient

    connection = RedisClient(url, settings.store_patience_s)
    tokens = TokenAdministration(AccessStore(connection), LimitStore(connection))
    try:
        if not audited:
            return await use(tokens)
        trail = AuditTrail(AuditStore(connection), settings.audit_entries)
        kind = RequestKind(_user(), "command")
        async with trail.entry({"caller": _user()}, "CLI", _command(), None, kind) as result:
            used = await use(tokens)
            result.status = 200
            return used
    finally:
        await connection.aclose()


def _user() -> str:
    """Return who runs the command: the user of the process, not of a variable, and the host."""
    try:
        name = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # in a container, a user may have no name
        name = str(os.getuid())
    return f"{name}@{socket.gethostname()}"


def _command() -> str:
    """Return the command as it was given. No argument of it is a secret."""
    return shlex.join(sys.argv[1:])


def _checked(model: type[B], **values: Any) -> B:
    try:
        return model.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"][:1])
        option = _OPTIONS.get(field, f"--{field.replace('_', '-')}") if field else None
        raise typer.BadParameter(printable(format_validation_error(first)), param_hint=option) from None


def _seconds(text: str) -> float:
    match = _DURATION.fullmatch(text)
    if match is None:
        raise typer.BadParameter(f"{text!r} is not a time: give a number and s, m, h or d, such as 30d")
    return float(int(match[1]) * _SECONDS[match[2]])


def _row(token: TokenInfo, most: int) -> tuple[str, ...]:
    """Return the cells of a token, its name and runs at most so long: a long one must hide no column."""
    ends = "never" if token.expires_s is None else f"in {span(token.expires_s)}"
    used = "never" if token.last_used_age_s is None else f"{span(token.last_used_age_s)} ago"
    runs = ", ".join(token.runs) + (f" ({token.environment})" if token.environment else "")
    name, runs = (cut(printable(text), most) for text in (token.name, runs))
    return (token.id, name, token.role, runs, token.state, ends, used)
