"""Who an environment that registers is: a new one, or an old one that came back."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace

from app.core.model import Environment

TAKEOVER_FRACTION = 4


@dataclass(frozen=True, slots=True)
class Application:
    """What an environment says of itself when it registers; the fields are those of `Environment`."""

    desired_name: str
    group_size: int
    max_token_length: int
    weight: float
    min_share: float | None = None
    max_share: float | None = None


def enrol(application: Application, environments: Mapping[int, Environment], clock_ms: int, ttl_ms: int) -> Environment:
    """Give a registering environment its identity.

    One that asks for the name of another that said goodbye, or was silent for a quarter of ``ttl_ms``, is that
    one come back: it takes over the id and the name, and with them checkpoint folder, queue and share. Of several,
    the one with the smallest id. Otherwise it gets the next id, and a name counted from 0.

    A quarter, because a crashed environment is back sooner than ``ttl_ms`` (120 s), while a live one may poll only
    once in 25 s. One that was never heard of since it registered counts as silent after `NEWCOMER_MS`.

    Args:
        application: What it says of itself.
        environments: The run's environments, by id.
        clock_ms: The run clock, milliseconds.
        ttl_ms: Silence after which an environment no longer binds, milliseconds.

    Returns:
        The environment as it is to be recorded, not heard of yet.
    """
    namesakes = [env for _, env in sorted(environments.items()) if env.desired_name == application.desired_name]
    for old in namesakes:
        if not old.alive(clock_ms, ttl_ms // TAKEOVER_FRACTION):
            return replace(old, **asdict(application), connected=True, registered_ms=clock_ms, heard_ms=None)
    return Environment(
        environment=max(environments, default=-1) + 1,
        name=f"{application.desired_name}_{len(namesakes)}",
        **asdict(application),
        connected=True,
        registered_ms=clock_ms,
    )


def recorded(
    application: Application, known: Environment | None, environments: Mapping[int, Environment], clock_ms: int
) -> Environment:
    """Return the record of an environment whose name is who it is.

    Args:
        application: What it says of itself.
        known: The environment that has its name, if there is one: this is the same.
        environments: The run's environments, by id.
        clock_ms: The run clock, milliseconds.
    """
    if known is not None:
        return replace(known, **asdict(application), connected=True)
    return Environment(
        environment=max(environments, default=-1) + 1,
        name=application.desired_name,
        **asdict(application),
        connected=True,
        registered_ms=clock_ms,
    )
