"""Show the status of a run, with what other requests say of it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType

from lachesis._cli.output import Columns, cut, line, row, span, table
from lachesis.wire.batches import Explanation
from lachesis.wire.curricula import CurriculumInfo
from lachesis.wire.printable import printable
from lachesis.wire.replay import ReplayState
from lachesis.wire.status import EnvironmentStatus, RunStatus

_WIDE = 110  # columns that the long table of environments takes
_WITHOUT_NAME = 82  # columns that it takes without the name
_NAME = 28  # columns of the name in the short table: it fits 80 columns
_MOST_LEASES = 8


@dataclass(frozen=True, slots=True)
class StatusExtras:
    """What other requests say of a run. None or nothing: the run has none, or the token may not read it."""

    explanation: Explanation | None = None
    replay: ReplayState | None = None
    curricula: tuple[CurriculumInfo, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return the same for programs."""
        return {
            "explanation": None if self.explanation is None else self.explanation.model_dump(mode="json"),
            "replay": None if self.replay is None else self.replay.model_dump(mode="json"),
            "curricula": [one.model_dump(mode="json") for one in self.curricula],
        }


def status(found: RunStatus, width: int = 0, extras: StatusExtras | None = None) -> RenderableType:
    """Show the status of a run, with the columns of environments that ``width`` has room for."""
    extras = extras or StatusExtras()
    lines = [*_lines(found), *_rate_lines(found, extras.explanation), *_extra_lines(extras), *troubles(found)]
    if not found.environments:
        return Group(*map(line, lines))
    more = found.registered_environments - len(found.environments)
    rest = [line(f"… and {more} more")] if more > 0 else []
    return Group(*map(line, lines), "", _environments(found, width), *rest)


def arrival_rate(found: RunStatus) -> float | None:
    """Return how many sequences arrive per second, over all environments; None if it is unknown."""
    return None if found.pace is None else found.pace.arriving_sequences_per_s


def troubles(found: RunStatus) -> list[str]:
    """Return what an operator should look at, a sentence each."""
    alert, upkeep = found.alert, found.upkeep
    lines = [] if alert is None else [f"alert since {span(alert.started_age_s)} ago: {alert.detail}"]
    if upkeep is not None:
        lines.append(f"maintenance of the run has been failing for {span(upkeep.failing_age_s)}: {upkeep.detail}")
    return lines + [f"warning: {warning.detail}" for warning in found.warnings]


def _lines(found: RunStatus) -> Iterator[str]:
    batches = "no batch size is set" if found.batch_size < 0 else f"batches of {found.batch_size}"
    yield f"run {found.run}: step {found.current_step}, policy version {found.policy_version}, {batches}"
    yield f"storage: {found.durability}"
    if found.access == "insecure":
        yield "LACHESIS_INSECURE is set: everyone who reaches the service may do everything"
    if found.serving_paused:
        yield "serving is paused: the run hands out no batches"
    if found.intake_paused:
        yield "intake is paused: environments start no groups"
    blocked = found.blocked.detail if found.blocked else "unknown"
    yield f"next batch: {'ready' if found.ready else f'blocked: {blocked}'}"
    yield from _ledger_lines(found)
    if found.groups.oversized:
        yield f"oversized (larger than a batch): {found.groups.oversized}"
    if found.oldest_waiting_s is not None:
        yield f"oldest waiting group: {span(found.oldest_waiting_s)}"
    yield f"relaxed batches: {found.relaxed_batches}"
    if found.leases:
        shown = [f"step {one.step} {one.state}, delivery {one.delivery_count}" for one in found.leases[:_MOST_LEASES]]
        yield f"not acknowledged: {'; '.join(shown)}" + ("; …" if len(found.leases) > _MOST_LEASES else "")
    if (ranks := found.ranks) is not None:
        yield (
            f"ranks: {ranks.batches} batches for {ranks.world_size}, mean imbalance {ranks.mean_imbalance:.1%} "
            f"(contiguous {ranks.mean_contiguous:.1%}, bound {ranks.mean_bound:.1%})"
        )
    for limit in found.limits:
        yield f"limit {limit.name} = {limit.per_s:g}: {limit.used:.0%} used"


def _ledger_lines(found: RunStatus) -> Iterator[str]:
    groups, ledger = found.groups, found.ledger
    dropped = ", ".join(f"{count} {reason}" for reason, count in sorted(found.dropped.items()))
    yield (
        f"groups: {groups.accepted} accepted: {groups.queued} queued, {groups.buffered} buffered, "
        f"{groups.leased} leased, {groups.delivered} delivered, {sum(found.dropped.values())} dropped"
        f"{f' ({dropped})' if dropped else ''}"
    )
    states = ledger.model_dump(exclude={"cost", "generated_tokens"})
    tokens = ", ".join(f"{count:,} {state.removesuffix('_tokens')}" for state, count in states.items() if count)
    cost = "" if ledger.cost is None else f"; cost {ledger.cost.generated:,.2f}, {ledger.cost.trained:,.2f} trained"
    yield f"tokens: {ledger.generated_tokens:,} generated{f': {tokens}' if tokens else ''}{cost}"


def _rate_lines(found: RunStatus, explained: Explanation | None) -> Iterator[str]:
    expected_s = None if explained is None else explained.expected_s
    expected = "" if expected_s is None else f"; a batch is expected in {span(expected_s)}"
    if (rate := arrival_rate(found)) is not None:
        yield f"arriving: {rate:.2f} sequences/s, measured over at most a minute{expected}"


def _extra_lines(extras: StatusExtras) -> Iterator[str]:
    if (replay := extras.replay) is not None:
        yield f"replay: {replay.sampleable_chunks} chunks to sample from, {replay.samples_held} samples held"
        limiter = replay.limiter
        for side, blocked in (("inserts", limiter.inserts_blocked), ("samples", limiter.samples_blocked)):
            if blocked is not None:
                yield f"replay: {side} wait: {blocked.detail}"
    for one in extras.curricula:
        yield (
            f"curriculum {one.name}: {one.settings.strategy}, {one.items_seen} of {one.items} items seen, "
            f"{one.in_flight} in flight"
        )


_SHORT: Columns[EnvironmentStatus] = {
    "alive": lambda env: "yes" if env.alive else "no",
    "queued": lambda env: str(env.queued_groups),
    "promised": lambda env: f"{env.share_promised:.0%}",
    "got": lambda env: "-" if env.share_got is None else f"{env.share_got:.0%}",
    "owed": lambda env: str(env.owed_sequences),
    "dropped": lambda env: str(sum(env.dropped.values())),
}
_LONG: Columns[EnvironmentStatus] = {
    **_SHORT,
    "buffered": lambda env: str(env.buffered_groups),
    "served": lambda env: str(env.served_sequences),
    "seen": lambda env: f"{span(env.last_seen_age_s)} ago",
}


def _environments(found: RunStatus, width: int) -> RenderableType:
    others, most = (_LONG, width - _WITHOUT_NAME) if width >= _WIDE else (_SHORT, _NAME)
    columns: Columns[EnvironmentStatus] = {
        "environment": lambda env: cut(printable(f"{env.id} {env.name}"), most),
        **others,
    }
    return table(columns, [row(columns, env) for env in found.environments])
