"""Decide what each role may do. Every route names one permission."""

from enum import Enum, auto, unique

from app.core.access.identity import Identity
from lachesis.wire.access import Role
from lachesis.wire.errors import PermissionDenied


class Scope(Enum):
    """What a permission is about."""

    SERVICE = auto()
    RUN = auto()


@unique
class Permission(Enum):
    """What a route needs: its scope, and what it allows. Those of a run also need an identity for the run."""

    _value_: tuple[Scope, str]

    OPEN = Scope.SERVICE, "nothing: liveness and readiness"
    DESCRIBE = Scope.SERVICE, "read what the service is: its version, its documents"
    METRICS = Scope.SERVICE, "read metrics, of own runs"
    LIST_RUNS = Scope.SERVICE, "list own runs"
    CREATE_RUN = Scope.SERVICE, "create a run; the route asks for SET_UP in the run that the body names"
    PLAN_SHARDS = Scope.SERVICE, "divide a dataset"
    TOKENS = Scope.SERVICE, "create and revoke tokens"
    AUDIT = Scope.SERVICE, "read who changed what in own runs"

    READ = Scope.RUN, "its state, settings and statistics"
    READ_CONTENTS = Scope.RUN, "contents of groups and fragments"
    READ_SETTINGS = Scope.RUN, "what environments and trainers of Atropos ask before they begin"
    PRODUCE = Scope.RUN, "join, send heartbeats, submit, leave"
    SAMPLE_ITEMS = Scope.RUN, "sample items of a curriculum, and report how they went"
    TRAIN = Scope.RUN, "take and end batches and samples; versions, checkpoints, rewinds"
    SET_UP = Scope.RUN, "create the run, its replay buffer, its curricula, or change them"
    OPERATE = Scope.RUN, "change or remove what others depend on"


_FOR_ALL_RUNS = frozenset({Permission.TOKENS})  # it could give itself every other permission

ROLES: dict[Role, frozenset[Permission]] = {
    "environment": frozenset(
        {Permission.DESCRIBE, Permission.READ_SETTINGS, Permission.PRODUCE, Permission.SAMPLE_ITEMS}
    ),
    "trainer": frozenset(
        {
            Permission.DESCRIBE,
            Permission.METRICS,
            Permission.LIST_RUNS,
            Permission.CREATE_RUN,
            Permission.PLAN_SHARDS,
            Permission.READ,
            Permission.READ_CONTENTS,
            Permission.READ_SETTINGS,
            Permission.SAMPLE_ITEMS,
            Permission.TRAIN,
            Permission.SET_UP,
        }
    ),
    "viewer": frozenset(
        {
            Permission.DESCRIBE,
            Permission.METRICS,
            Permission.LIST_RUNS,
            Permission.READ,
            Permission.READ_SETTINGS,
        }
    ),
    "operator": frozenset(Permission),
    "metrics": frozenset({Permission.METRICS}),
}
"""The permissions of each role. A new permission is the operator's until a role lists it. `OPEN` needs no role."""

AUDITED = frozenset({Permission.CREATE_RUN, Permission.SET_UP, Permission.OPERATE, Permission.TOKENS})
"""Requests with these permissions are in the audit trail if they may change something."""


class AccessDecision(Enum):
    """The answer to: may this identity do that?"""

    ALLOWED = auto()
    UNKNOWN_RUN = auto()  # for this identity there is no such run
    FORBIDDEN = auto()


def in_a_run(permission: Permission) -> bool:
    """Return whether a permission is about one run."""
    return permission.value[0] is Scope.RUN


def allowed(identity: Identity) -> list[Permission]:
    """Return what an identity may do in the service and in its own runs, in the order of `Permission`."""
    return [one for one in Permission if decide(identity, one, None) is AccessDecision.ALLOWED]


def holders(permission: Permission) -> str:
    """Say who has a permission, such as ``role trainer or operator``."""
    *others, last = [role for role, permissions in ROLES.items() if permission in permissions]
    roles = f"role {', '.join(others)} or {last}" if others else f"role {last}"
    if permission is Permission.READ_CONTENTS:
        return f"{roles}, or credentials with contents"
    return f"{roles}, for all runs" if permission in _FOR_ALL_RUNS else roles


def decide(identity: Identity, permission: Permission, run: str | None) -> AccessDecision:
    """Decide whether an identity may do something.

    A run that the identity is not for does not exist for it, whatever its role.

    Args:
        identity: The sender of the request.
        permission: What the request needs.
        run: The run of the request; None for permissions of the service.
    """
    if permission is Permission.OPEN:
        return AccessDecision.ALLOWED
    if run is not None and not identity.has_run(run):
        return AccessDecision.UNKNOWN_RUN
    if permission not in ROLES[identity.role] and not (permission is Permission.READ_CONTENTS and identity.contents):
        return AccessDecision.FORBIDDEN
    if permission in _FOR_ALL_RUNS and not identity.has_all_runs:
        return AccessDecision.FORBIDDEN
    return AccessDecision.ALLOWED


def operates(identity: Identity, run: str) -> bool:
    """Return whether a sender may change or remove what others depend on in a run."""
    return decide(identity, Permission.OPERATE, run) is AccessDecision.ALLOWED


def may_begin_run(identity: Identity, run: str) -> bool:
    """Return whether the first group of a sender may make a run that does not exist.

    Otherwise a sender with a pattern of runs could use up the limit of runs.

    Args:
        identity: The sender. It is for the run.
        run: The run's name.
    """
    return Permission.SET_UP in ROLES[identity.role] or run in identity.runs


def check_environment(only: str | None, name: str, *, is_sent: bool = True) -> None:
    """Check that a sender may act for an environment of a name.

    Args:
        only: The only environment that the sender may act for, by name; None for any.
        name: The name.
        is_sent: Whether the sender gave the name. The error does not tell it a name that it did not give.

    Raises:
        PermissionDenied: It may act for environment ``only``.
    """
    if only is not None and name != only:
        other = f", not for {name!r}" if is_sent else ""
        raise PermissionDenied(f"the credentials are for environment {only!r} only{other}")


def check_worker(only: str | None, worker: str) -> None:
    """Check that a sender may send fragments as a worker: one named after its environment, or below it (``gsm8k/3``).

    Raises:
        PermissionDenied: It may act for environment ``only``.
    """
    if only is not None and worker != only and not worker.startswith(f"{only}/"):
        raise PermissionDenied(
            f"the credentials are for environment {only!r} only: name its workers {only!r}, or {only + '/0'!r}"
        )
