"""Every key this service writes, in one table.

| key | type | holds |
|---|---|---|
| `lachesis:5:runs` | zset | names of runs that have any state, by the service clock at which they need maintenance |
| `lachesis:5:service` | hash | service clock; the API process that maintains runs, and its term |
| `lachesis:5:processes` | zset | API process -> service clock at its last sign of life, ms |
| `lachesis:5:watched` | zset | runs whose history is being read, by the time at which this ends; expires |
| `lachesis:access` | hash | `generation` of the tokens, `closed`, `token:ID` -> JSON, `used:ID` -> last use, ms |
| `lachesis:audit` | stream | who changed or removed what: JSON entries, bounded by LACHESIS_AUDIT_ENTRIES |
| `lachesis:audit_senders` | hash | for an hour: how many entries each sender has; entries that several requests share |
| `lachesis:5:limits` | hash | rate limits: `run:RUN` -> JSON, for runs with limits; `generation` of all of them |
| `lachesis:5:used:{kind}:{owner}:{limit}:{value}` | string | `arrival written`: use of a limit (GCRA), us; expires |
| `lachesis:5:payload:RUN:GROUP` | string | columns of a group, or tensors of a fragment (safetensors); no hash tag |
| `…:run` | hash | configuration, policy, policy version, epoch, step, run clock, totals, debts, newest group |
| `…:environments` | hash | environment id -> JSON record |
| `…:environment_epochs` | zset | environment id -> epoch that began when its record was written |
| `…:seen` | hash | environment id -> run clock at its last sign of life, ms |
| `…:served` | hash | environment id or `-` -> sequences handed out in batches |
| `…:sent` | hash | environment id -> `clock_ms size sequences`: of its last group, then all sequences stored |
| `…:starvation` | hash | what arrived after the last trainable group: `since_ms`, `sequences`, groups by reason |
| `…:members` | hash | `environment:member` -> `joined_ms running_groups permits retries`, for every live member |
| `…:members_heard` | zset | the same members by the run clock at their last sign of life, ms |
| `…:member_counts` | hash | environment id -> its live members |
| `…:running` | hash | environment id -> groups that its members have started and not submitted |
| `…:started` | hash | environment id -> groups that its members have started, submitted or not |
| `…:groups` | hash | group id -> its entry, for every group held (`app.store.groups.entries`) |
| `…:lanes` | hash | `environment:size` -> groups queued in that lane |
| `…:lane_heads` | zset | those lanes by the arrival of their oldest group |
| `…:lane:{environment}:{size}` | zset | queued group ids by arrival |
| `…:buffers` | hash | `environment:size` -> groups buffered (waiting for a set to complete) |
| `…:buffer:{environment}:{size}` | zset | buffered group ids by arrival |
| `…:versions` | zset | queued and buffered group ids by policy version, where they name one |
| `…:known` | hash | name of a group -> its id; if it has left, also how it ended (`lua/groups/remember_ends.lua`) |
| `…:annotations` | hash | name of a group -> its id, names of its annotations; `NAME ANNOTATION` -> f32 values |
| `…:left` | list | `clock_ms name name …`: names of groups that have left, in the order in which they left |
| `…:history` | hash | batch or sample id -> `outcome lease step clock_ms`; `step:N:clock_ms` -> batch id |
| `…:ended` | zset | those ids and steps by the run clock at which they are forgotten |
| `…:unreferenced` | zset | payloads no index entry names: pending (score: run clock) or marked for deletion (-1) |
| `…:batches` | hash | batch id -> JSON of what it consisted of, for the latest batches (`app.store.batches.records`) |
| `…:batch_order` | list | these batches, the oldest first |
| `…:leases` | hash | batch id -> JSON list of its groups, in training order |
| `…:lease_states` | hash | batch id -> JSON of its lease |
| `…:kept` | hash | batch id -> JSON list of the groups of a delivered batch that is kept for a rewind |
| `…:kept_steps` | zset | those batch ids by step |
| `…:kept_leases` | hash | batch id -> policy version in force, and JSON of the lease, when it was acknowledged |
| `…:dropped` | hash | `reason:environment` -> groups |
| `…:dropped_told` | hash | the part of `dropped` that events have reported |
| `…:events` | stream | events: JSON, age in ms when added, flush; bounded by LACHESIS_RUN_EVENTS |
| `…:ledger` | hash | `state:environment` -> tokens of groups: `generated`, `leased`, `trained`, or why dropped |
| `…:token_queues` | hash | account -> `groups bytes` queued, for each account that has a queue limit |
| `…:token_groups` | hash | id of a group of such an account -> `account bytes` |
| `…:series:{step}` | stream | what happened in spans of time (`app.store.history`); one stream for each resolution |
| `…:series_totals` | string | JSON of the totals at the last write: the next write stores the growth since |
| `…:traces` | hash | name of a group, or `batch:ID` -> the `traceparent` of its request, if that was traced |
| `…:traced` | list | those names, the oldest first |
| `…:turn` | string | the API process that plans batches while several want to; it expires |
| `…:turn_queue` | list | the API processes that wait for the turn; it expires |
| `…:replay` | hash | the replay buffer: configuration, revision, session, totals, random counter |
| `…:replay:chunks` | hash | chunk id -> its entry, for every chunk held (`app.store.replay.entries`) |
| `…:replay:order` | zset | ids of sampleable chunks by number of insertion |
| `…:replay:weights` | zset | the same by priority to the power alpha, in units of 2^-20 |
| `…:replay:versions` | zset | the same by the policy version of their oldest fragment |
| `…:replay:uses` | zset | the same by acknowledged uses, negative: the most used come first |
| `…:replay:reserved` | zset | ids of chunks whose uses are all reserved or counted, by version |
| `…:replay:reserved_order` | zset | the same by number of insertion |
| `…:replay:reserved_weights` | zset | the same by weight |
| `…:replay:reserved_uses` | zset | the same by acknowledged uses, negative |
| `…:replay:archived` | zset | ids of chunks of former sessions, kept for inspection, by number of insertion |
| `…:replay:version_counts` | hash | version -> sampleable chunks of it |
| `…:replay:fragments` | hash | fragment id -> its entry, for every fragment held, in a chunk or not yet |
| `…:replay:workers` | hash | worker -> JSON: what it has sent, and what waits for a chunk |
| `…:replay:due` | zset | workers with waiting fragments, by the run clock at which to check them |
| `…:replay:samples` | hash | sample id -> JSON: its chunks, in order |
| `…:replay:sample_states` | hash | sample id -> JSON of its lease |
| `…:replay:requests` | hash | request id -> id of its sample, while the sample is held |
| `…:replay:entering` | zset | groups of acknowledged batches that will become chunks, by order of entry |
| `…:snapshot:{slot}:{part}` | copy | `replay` and each of its parts as they were at a snapshot; of the same types |
| `…:curricula` | hash | curriculum -> its id |
| `…:curricula_loading` | zset | ids of curricula whose state is being loaded, by the run clock at their last progress |
| `…:curriculum:{id}` | hash | a curriculum: configuration, revision, totals, random counter |
| `…:curriculum:{id}:items` | hash | item -> `category prior metadata`, for every item (`app.store.curriculum.items`) |
| `…:curriculum:{id}:estimates` | hash | seen item -> its estimate and its last scores, packed |
| `…:curriculum:{id}:unseen` | zset | items not observed yet and without a prior, all with score 0 |
| `…:curriculum:{id}:prior_only` | zset | items not observed yet, by their prior |
| `…:curriculum:{id}:mean_reward` | zset | seen items by mean reward; unseen items with a prior, by their prior |
| `…:curriculum:{id}:posterior` | zset | seen items by the mean of their posterior |
| `…:curriculum:{id}:signal` | zset | seen items by mean absolute advantage of their last group |
| `…:curriculum:{id}:last` | zset | seen items by mean reward of their last group |
| `…:curriculum:{id}:drawn` | zset | seen items by the number of the sample that last handed them out, or 0 |
| `…:curriculum:{id}:category` | zset | all items by the number of their category, or 0 |
| `…:curriculum:{id}:category_numbers` | hash | category -> its number, from 1 |
| `…:curriculum:{id}:arms` | hash | arm of the bandit -> its value |
| `…:curriculum:{id}:in_flight` | zset | items handed out, by the run clock from which other samples may take them |
| `…:curriculum:{id}:holders` | hash | those items -> number and id of the sample that handed them out |
| `…:curriculum:{id}:requests` | zset | requests with observations, by the run clock at which they came |
| `…:curriculum:{id}:samples` | hash | requests for samples -> JSON of their items |
| `…:curriculum:{id}:samples_until` | zset | those requests, by the run clock until which they are remembered |
| `…:replayed` | hash | group id -> number of leased or kept batches that have it from the replay buffer |
| `…:marked_hashes` | set | tokens of marked hashes: their payloads are deleted unless something else names them |
| `…:marked_hash:{token}` | hash | a former `groups` or `fragments` hash |

`…` is `lachesis:5:{run}`: the braces are a hash tag, so a run's index lives on one slot and scripts work in a cluster
(the service refuses one so far). `5` is the version of the format (`FORMAT`). An account is a token (kind `token`,
its id), a subject of JWTs (kind `jwt`), or the name of a certificate (kind `certificate`). The last two have the
first 32 digits of the SHA-256 of the name. In `token_queues` and `token_groups` the account is `ID` or `KIND:DIGITS`.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, get_args

from app.core.history.resolution import KEPT
from lachesis.wire.errors import InvalidField
from lachesis.wire.replay import MAX_SNAPSHOTS
from lachesis.wire.runs import RUN_NAME
from lachesis.wire.states import ChunkSorting

FORMAT = 5
"""The version of what is stored. Raise it with each change that other versions of the service would misread."""

PREFIX = f"lachesis:{FORMAT}"
FORMER_RUNS = tuple(f"lachesis:{version}:runs" for version in range(1, FORMAT))
"""Keys that only older versions wrote."""

RUNS = f"{PREFIX}:runs"
SERVICE = f"{PREFIX}:service"
PROCESSES = f"{PREFIX}:processes"
WATCHED = f"{PREFIX}:watched"
LIMITS = f"{PREFIX}:limits"
ACCESS = "lachesis:access"  # without the version: an upgrade must not open a closed service
AUDIT = "lachesis:audit"  # without the version, too: it tells what happened before an upgrade
NONE = "-"
"""Stands for no environment, version or id, in names and in records."""

_RUN_NAME = re.compile(RUN_NAME)
_MOST_LANES = 32_768  # names to remember: each view of a run has all its lanes

ReplayPart = Literal[
    "chunks",
    ChunkSorting,
    "reserved",
    "reserved_order",
    "reserved_weights",
    "reserved_uses",
    "archived",
    "version_counts",
    "fragments",
    "workers",
    "due",
    "samples",
    "sample_states",
    "requests",
    "entering",
]
"""What a replay buffer consists of, apart from its totals."""

REPLAY_PARTS: tuple[ReplayPart, ...] = get_args(ReplayPart)

SavedPart = Literal["replay"] | ReplayPart
"""What a snapshot consists of."""

SAVED_PARTS: tuple[SavedPart, ...] = ("replay", *REPLAY_PARTS)

CurriculumPart = Literal[
    "items", "estimates", "mean_reward", "posterior", "signal", "last", "drawn", "unseen", "prior_only", "category",
    "category_numbers", "arms", "in_flight", "holders", "requests", "samples", "samples_until",
]  # fmt: skip
"""What a curriculum consists of, apart from its totals."""

CURRICULUM_PARTS: tuple[CurriculumPart, ...] = get_args(CurriculumPart)


def member_name(environment: int, member: str) -> str:
    """Return the field of a member in the `members` hash."""
    return f"{environment}:{member}"


def parse_member_name(name: str) -> tuple[int, str]:
    """Decode what `member_name` encoded."""
    environment, _, member = name.partition(":")
    return int(environment), member


def run_names(members: Iterable[bytes]) -> list[str]:
    """Return the names of runs in Redis, sorted. Invalid ones are left out: the others must not suffer from them."""
    return sorted(filter(is_run_name, (member.decode(errors="replace") for member in members)))


def is_run_name(text: str) -> bool:
    """Return whether a run can have this name."""
    return _RUN_NAME.fullmatch(text) is not None


def or_none(value: int | None) -> int | str:
    """Return a number as it is, or `NONE` for None."""
    return NONE if value is None else value


def lane_name(environment: int | None, size: int) -> str:
    """Name a lane in the `lanes` and `buffers` hashes."""
    return f"{or_none(environment)}:{size}"


@lru_cache(maxsize=_MOST_LANES)
def parse_lane_name(name: str | bytes) -> tuple[int | None, int]:
    """Decode what `lane_name` encoded, as text or as Redis gives it."""
    environment, size = (name.decode() if isinstance(name, bytes) else name).split(":")
    return (None if environment == NONE else int(environment)), int(size)


@dataclass(frozen=True, slots=True)
class ServiceKeys:
    """The keys that all runs share."""

    runs = RUNS
    service = SERVICE
    processes = PROCESSES
    access = ACCESS
    audit = AUDIT
    audit_senders = f"{AUDIT}_senders"
    limits = LIMITS

    def limit_use(self, owner: str, name: str, limit: float) -> str:
        """Return the key of what is used of a limit.

        Another value of the limit has another key, so it begins unused.
        """
        return f"{PREFIX}:used:{owner}:{name}:{limit!r}"

    def key(self, name: str) -> str:
        """Return the key that scripts call by the upper case of this name."""
        return str(getattr(self, name))


class _Key:
    """A key of a run. Its name is that of its attribute, unless another one is given."""

    def __init__(self, name: str | None = None) -> None:
        self._name = name

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = self._name or name

    def __get__(self, keys: "RunKeys", owner: type) -> str:
        return keys.called(self._name or "")


@dataclass(frozen=True, slots=True)
class RunKeys:
    """The keys of one run.

    Raises:
        InvalidField: The name has characters that do not belong in a run's name.
    """

    name: str

    runs = RUNS
    service = SERVICE
    limits = LIMITS
    run = _Key()
    environments = _Key()
    environment_epochs = _Key()
    seen = _Key()
    served = _Key()
    groups = _Key()
    lanes = _Key()
    lane_heads = _Key()
    buffers = _Key()
    versions = _Key()
    known = _Key()
    left = _Key()
    annotations = _Key()
    history = _Key()
    ended = _Key()
    kept = _Key()
    kept_steps = _Key()
    kept_leases = _Key()
    sent = _Key()
    starvation = _Key()
    running = _Key()
    members = _Key()
    members_heard = _Key()
    member_counts = _Key()
    started = _Key()
    unreferenced = _Key()
    batches = _Key()
    batch_order = _Key()
    leases = _Key()
    lease_states = _Key()
    dropped = _Key()
    dropped_told = _Key()
    events = _Key()
    ledger = _Key()
    token_queues = _Key()
    token_groups = _Key()
    series_totals = _Key()
    traces = _Key()
    traced = _Key()
    turn = _Key()
    turn_queue = _Key()
    marked_hashes = _Key()
    replay = _Key()
    replay_samples = _Key("replay:samples")
    replay_fragments = _Key("replay:fragments")
    replay_entering = _Key("replay:entering")
    replayed = _Key()
    curricula = _Key()
    curricula_loading = _Key()

    def __post_init__(self) -> None:
        if not is_run_name(self.name):
            raise InvalidField(
                f"run name {self.name[:80]!r}: use 1 to 64 letters, digits, dots, dashes, underscores", ("path", "run")
            )

    def key(self, name: str) -> str:
        """Return the key that scripts call by the upper case of this name."""
        return str(getattr(self, name))

    def called(self, what: str) -> str:
        return f"{PREFIX}:{{{self.name}}}:{what}"

    def replay_part(self, part: ReplayPart) -> str:
        return self.called(f"replay:{part}")

    def snapshot_part(self, slot: int, part: SavedPart) -> str:
        return self.called(f"snapshot:{slot}:{part}")

    def snapshot_place(self, slot: int) -> list[str]:
        return [self.snapshot_part(slot, part) for part in SAVED_PARTS]

    def naming_payloads(self) -> tuple[str, ...]:
        """Return the hashes whose fields are ids of payloads: a payload that none of them names can be deleted."""
        saved = (self.snapshot_part(slot, "fragments") for slot in range(MAX_SNAPSHOTS))
        return (self.groups, self.replay_part("fragments"), self.replayed, *saved)

    def curriculum(self, curriculum_id: str) -> str:
        return self.called(f"curriculum:{curriculum_id}")

    def curriculum_part(self, curriculum_id: str, part: CurriculumPart) -> str:
        return self.called(f"curriculum:{curriculum_id}:{part}")

    def marked_hash(self, token: str) -> str:
        return self.called(f"marked_hash:{token}")

    def state(self) -> tuple[str, ...]:
        """Return the keys that a reset can delete at once: they name no payloads and no other keys."""
        saved = (key for slot in range(MAX_SNAPSHOTS) for key in self.snapshot_place(slot))
        return (
            *(self.environments, self.environment_epochs, self.seen, self.served, self.leases, self.lease_states),
            *(self.batches, self.batch_order),
            *(self.dropped, self.dropped_told, self.ledger, self.versions, self.lane_heads),
            *(self.token_queues, self.token_groups),
            *(self.series_totals, *(self.series(one.step_s) for one in KEPT)),
            *(self.known, self.left, self.annotations, self.history, self.ended),
            *(self.traces, self.traced),
            *(self.kept, self.kept_steps, self.kept_leases, self.sent, self.starvation),
            *self.membership(),
            *(self.replay, *(self.replay_part(part) for part in REPLAY_PARTS if part != "fragments")),
            *(key for key in saved if key not in self.naming_payloads()),
        )

    def all_held(self) -> tuple[str, ...]:
        """Return the keys that make a run hold data: all except `run` and the keys that other keys name."""
        cataloged = (*self.naming_payloads(), self.lanes, self.buffers)
        curricula = (self.curricula, self.curricula_loading)
        return (*self.state(), *cataloged, *curricula, self.unreferenced, self.marked_hashes)

    def membership(self) -> tuple[str, ...]:
        """Return the keys of members, in the order of `lua/environments/members.lua`."""
        return (self.members, self.members_heard, self.member_counts, self.running, self.started)

    def lane(self, name: str) -> str:
        return self.called(f"lane:{name}")

    def buffer(self, name: str) -> str:
        return self.called(f"buffer:{name}")

    def series(self, step_s: int) -> str:
        return self.called(f"series:{step_s}")

    @property
    def payloads(self) -> str:
        """What the keys of all payloads begin with."""
        return self.payload("")

    def payload(self, group_id: str) -> str:
        return f"{PREFIX}:payload:{self.name}:{group_id}"


@dataclass(frozen=True, slots=True)
class ReplayKeys:
    """The keys of a run's replay buffer, or of the snapshot in a slot, and those of its run."""

    run_keys: RunKeys
    slot: int | None = None

    def part(self, part: SavedPart) -> str:
        """Return the key of a part."""
        if self.slot is not None:
            return self.run_keys.snapshot_part(self.slot, part)
        return self.run_keys.replay if part == "replay" else self.run_keys.replay_part(part)

    def key(self, name: str) -> str:
        """Return the key that scripts call by the upper case of this name."""
        part = next((part for part in SAVED_PARTS if part == name), None)
        return self.run_keys.key(name) if part is None else self.part(part)


@dataclass(frozen=True, slots=True)
class CurriculumKeys:
    """The keys of one curriculum, and those of its run."""

    run_keys: RunKeys
    curriculum_id: str

    @property
    def curriculum(self) -> str:
        """The key of its configuration and totals."""
        return self.run_keys.curriculum(self.curriculum_id)

    def part(self, part: CurriculumPart) -> str:
        """Return the key of a part."""
        return self.run_keys.curriculum_part(self.curriculum_id, part)

    def key(self, name: str) -> str:
        """Return the key that scripts call by the upper case of this name."""
        if name == "curriculum":
            return self.curriculum
        part = next((part for part in CURRICULUM_PARTS if part == name), None)
        return self.run_keys.key(name) if part is None else self.part(part)

    def own(self) -> list[str]:
        """Return all keys that are the curriculum's alone."""
        return [self.curriculum, *map(self.part, CURRICULUM_PARTS)]
