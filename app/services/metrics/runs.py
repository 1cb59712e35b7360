"""Compute the samples of a run from what was read of it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import islice

from app import telemetry
from app.core.environments.record import EnvironmentRecord
from app.core.environments.scarcity import alarming
from app.core.ranks.sharding import BalanceHistory
from app.core.replay.rate_limiter import error, may_insert, may_sample
from app.core.runs.ledger import ledger_of_run
from app.core.runs.view import RunView
from app.services.metrics.text import Lines, Samples
from app.services.status import oversized_groups
from app.store.curriculum.store import CurriculumSummary
from app.store.replay.view import ReplaySummary, ReplayView
from lachesis.wire.states import (
    CHUNK_DROP_REASONS,
    DROP_REASONS,
    FRAGMENT_DROP_REASONS,
    FRAGMENT_REFUSALS,
    LEASE_STATES,
)

_MOST_LABELLED_ENVIRONMENTS = 100  # environments with their own series; a run may have thousands
_MOST_CHARACTERS = 200  # of an environment's name; names with the same beginning count as one


def of_run(run: str, view: RunView) -> Lines:
    """Return the samples of a run without its buffer and its curricula.

    Args:
        run: The run's name.
        view: The run.
    """
    samples = Samples()
    totals, dropped = view.totals, view.dropped_by_reason
    oversized = oversized_groups(view, view.fitting_lanes)
    leases = Counter(lease.state for lease in view.leases)
    records = list(view.environments.values())
    environments = Counter(_state(environment, view) for environment in records)
    samples.add(telemetry.STEP, (run,), view.step)
    samples.add(telemetry.POLICY_VERSION, (run,), view.policy_version)
    samples.add(telemetry.GROUPS_ACCEPTED, (run,), totals.accepted_groups)
    groups = {
        "queued": totals.queued_groups - oversized,
        "oversized": oversized,
        "buffered": totals.buffered_groups,
        "leased": totals.leased_groups,
        "delivered": totals.delivered_groups,
    }
    payload = {
        "queued": totals.queued_bytes,
        "buffered": totals.buffered_bytes,
        "leased": totals.leased_bytes,
        "kept": view.kept.payload_bytes,
    }
    samples.add_each(telemetry.GROUPS, run, groups)
    samples.add_each(telemetry.GROUPS_DROPPED, run, {reason: dropped.get(reason, 0) for reason in DROP_REASONS})
    ledger = ledger_of_run(view.tokens)
    samples.add(telemetry.TOKENS_GENERATED, (run,), ledger.generated)
    samples.add_each(telemetry.TOKENS, run, ledger.by_state())
    samples.add(telemetry.STARVATION, (run,), view.alarming_starvation is not None)
    samples.add_each(telemetry.SCARCE, run, _scarce(view))
    samples.add_each(telemetry.PAYLOAD, run, payload)
    samples.add_each(telemetry.ENVIRONMENTS, run, {state: environments[state] for state in _STATES})
    samples.add(telemetry.MEMBERS, (run,), sum(environment.members for environment in records))
    samples.add_each(telemetry.SERVED, run, _served(view))
    samples.add_each(telemetry.LEASES, run, {state: leases[state] for state in LEASE_STATES})
    samples.add(telemetry.BATCHES_RELAXED, (run,), view.relaxed_batches)
    samples.add(telemetry.BATCHES_KEPT, (run,), view.kept.batches)
    if view.balance is not None:
        _add_balance(samples, run, view.balance)
    return samples.lines()


_STATES = ("alive", "silent", "disconnected")


def depends_on_time(view: RunView) -> bool:
    """Return whether `of_run` returns something else later, even if nothing happens in the run."""
    return bool(view.scarce) or any(view.is_alive(one) for one in view.environments.values())


def _state(environment: EnvironmentRecord, view: RunView) -> str:
    if not environment.connected:
        return "disconnected"
    return "alive" if view.is_alive(environment) else "silent"


def _served(view: RunView) -> Counter[str]:
    """Return the sequences handed out by environment name; "" is for all others and for groups without an environment.

    The environments with the smallest ids have names here. These stay the same, so that no series loses its sequences.
    """
    first = islice(view.environments.items(), _MOST_LABELLED_ENVIRONMENTS)
    named = {key: environment.name[:_MOST_CHARACTERS] for key, environment in first}
    served: Counter[str] = Counter(dict.fromkeys(named.values(), 0))
    for key, sequences in view.served.items():
        served["" if key is None else named.get(key, "")] += sequences
    return served


def _scarce(view: RunView) -> dict[str, float]:
    """Return how long batches have waited for environments, by name; 0 for those without an alert."""
    first = islice(view.environments.values(), _MOST_LABELLED_ENVIRONMENTS)
    seconds = dict.fromkeys((environment.name[:_MOST_CHARACTERS] for environment in first), 0.0)
    for key, since_ms in islice(alarming(view).items(), _MOST_LABELLED_ENVIRONMENTS):
        name = view.environments[key].name[:_MOST_CHARACTERS]
        seconds[name] = max(seconds.get(name, 0.0), (view.clock_ms - since_ms) / 1000)
    return seconds


def of_buffer(run: str, summary: ReplaySummary) -> Lines:
    """Return the samples of a run's replay buffer."""
    samples = Samples()
    view, limiter = summary.view, summary.view.settings.limiter
    chunks = {
        "sampleable": view.size,
        "reserved": summary.reserved,
        "archived": summary.archived,
        "retired_in_use": summary.retired_in_use,
    }
    samples.add_each(telemetry.REPLAY_CHUNKS, run, chunks)
    samples.add_each(telemetry.REPLAY_FRAGMENTS, run, _in_chunks_or_waiting(view, "fragments"))
    samples.add_each(telemetry.REPLAY_PAYLOAD, run, _in_chunks_or_waiting(view, "bytes"))
    samples.add(telemetry.REPLAY_ACCEPTED, (run,), view.total("accepted_fragments"))
    samples.add_each(telemetry.REPLAY_DROPPED, run, _by_reason(view, "dropped:", _DROPPED))
    samples.add_each(telemetry.REPLAY_REFUSED, run, _by_reason(view, "refused:", _REFUSED))
    samples.add(telemetry.REPLAY_GAPS, (run,), view.total("gaps"))
    samples.add(telemetry.REPLAY_INSERTED, (run,), view.total("inserts"))
    samples.add_each(telemetry.REPLAY_RETIRED, run, _by_reason(view, "retired:", _RETIRED))
    samples.add(telemetry.REPLAY_USES, (run,), view.total("retired_chunks"), view.total("retired_uses"))
    samples.add(telemetry.REPLAY_SAMPLED, (run,), view.total("samples"))
    samples.add(telemetry.REPLAY_STALENESS, (run,), view.staleness_buckets(), view.total("sampled_staleness"))
    samples.add(telemetry.REPLAY_SAMPLES_HELD, (run,), summary.samples)
    if limiter is not None:
        samples.add(telemetry.REPLAY_LIMITER_ERROR, (run,), error(view.position, limiter))
    for side, may in (("insert", may_insert), ("sample", may_sample)):
        blocked = may(1, view.position, limiter, view.settings.min_size_to_sample)
        samples.add(telemetry.REPLAY_BLOCKED, (run, side), blocked is not None)
    return samples.lines()


