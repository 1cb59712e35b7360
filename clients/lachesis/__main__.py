"""``python -m lachesis ping``: is the service there, is it ready, how is a run doing?"""

import argparse
import asyncio
import os
import sys
import time
from collections.abc import Sequence

from lachesis._transport.http import Sender
from lachesis._transport.protocol import get_json
from lachesis._transport.run_calls import RunCalls
from lachesis._transport.settings import Settings
from lachesis.errors import LachesisError
from lachesis.wire.status import RunStatus

WELL, NOT_READY, UNREACHABLE = 0, 1, 2
"""Exit codes: all is well; the service answers, but is not ready or has no such run; it does not answer."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Carry out a command line."""
    parser = argparse.ArgumentParser(prog="python -m lachesis", description="Lachesis from the command line.")
    commands = parser.add_subparsers(required=True)
    ping = commands.add_parser(
        "ping",
        help="ask a service whether it is well",
        epilog=f"Exits with {WELL} if all is well, {NOT_READY} if it is not ready or has no such run, "
        f"{UNREACHABLE} if it does not answer.",
    )
    ping.add_argument("url", nargs="?", help="such as http://127.0.0.1:8000, which is the default; or LACHESIS_URL")
    ping.add_argument("--run", help="also say how this run is doing; default: LACHESIS_RUN, if it is set")
    ping.add_argument("--timeout-s", type=float, default=5.0, help="how long to wait for each answer (%(default)s)")
    given = parser.parse_args(arguments)
    try:
        settings = Settings.from_env(
            **{name: value for name, value in (("url", given.url), ("run", given.run)) if value is not None},
            timeout_s=given.timeout_s,
            connect_timeout_s=given.timeout_s,
            retry_budget_s=0,
        )
    except ValueError as error:
        ping.error(str(error))
    return asyncio.run(_ping(settings, given.run is not None or "LACHESIS_RUN" in os.environ))


async def _ping(settings: Settings, with_run: bool) -> int:
    async with Sender(settings) as sender:
        try:
            began_s = time.monotonic()
            await sender.send(get_json("/healthz"))
            answered_ms = 1000 * (time.monotonic() - began_s)
            version = (await sender.send(get_json("/version")))["version"]
        except LachesisError as error:
            return _say(f"no Lachesis answers at {settings.url}: {error}", UNREACHABLE)
        _say(f"Lachesis {version} at {settings.url} answered in {answered_ms:.1f} ms")
        try:
            await sender.send(get_json("/readyz"))
            _say("ready: Redis answers")
            if with_run:
                _say(_described(await sender.send(RunCalls(settings.run).status())))
        except LachesisError as error:
            return _say(f"not well: {error}", NOT_READY)
    return WELL


def _described(run: RunStatus) -> str:
    alive = sum(environment.alive for environment in run.environments)
    state = "a batch is ready" if run.ready else f"no batch yet: {run.blocked.detail if run.blocked else 'unknown'}"
    return (
        f"run {run.run}: step {run.current_step}, batches of {run.batch_size}, {run.queue_size} groups in the queue, "
        f"{alive} of {len(run.environments)} environments alive; {state}"
    )


def _say(line: str, code: int = WELL) -> int:
    print(line, file=sys.stderr if code else sys.stdout)
    return code


if __name__ == "__main__":
    sys.exit(main())
