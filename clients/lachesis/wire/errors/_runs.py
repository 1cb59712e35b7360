"""The errors of runs."""

from typing_extensions import Self

from lachesis.wire.errors._base import ServiceError
from lachesis.wire.errors._requests import Conflict, NotFound


class RunNotFound(NotFound):
    """No run has this name."""

    code = "run_not_found"
    remedy = "Create the run with `POST /v1/runs` (SDK: `Trainer.create_run`), or check the name and your token."

    @classmethod
    def named(cls, run: str) -> Self:
        """Return the error for a run of this name."""
        return cls(f"there is no run {run}")


class RunExists(Conflict):
    """A run of this name exists with other settings."""

    code = "run_exists"
    remedy = "Ask for these settings, change the run with `PATCH /v1/runs/{run}`, or use another name."


class TooManyRuns(Conflict):
    """The service has the largest number of runs."""

    code = "too_many_runs"
    remedy = "Delete runs that are not needed: `GET /v1/runs` lists them, also those without settings."


class RunArchived(Conflict):
    """The run is archived: it accepts no groups and hands out no batches."""

    code = "run_archived"
    remedy = 'Reopen the run with `PATCH /v1/runs/{run}` and `{"archived": false}`, or use another run.'


class RunInUse(Conflict):
    """Groups keep arriving while the run is being removed."""

    code = "run_in_use"
    remedy = "Stop the environments of the run. Then remove the run again."


class NotAnAtroposRun(Conflict):
    """The run was created under `/v1`, so clients of Atropos cannot reset it or replace its configuration."""

    code = "not_an_atropos_run"
    remedy = "Remove the run with `DELETE /v1/runs/{run}`, or use another run for Atropos."


class RunFull(ServiceError):
    """The run has the largest number of environments, members or replay workers. Nothing was stored."""

    code, status, retry_after_s = "run_full", 429, 5.0
    remedy = "Send the request again later: the run forgets silent ones. Or end those that are not needed."


class IntakePaused(ServiceError):
    """An operator has paused the intake of the run. Nothing was stored."""

    code, status, retry_after_s = "intake_paused", 429, 2.0
    remedy = 'Send the groups again later. Intake resumes after `PATCH /v1/runs/{run}` with `{"intake_paused": false}`.'
