"""Decide what each role may do. Every route names one permission."""

from enum import Enum, auto

from app.core.access.identity import Identity
from lachesis.wire.access import Role
from lachesis.wire.errors import PermissionDenied


class Permission(Enum):
    """What a route needs. Those of a run also need an identity that is for the run."""

    # Of the service
    OPEN = auto()  # nothing: liveness and readiness
    DESCRIBE = auto()  # read what the service is: its version, its documents
    METRICS = auto()  # read metrics, of own runs
    LIST_RUNS = auto()  # list own runs
    CREATE_RUN = auto()  # create a run; the route asks for SET_UP in the run that the body names
    PLAN_SHARDS = auto()  # divide a dataset
    TOKENS = auto()  # create and revoke tokens
    AUDIT = auto()  # read who changed what in own runs

    # Of a run
    READ = auto()  # its state, settings and statistics
    READ_CONTENTS = auto()  # contents of groups and fragments
    READ_SETTINGS = auto()  # what environments and trainers of Atropos ask before they begin
    PRODUCE = auto()  # join, send heartbeats, submit, leave
    SAMPLE_ITEMS = auto()  # sample items of a curriculum, and report how they went
    TRAIN = auto()  # take and end batches and samples; versions, checkpoints, rewinds
    SET_UP = auto()  # create the run, its replay buffer, its curricula, or change them
    OPERATE = auto()  # change or remove what others depend on


_OF_THE_SERVICE = frozenset(
    {
        Permission.OPEN,
        Permission.DESCRIBE,
        Permission.METRICS,
        Permission.LIST_RUNS,
        Permission.CREATE_RUN,
        Permission.PLAN_SHARDS,
        Permission.TOKENS,
        Permission.AUDIT,
    }
)
_FOR_ALL_RUNS = frozenset({Permission.TOKENS})  # it could give itself every other permission

ROLES: dict[Role, frozenset[Permission]] = {
    "environment": frozenset(
        {Permission.DESCRIBE, Permission.READ_SETTINGS, Permission.PRODUCE, Permission.SAMPLE_ITEMS}
    ),
    "trainer": frozenset(Permission) - {Permission.PRODUCE, Permission.OPERATE, Permission.TOKENS, Permission.AUDIT},
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
"""The permissions of each role. `Permission.OPEN` needs none."""


AUDITED = frozenset({Permission.CREATE_RUN, Permission.SET_UP, Permission.OPERATE, Permission.TOKENS})
"""Requests with these permissions are in the audit trail if they may change something."""


class AccessDecision(Enum):
    """The answer to: may this identity do that?"""

    ALLOWED = auto()
    UNKNOWN_RUN = auto()  # for this identity there is no such run
    FORBIDDEN = auto()


def in_a_run(permission: Permission) -> bool:
    """Return whether a permission is about one run."""
    return permission not in _OF_THE_SERVICE


def allowed(identity: Identity) -> list[Permission]:
    """Return what an identity may do in the service and in its own runs, in the order of `Permission`."""
    return [one for one in Permission if decide(identity, one, None) is AccessDecision.ALLOWED]


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


def may_begin_run(identity: Identity, run: str) -> bool:
    """Return whether the first group of a sender may make a run that does not exist.

    Otherwise a sender with a pattern of runs could use up the limit of runs.

    Args:
        identity: The sender. It is for the run.
        run: The run's name.
    """
    return Permission.SET_UP in ROLES[identity.role] or run in identity.runs


def check_environment(only: str | None, name: str) -> None:
    """Check that a sender may act for an environment of a name.

    Raises:
        PermissionDenied: It may act for environment ``only``.
    """
    if only is not None and name != only:
        raise PermissionDenied(f"the credentials are for environment {only!r} only")


def check_worker(only: str | None, worker: str) -> None:
    """Check that a sender may send fragments as a worker: one named after its environment, or below it (``gsm8k/3``).

    Raises:
        PermissionDenied: It may act for environment ``only``.
    """
    if only is not None and worker != only and not worker.startswith(f"{only}/"):
        raise PermissionDenied(
            f"the credentials are for environment {only!r} only: name its workers {only!r}, or {only + '/0'!r}"
        )
