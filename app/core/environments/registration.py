"""Decide the identity of environments that register or join, and which environments a run forgets."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from app.core.environments.live import id_by_name
from app.core.environments.record import EnvironmentRecord
from app.core.runs.view import QueueView
from lachesis.wire.errors import EnvironmentSettingsDiffer, InvalidField, TooManyNewEnvironments

TAKEOVER_DIVISOR = 4
MOST_NAMESAKES = 64
"""Most environments of one name at a time, for a sender that may act for this name only."""


@dataclass(frozen=True, slots=True)
class RegistrationRequest:
    """The registration of an environment of Atropos. The fields are those of `EnvironmentRecord`."""

    desired_name: str
    group_size: int
    max_token_length: int
    weight: float
    min_share: float | None = None


def register(
    request: RegistrationRequest,
    environments: Mapping[int, EnvironmentRecord],
    next_id: int,
    clock_ms: int,
    ttl_ms: int,
    *,
    as_one: bool = False,
) -> EnvironmentRecord:
    """Give a registering environment of Atropos its identity.

    If an environment of the same name left, or was silent for a quarter of ``ttl_ms``, the new one replaces it. It
    takes over the id and the name, and so the checkpoint folder, queue and share. A maximum share, which only operators
    set, stays. If there are several, it replaces the one with the smallest id. Otherwise it gets the next id, and the
    first free name counted from 0.

    Why a quarter: a crashed environment is back sooner than ``ttl_ms`` (120 s), and a live one may poll only once in
    25 s. An environment without a sign of life since it registered counts as silent after `NEWCOMER_MS`.

    Args:
        request: What the environment asked for.
        environments: The run's environments, by id.
        next_id: The id for a new environment.
        clock_ms: The run clock, milliseconds.
        ttl_ms: Silence after which an environment no longer counts as alive, milliseconds.
        as_one: Whether the sender may act for one environment only. Then its namesakes have no more of a batch than one
            environment may have. A minimum share is lowered to what is left of the whole.

    Returns:
        The record to store, without a sign of life yet.

    Raises:
        TooManyNewEnvironments: With ``as_one``: there are `MOST_NAMESAKES` already, and none is silent.
    """
    silent_ms = ttl_ms // TAKEOVER_DIVISOR
    namesakes = [env for _, env in sorted(environments.items()) if env.desired_name == request.desired_name]
    old = next((env for env in namesakes if env.of_atropos and not env.alive(clock_ms, silent_ms)), None)
    if as_one:
        request = _of_one(request, namesakes, old, silent_ms)
    if old is not None:
        return replace(old, **asdict(request), registered_ms=clock_ms, left_ms=None, heard_ms=None)
    names = {env.name for env in environments.values()}
    number = next(n for n in range(len(names) + 1) if f"{request.desired_name}_{n}" not in names)
    name = f"{request.desired_name}_{number}"
    return EnvironmentRecord(environment=next_id, name=name, max_share=None, **asdict(request), registered_ms=clock_ms)


def _of_one(
    request: RegistrationRequest,
    namesakes: Sequence[EnvironmentRecord],
    old: EnvironmentRecord | None,
    silent_ms: int,
) -> RegistrationRequest:
    """Return what an environment may have if it and its namesakes count as one. It replaces ``old``, if that is given.

    Raises:
        TooManyNewEnvironments: There is no room for one more.
    """
    if old is None and len(namesakes) >= MOST_NAMESAKES:
        error = TooManyNewEnvironments(
            f"credentials for one environment register at most {MOST_NAMESAKES} of its name, and there are "
            f"{len(namesakes)}; there is room when one leaves or is silent for {silent_ms / 1000:g} s"
        )
        error.retry_after_s = silent_ms / 1000
        raise error
    if request.min_share is None:
        return request
    left = 1.0 - sum(env.min_share or 0.0 for env in namesakes if env is not old)
    return replace(request, min_share=max(0.0, min(request.min_share, left)))


def joined(name: str, settings: Mapping[str, Any], view: QueueView, *, change_settings: bool) -> EnvironmentRecord:
    """Return the environment that a member joins: the one of this name, or a new one.

    Settings that the member leaves out stay as they are. If the environment is alive, settings that it names must equal
    those in force, unless ``change_settings``. If it is not alive, they replace those in force.

    Args:
        name: The environment's name: its identity.
        settings: Group size, weight and shares that the member names; the keys are fields of `EnvironmentRecord`.
        view: The run.
        change_settings: Whether the settings may change for all members.

    Raises:
        EnvironmentSettingsDiffer: The settings differ from those in force. The message names both.
        InvalidField: A client of Atropos registered an environment of this name.
    """
    key = id_by_name(view.environments, name)
    known = None if key is None else view.environments[key]
    if known is None:
        defaults = {"group_size": 1, "weight": 1.0, "min_share": None, "max_share": None}
        return EnvironmentRecord(
            environment=view.next_environment,
            desired_name=name,
            name=name,
            max_token_length=0,
            registered_ms=view.clock_ms,
            **{**defaults, **settings},
        )
    if known.of_atropos:
        why = f"a client of Atropos registered the environment {known.short_name}, so workers cannot join it"
        raise InvalidField(f"{why}: choose another name", ("name",))
    if not view.is_alive(known):  # alive from now on: the next member must have these settings
        return replace(known, **settings, registered_ms=view.clock_ms, left_ms=None, heard_ms=None)
    if not change_settings:
        _refuse_differences(known, settings)
    return replace(known, **settings, left_ms=None)


def _refuse_differences(known: EnvironmentRecord, settings: Mapping[str, Any]) -> None:
    differing = [
        f"{setting} is {getattr(known, setting)}, not {value}"
        for setting, value in settings.items()
        if getattr(known, setting) != value
    ]
    if differing:
        raise EnvironmentSettingsDiffer(
            f"environment {known.short_name} has other members: {', '.join(differing)}. Leave the setting out to keep "
            "it, or send change_settings=true to change it for all members"
        )


def forgettable(view: QueueView, *, kept: Collection[int] = (), at_once: bool = False) -> list[EnvironmentRecord]:
    """Return the environments that a run may forget, the longest silent first.

    They are not alive, the run holds none of their groups, and they have been silent for as long as the run keeps the
    history of groups. Their ids are never used again.

    Args:
        view: The run.
        kept: Environments with groups in batches that are kept for a rewind.
        at_once: Whether to ignore how long they have been silent, because the run needs the room.
    """
    holding = {environment for environment, _ in (*view.lanes, *view.buffers)} | set(kept)
    holding |= {portion.environment for lease in view.leases for portion in (*lease.contents, *lease.replayed)}
    silent_ms = 0 if at_once else max(view.environment_ttl_ms, view.policy.history_ms)
    idle = [
        env
        for key, env in view.environments.items()
        if key not in holding and not view.is_alive(env) and view.clock_ms - env.last_seen_ms >= silent_ms
    ]
    return sorted(idle, key=lambda env: (env.last_seen_ms, env.environment))
