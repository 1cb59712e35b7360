"""The command line for operators: `python -m app serve | status | token | backup | doctor | …`."""

import os
import ssl
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote

import httpx
import typer
from pydantic import ValidationError

from app.cli.address import own_url
from app.cli.backups import backup, restore
from app.cli.doctor import doctor
from app.cli.output import cut, fail, show, show_json, table
from app.cli.shards import shards_cli
from app.cli.tls import tls_context
from app.cli.tokens import tokens_cli
from app.settings import InvalidSettings, Settings, load_settings
from app.version import lachesis_version
from lachesis.wire.address import wrong_run, wrong_url
from lachesis.wire.curricula import Curricula
from lachesis.wire.replay import ReplayState
from lachesis.wire.runs import Runs
from lachesis.wire.status import Ledger, RunStatus

if TYPE_CHECKING:
    from rich.table import Table

_MOST_RUNS = 20
_MOST_LEASES = 8

cli = typer.Typer(
    name="lachesis",
    help="Lachesis: exact, fair, durable batches between rollout workers and trainers.",
    add_completion=False,
    pretty_exceptions_enable=False,
)
cli.add_typer(shards_cli, name="shards")
cli.add_typer(tokens_cli, name="token")
cli.command()(backup)
cli.command()(restore)
cli.command()(doctor)


def main() -> None:
    """Run the command line."""
    cli(prog_name="python -m app")


@cli.callback(invoke_without_command=True)
def _help(
    context: typer.Context, version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False
) -> None:
    if version:
        typer.echo(_version())
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@cli.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def serve(context: typer.Context) -> None:
    """Start the service, and the embedded Redis unless LACHESIS_REDIS_URL names another.

    Settings are environment variables, or lines of a .env file: LACHESIS_HOST,
    LACHESIS_PORT, LACHESIS_DATA_DIR, LACHESIS_REDIS_URL, LACHESIS_WORKERS and
    others. docs/reference/service-settings.md has all of them.
    """
    if context.args:
        fail(f"serve takes no arguments, not {context.args[0]!r}: {_meant(context.args[0])} (see serve --help)", 2)
    settings = _settings()
    from app.process.serve import serve as run  # late: the other commands need not wait for it

    sys.exit(run(settings))


@cli.command()
def version() -> None:
    """Print the version."""
    typer.echo(_version())


@cli.command()
def status(
    url: Annotated[
        str | None, typer.Option(envvar="LACHESIS_URL", help="The service; default: LACHESIS_HOST and LACHESIS_PORT.")
    ] = None,
    run: Annotated[str, typer.Option(envvar="LACHESIS_RUN", help="The run to ask about.")] = "default",
    json: Annotated[bool, typer.Option("--json", help="Print the reply as JSON.")] = False,
) -> None:
    """Show the status of a run: who takes part, what waits, what blocks.

    LACHESIS_TOKEN holds the token, if the service asks for one, or LACHESIS_TOKEN_FILE names a file with it.
    """
    if wrong := wrong_run(run):
        fail(f"--run: {wrong}")
    base = (url or own_url(_settings())).rstrip("/")
    if "://" not in base:
        base = f"http://{base}"
    if wrong := wrong_url(_shown(base)):
        fail(f"--url: {wrong}")
    # The run `default` exists before anybody creates it. Under /v1 a request creates no run.
    answer = _get(base, "/status" if run == "default" else f"/v1/runs/{quote(run, safe='')}/status")
    if answer.status_code == httpx.codes.NOT_FOUND:
        fail(f"{_detail_of(answer)[:300]}; {_runs_at(base)}")
    if answer.status_code == httpx.codes.UNAUTHORIZED:
        fail(f"{_detail_of(answer)[:300]}; set LACHESIS_TOKEN or LACHESIS_TOKEN_FILE to a valid token")
    if answer.status_code != httpx.codes.OK:
        fail(f"the service answered {answer.status_code}: {_detail_of(answer)[:300]}")
    if json:
        show_json(answer.text)
        return
    try:
        found = RunStatus.model_validate_json(answer.content)
        beside = list(_describe_beside(base, f"/v1/runs/{quote(run, safe='')}"))
    except ValidationError:
        fail("the reply is not that of a Lachesis service of this version; --json prints it")
    show((_shown(base), *_describe(found, beside)))


def _get(base: str, path: str) -> httpx.Response:
    try:
        token = _token()
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return httpx.get(base + path, timeout=10.0, trust_env=False, headers=headers, verify=_verify(base))
    except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
        fail(f"no answer from {_shown(base)}: {error}")


@cache
def _verify(base: str) -> ssl.SSLContext | bool:
    if not base.startswith("https:"):
        return False  # to load certificates takes 25 ms
    settings = _settings()
    return tls_context(settings if base == own_url(settings) else None)


