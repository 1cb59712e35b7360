"""Read the values that decide where submissions to a run go, and which curricula observe them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from app.core.environments.record import EnvironmentRecord
from app.core.runs.settings import Policy, sequence_limit
from app.store.curriculum.entries import parse_curriculum_settings
from app.store.environments.records import EnvironmentRecords
from app.store.redis.client import RedisClient
from app.store.redis.keys import RunKeys
from app.store.runs.view import parse_config, parse_policy, reading
from lachesis.wire.curricula import CurriculumSettings


@dataclass(frozen=True, slots=True)
class ObservingCurriculum:
    """A curriculum that observes an environment's groups: what its keys are named by, and its configuration."""

    curriculum_id: str
    settings: CurriculumSettings


@dataclass(frozen=True, slots=True)
class AdmissionContext:
    """The values that decide where submissions to a run go, at an epoch.

    Attributes:
        epoch: Changes whenever any of this changes, except the policy version.
        first_epoch: As of `app.core.runs.view.QueueView`.
        environments: By id, without the time of their last signs of life.
        batch_size: Sequences in a batch; None before anybody has configured the run.
        policy_version: The policy version in force.
        policy: What the run does with groups.
        max_sequence_tokens: Most tokens of a sequence that the run takes, or None for no limit.
        observers: By environment, where the run has a curriculum of the name that the environment asked for.
    """

    epoch: int
    first_epoch: int
    environments: Mapping[int, EnvironmentRecord]
    batch_size: int | None = None
    policy_version: int = 0
    policy: Policy = field(default_factory=Policy)
    max_sequence_tokens: int | None = None
    observers: Mapping[int | None, ObservingCurriculum] = field(default_factory=dict)


async def read_admission_context(connection: RedisClient, known: EnvironmentRecords, run: str) -> AdmissionContext:
    """Read the admission context of a run and its epoch. Parse only the environments that are not known yet."""
    keys = RunKeys(run)
    # The epoch first: if anything else changes in between, the older epoch is found to be outdated.
    (epoch, first_epoch, version, policy, config), count, curricula = await connection.pipeline(
        [
            ("HMGET", keys.run, "epoch", "first_epoch", "policy_version", "policy", "config"),
            ("HLEN", keys.environments),
            ("HGETALL", keys.curricula),
        ]
    )
    environments = await known.of(run, int(epoch or 0), count)
    with reading(run):
        parsed, settings = None if config is None else parse_config(config), parse_policy(policy)
    named = {name.decode(): own.decode() for name, own in curricula.items()}
    observers = await _observers(connection, keys, environments, named)
    return AdmissionContext(
        int(epoch or 0),
        int(first_epoch or 0),
        environments,
        None if parsed is None else parsed.batch_size,
        int(version or 0),
        settings,
        sequence_limit(parsed, settings),
        observers,
    )


async def _observers(
    connection: RedisClient, keys: RunKeys, environments: Mapping[int, EnvironmentRecord], named: Mapping[str, str]
) -> dict[int | None, ObservingCurriculum]:
    """Read the curricula that observe environments' groups. If one is deleted in between, the epoch is outdated."""
    if not named:
        return {}
    by_environment = {
        key: named[environment.desired_name]
        for key, environment in environments.items()
        if environment.desired_name in named
    }
    if not by_environment:
        return {}
    ids = sorted(set(by_environment.values()))
    configs = await connection.pipeline([("HGET", keys.curriculum(own), "config") for own in ids])
    known = {
        own: ObservingCurriculum(own, parse_curriculum_settings(config))
        for own, config in zip(ids, configs, strict=True)
        if config is not None
    }
    return {key: known[own] for key, own in by_environment.items() if own in known}
