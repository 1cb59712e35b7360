"""The errors of environments and their members."""

from lachesis.wire.errors._base import ServiceError
from lachesis.wire.errors._requests import Conflict, NotFound


class EnvironmentNotFound(NotFound):
    """The run has no environment of this id."""

    code = "environment_not_found"
    remedy = "Join the run as an environment first, or check the id with `GET /v1/runs/{run}/environments`."


class MemberNotFound(NotFound):
    """The environment has no member of this id: it left, was silent for too long, or never joined."""

    code = "member_not_found"
    remedy = "Join the environment again."


class EnvironmentSettingsDiffer(Conflict):
    """A member joins a live environment with other settings than the environment has."""

    code = "environment_settings_differ"
    remedy = "Join without settings to take those of the environment, or set `change_settings` to change them for all."


class TooManyNewEnvironments(ServiceError):
    """The sender brings environments of new names into the run too fast, or too many. Nothing was stored."""

    code, status, retry_after_s = "too_many_new_environments", 429, 1.0
    remedy = "Join again later, or join an environment that exists. If the message names a setting, raise it."