def _token() -> str:
    """Return the token of this program. It is no option: every user of the machine can read command lines."""
    token, file = os.environ.get("LACHESIS_TOKEN", ""), os.environ.get("LACHESIS_TOKEN_FILE", "")
    if token or not file:
        return token
    try:
        return Path(file).read_text("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not ASCII"
        fail(f"LACHESIS_TOKEN_FILE: cannot read {file}: {reason}")


def _runs_at(base: str) -> str:
    """Return a sentence that lists the runs."""
    try:
        names = [found.name for found in Runs.model_validate_json(_get(base, "/v1/runs").content).runs]
    except ValidationError:
        return f"{_shown(base)} lists no runs: use the root of the service, such as http://127.0.0.1:8000"
    shown = ", ".join(names[:_MOST_RUNS]) + (", …" if len(names) > _MOST_RUNS else "")
    return f"there are: {shown}" if names else "nobody has made one yet"


def _shown(base: str) -> str:
    """Return the service's URL without user and password."""
    try:
        return str(httpx.URL(base).copy_with(userinfo=b""))
    except httpx.InvalidURL:
        return base


def _detail_of(answer: httpx.Response) -> str:
    try:
        return str(answer.json()["detail"])
    except (ValueError, KeyError, TypeError):
        return answer.text


def _version() -> str:
    return f"lachesis {lachesis_version()}"


def _meant(option: str) -> str:
    """Return a hint at the variable for an option, such as ``--port=80``."""
    name = option.lstrip("-").partition("=")[0].replace("-", "_")
    return f"LACHESIS_{name.upper()} sets it" if name in Settings.model_fields else "LACHESIS_* variables set all"


def _settings() -> Settings:
    try:
        return load_settings()
    except InvalidSettings as error:
        for line in str(error).splitlines():
            typer.echo(f"lachesis: {line}", err=True)
        sys.exit(1)


def _describe(found: RunStatus, beside: Iterable[str]) -> Iterable["str | Table"]:
    size = "not set" if found.batch_size < 0 else found.batch_size
    if found.access == "insecure":
        yield "warning: LACHESIS_INSECURE is set: anyone who reaches the service may do everything"
    yield f"run {found.run} · step {found.current_step} · batch size {size} · {found.durability}"
    groups = found.groups
    dropped = sum(found.dropped.values())
    yield (
        f"groups: {groups.accepted} accepted = {groups.queued} queued + {groups.buffered} buffered + {groups.leased} "
        f"leased + {groups.delivered} delivered + {dropped} dropped"
    )
    yield _tokens(found.ledger)
    if groups.oversized:
        yield f"set aside, larger than a batch: {groups.oversized}"
    if found.oldest_waiting_s is not None:
        yield f"oldest waiting: {found.oldest_waiting_s:.0f} s"
    if found.ready:
        yield "next batch: ready"
    else:
        yield f"next batch: blocked: {found.blocked.detail if found.blocked else 'unknown'}"
    if found.alert:
        yield f"alert for {found.alert.started_age_s:.0f} s: {found.alert.detail}"
    if found.upkeep:
        yield f"maintenance fails for {found.upkeep.failing_age_s:.0f} s: {found.upkeep.detail}"
    if found.leases:
        shown = [f"step {one.step} {one.state}, delivery {one.delivery_count}" for one in found.leases[:_MOST_LEASES]]
        yield f"not acknowledged: {'; '.join(shown)}" + ("; …" if len(found.leases) > _MOST_LEASES else "")
    if found.ranks:
        ranks = found.ranks
        yield (
            f"ranks: {ranks.batches} batches for {ranks.world_size}, mean imbalance {ranks.mean_imbalance:.1%} "
            f"(contiguous {ranks.mean_contiguous:.1%}, bound {ranks.mean_bound:.1%})"
        )
    yield from beside
    if found.environments:
        yield ""
        yield _environments(found)
        if found.next_after is not None:
            yield f"… {len(found.environments)} of {found.registered_environments} environments"


def _tokens(ledger: Ledger) -> str:
    tokens = ledger.model_dump(exclude={"cost", "generated_tokens"})
    parts = " + ".join(f"{count:,} {state.removesuffix('_tokens')}" for state, count in tokens.items())
    cost = "" if ledger.cost is None else f"; cost {ledger.cost.generated:,.2f}, {ledger.cost.trained:,.2f} trained"
    return f"tokens: {ledger.generated_tokens:,} generated = {parts}{cost}"


def _describe_beside(base: str, run: str) -> Iterable[str]:
    """Yield lines about a run's replay buffer and its curricula."""
    answer = _get(base, f"{run}/replay")
    if answer.status_code == httpx.codes.OK:
        buffer = ReplayState.model_validate_json(answer.content)
        yield f"replay: {buffer.sampleable_chunks} chunks to sample from, {buffer.samples_held} samples held"
        for side, blocked in (
            ("inserts", buffer.limiter.inserts_blocked),
            ("samples", buffer.limiter.samples_blocked),
        ):
            if blocked:
                yield f"replay: {side} wait: {blocked.detail}"
    answer = _get(base, f"{run}/curricula")
    if answer.status_code == httpx.codes.OK:
        for one in Curricula.model_validate_json(answer.content).curricula:
            yield (
                f"curriculum {one.name}: {one.settings.strategy}, {one.items_seen} of {one.items} items seen, "
                f"{one.in_flight} in flight"
            )


def _environments(found: RunStatus) -> "Table":
    header = ("id", "environment", "alive", "seen", "queued", "buffered", "served", "promised", "got")
    rows = (
        (
            str(env.id),
            cut(env.name),
            "yes" if env.alive else "no",
            f"{env.last_seen_age_s:.0f} s ago",
            f"{env.queued_groups} ({env.queued_sequences} seq)",
            f"{env.buffered_groups} ({env.buffered_sequences} seq)",
            f"{env.served_sequences} seq",
            f"{env.share_promised:.1%}",
            "-" if env.share_got is None else f"{env.share_got:.1%}",
        )
        for env in found.environments
    )
    return table(header, rows, left=4)
