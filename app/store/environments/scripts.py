"""The scripts of environments and their members; each Lua file says what its keys and arguments mean."""

from collections.abc import Sequence
from typing import TypedDict

from app.store.redis.keys import RunKeys
from app.store.redis.scripts import script


class ForgottenEnvironment(TypedDict):
    """An environment to forget: its id, what it has sent as it was read, and why groups of it were dropped."""

    id: str
    sent: str
    reasons: list[str]


@script
def forget_environments(keys: RunKeys, *, epoch: int, forgotten: Sequence[ForgottenEnvironment]) -> None: ...


@script
def put_environment(keys: RunKeys, *, epoch: int, environment: int, record: str, forget_seen: bool) -> None: ...


@script
def put_member(keys: RunKeys, *, environment: int, member: str, most_members: int) -> None: ...


@script
def read_environments(keys: RunKeys, *, since: int | None) -> None: ...


@script
def remove_members(keys: RunKeys, *, environment: int, leaving: Sequence[str]) -> None: ...


@script
def update_running_groups(
    keys: RunKeys, *, member: str, reported: int | None, start: int, allowed: int, after: int, retries: int | None
) -> None: ...
