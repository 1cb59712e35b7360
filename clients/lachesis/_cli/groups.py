"""The commands ``groups`` and ``show``: which groups a run has, and what is in one."""

from datetime import datetime
from typing import Annotated, Any

import typer

from lachesis._cli import group_output, output
from lachesis._cli.session import InJson, RunName, RunOption, Url, carry_out, note, settings_of
from lachesis._exit_codes import WELL
from lachesis._transport.http import Sender
from lachesis._transport.protocol import get_json, path_of
from lachesis._transport.run_calls import RunCalls
from lachesis.errors import GroupGone, PermissionDenied
from lachesis.wire.groups import GROUPS_SHOWN, MAX_LOOKED_AT, GroupContent, ListedGroup
from lachesis.wire.states import DropReason, GroupState


def groups(
    run: RunName = None,
    url: Url = None,
    state: Annotated[GroupState | None, typer.Option(help="Only groups in this state.")] = None,
    environment: Annotated[
        str | None, typer.Option(help="Only groups of the environment with this id or name; `none`: of no environment.")
    ] = None,
    size: Annotated[int | None, typer.Option(min=1, help="Only groups with this number of sequences.")] = None,
    item: Annotated[str | None, typer.Option(help="Only groups of this dataset entry or task.")] = None,
    score_min: Annotated[float | None, typer.Option(help="Only groups with at least this mean score.")] = None,
    score_max: Annotated[float | None, typer.Option(help="Only groups with at most this mean score.")] = None,
    received_from: Annotated[
        datetime | None,
        typer.Option(help="Only groups received from this local time on, such as 2026-01-31T12:00."),
    ] = None,
    received_to: Annotated[datetime | None, typer.Option(help="Only groups received before this local time.")] = None,
    step_min: Annotated[int | None, typer.Option(min=0, help="Only groups in batches of this step or later.")] = None,
    step_max: Annotated[int | None, typer.Option(min=0, help="Only groups in batches of this step or earlier.")] = None,
    staleness_min: Annotated[
        int | None, typer.Option(min=0, help="Only groups that are at least this many policy versions old.")
    ] = None,
    older_than_version: Annotated[
        int | None, typer.Option(min=0, help="Only groups sampled by a policy version before this one.")
    ] = None,
    dropped: Annotated[DropReason | None, typer.Option(help="Only groups that were dropped for this reason.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="How many groups to list.")] = GROUPS_SHOWN,
    cursor: Annotated[str | None, typer.Option(help="Continue after the last group of an earlier list.")] = None,
    json: InJson = False,
) -> None:
    """List the groups of a run.

    They wait, are in a batch, or have left. If there are more than shown, stderr says how to see them.
    """
    settings = settings_of(url, run)
    filters: dict[str, object] = {
        "state": state,
        "environment": environment,
        "size": size,
        "item": item,
        "score_min": score_min,
        "score_max": score_max,
        "received_from_s": received_from and received_from.timestamp(),
        "received_to_s": received_to and received_to.timestamp(),
        "step_min": step_min,
        "step_max": step_max,
        "staleness_min": staleness_min,
        "older_than_version": older_than_version,
        "dropped": dropped,
    }

    async def show_list(sender: Sender) -> int:
        calls, found, after = RunCalls(settings.run), list[ListedGroup](), cursor
        while True:
            asked = filters | {"cursor": after, "limit": min(limit - len(found), MAX_LOOKED_AT)}
            page = await sender.send(calls.list_groups(asked))
            if json:
                for one in page.groups:
                    typer.echo(output.as_json(one))
            found += page.groups
            after = page.cursor
            if after is None or len(found) >= limit:
                break
        if not json:
            console = output.console()
            console.print(group_output.listed(found, console.width))
        if after is not None:
            note(f"there may be more: the same command with --cursor {after}")
        return WELL

    carry_out(settings, show_list)


def show(
    group: Annotated[str, typer.Argument(help="The id of the group.")],
    run: RunOption = None,
    url: Url = None,
    sequence: Annotated[
        int | None, typer.Option(min=0, help="The sequence to show, from 0. Default: the first; with --json, all.")
    ] = None,
    tokens: Annotated[int, typer.Option(min=1, help="How many tokens of the sequence to show.")] = 64,
    json: InJson = False,
) -> None:
    """Show where a group is, what happened to it, and its contents.

    Contents need a token that may read them.
    """
    settings = settings_of(url, run)

    async def show_one(sender: Sender) -> int:
        calls = RunCalls(settings.run)
        history = await sender.send(calls.find_group(group))
        content: Any = None
        without = None
        try:
            if json and sequence is None:  # as the service has it, without absent columns
                content = await sender.send(get_json(path_of(settings.run, "groups", group, "content")))
            else:
                part = {"sequence": str(sequence or 0), "tokens": str(tokens)}
                content = await sender.send(calls.read_group(group, part))
        except (GroupGone, PermissionDenied) as error:
            without = str(error)
        if json:
            shown = content.model_dump(mode="json") if isinstance(content, GroupContent) else content
            both = {"history": history.model_dump(mode="json"), "content": shown, "content_error": without}
            typer.echo(output.as_json(both))
            return WELL
        console = output.console()
        console.print(group_output.history(history), soft_wrap=True)
        if content is None:
            console.print(output.line(f"no contents: {without}"), soft_wrap=True)
        else:
            console.print(group_output.content(content), soft_wrap=True)
        return WELL

    carry_out(settings, show_one)