# Counts by reason. Reasons that are usual but have not occurred yet count 0: a counter that begins at 1 has no rate.
_DROPPED = (*FRAGMENT_DROP_REASONS, "stale", "evicted")
_REFUSED = (*FRAGMENT_REFUSALS, "late")
_RETIRED = (*CHUNK_DROP_REASONS, "deleted")


def _by_reason(view: ReplayView, prefix: str, usual: Sequence[str]) -> Mapping[str, int]:
    return dict.fromkeys(usual, 0) | view.named(prefix)


def _in_chunks_or_waiting(view: ReplayView, what: str) -> dict[str, int]:
    return {"in_chunks": view.total(f"chunk_{what}"), "waiting": view.total(f"waiting_{what}")}


def of_curricula(run: str, curricula: Sequence[CurriculumSummary]) -> Lines:
    """Return the samples of a run's curricula."""
    samples = Samples()
    for one in curricula:
        samples.add(telemetry.CURRICULUM_ITEMS, (run, one.name, "seen"), one.seen)
        samples.add(telemetry.CURRICULUM_ITEMS, (run, one.name, "unseen"), one.unseen)
        samples.add(telemetry.CURRICULUM_IN_FLIGHT, (run, one.name), one.in_flight)
        samples.add(telemetry.CURRICULUM_OBSERVATIONS, (run, one.name), one.updates)
        samples.add(telemetry.CURRICULUM_SAMPLES, (run, one.name), one.samples)
        if one.mean_reward is not None:
            samples.add(telemetry.CURRICULUM_MEAN_REWARD, (run, one.name), one.mean_reward)
    return samples.lines()


def _add_balance(samples: Samples, run: str, history: BalanceHistory) -> None:
    sums = {"chosen": history.imbalance, "contiguous": history.contiguous, "bound": history.bound}
    for sharding, sum_ in sums.items():
        samples.add(telemetry.IMBALANCE, (run, sharding), history.batches, sum_)
    last = history.last
    of_last = {"chosen": last.imbalance, "contiguous": last.contiguous, "strided": last.strided, "bound": last.bound}
    samples.add_each(telemetry.LAST_IMBALANCE, run, of_last)
