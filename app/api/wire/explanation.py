"""Map the reason why there is no batch to the reply of `GET …/batches/explain`."""

from app.api.wire.status import last_batch_age_s, shown_alert, shown_warnings
from app.core.runs.alert import alert_of
from app.services.batches.diagnostics import BatchDiagnosis, stale_groups
from lachesis.wire.batches import Explanation, LastSubmission


def explanation(reason: BatchDiagnosis, instead: dict[str, int | float]) -> Explanation:
    """Describe why there is no batch, or that there is one.

    Args:
        reason: The diagnosis.
        instead: The settings that were tried instead of the run's.
    """
    view, why = reason.view, reason.not_ready
    return Explanation(
        ready=why is None,
        reason=None if why is None else why.blocker.value,
        detail=None if why is None else why.detail,
        last_batch_age_s=last_batch_age_s(view),
        missing_sequences=0 if why is None else why.missing_sequences,
        missing_by_environment={} if why is None else dict(why.missing_by_environment),
        unblocked_by=[] if why is None else list(why.unblocked_by),
        expected_s=reason.expected_s,
        relaxes_s=reason.relaxes_s,
        leased_groups=view.totals.leased_groups,
        stale_groups=stale_groups(view),
        arrived_groups=reason.arrived.groups,
        filtered_groups=dict(reason.arrived.filtered),
        alert=shown_alert(alert_of(view)),
        warnings=shown_warnings(reason.warnings),
        environments=[
            LastSubmission(
                environment=key,
                name=environment.name,
                alive=view.is_alive(environment),
                last_seen_age_s=max(0, view.clock_ms - environment.last_seen_ms) / 1000,
                last_group_age_s=(view.clock_ms - view.sent[key].last_ms) / 1000 if key in view.sent else None,
                last_group_size=view.sent[key].last_size if key in view.sent else None,
                sequences_per_s=reason.rates.get(key),
            )
            for key, environment in view.environments.items()
        ],
        dry_run=instead,
    )
