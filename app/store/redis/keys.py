"""Every key this service writes, in one table.

| key | type | holds |
|---|---|---|
| `lachesis:2:runs` | set | names of runs that have any state |
| `lachesis:2:payload:RUN:GROUP` | string | columns of a group, tensors of a fragment (safetensors); no hash tag |
| `…:run` | hash | configuration, policy, policy version, epoch, step, run clock, totals, debts, newest group |
| `…:environments` | hash | environment id -> JSON record |
| `…:seen` | hash | environment id -> run clock at its last sign of life, ms |
| `…:served` | hash | environment id or `-` -> sequences handed out in batches |
| `…:sent` | hash | environment id -> `clock_ms size sequences`: its last group, and sequences stored in all |
| `…:starvation` | hash | what came since groups were last stored: `since_ms`, `sequences`, dropped groups by reason |
| `…:members` | hash | `environment:member` -> `joined_ms running_groups`, for every live member |
| `…:members_heard` | zset | the same members by the run clock at their last sign of life, ms |
| `…:member_counts` | hash | environment id -> its live members |
| `…:running` | hash | environment id -> groups that its members have started and not submitted |
| `…:started` | hash | environment id -> groups that its members have started, submitted or not |
| `…:groups` | hash | group id -> its entry, for every group held (`app.store.groups.entries`) |
| `…:lanes` | hash | `environment:size` -> groups queued in that lane |
| `…:lane:{environment}:{size}` | zset | queued group ids by arrival |
| `…:buffers` | hash | `environment:size` -> groups buffered (waiting for a set to complete) |
| `…:buffer:{environment}:{size}` | zset | buffered group ids by arrival |
| `…:versions` | zset | queued and buffered group ids by policy version, where they name one |
| `…:recent` | zset | ids of groups admitted lately, by run clock: our own repetitions are recognised |
| `…:given_ids` | hash | id a sender gave -> `group_id outcome checksum`: its repetitions are recognised |
| `…:given_ids_until` | zset | those ids by the run clock at which they are forgotten, unless their groups are held |
| `…:history` | hash | group id -> `outcome batch step clock_ms entry`; batch id -> `outcome lease step clock_ms` |
| `…:ended` | zset | those group and batch ids by the run clock at which they are forgotten |
| `…:unreferenced` | zset | payloads no index entry names: pending (score: run clock) or marked for deletion (-1) |
| `…:leases` | hash | batch id -> JSON list of its groups, in training order |
| `…:lease_states` | hash | batch id -> JSON of its lease |
| `…:kept` | hash | batch id -> JSON list of the groups of a delivered batch that is kept for a rewind |
| `…:kept_steps` | zset | those batch ids by step |
| `…:kept_leases` | hash | batch id -> policy version in force, and JSON of the lease, when it was acknowledged |
| `…:workers` | zset | API process -> run clock at its last tick |
| `…:dropped` | hash | `reason:environment` -> groups |
| `…:replay` | hash | the replay buffer: configuration, revision, session, totals, random counter |
| `…:replay:chunks` | hash | chunk id -> its entry, for every chunk held (`app.store.replay.entries`) |
| `…:replay:order` | zset | ids of sampleable chunks by number of insertion |
| `…:replay:weights` | zset | the same by priority to the power alpha, in units of 2^-20 |
| `…:replay:versions` | zset | the same by version, that of their oldest fragment |
| `…:replay:uses` | zset | the same by acknowledged uses |
| `…:replay:reserved` | zset | ids of chunks whose uses are all reserved or counted, by version |
| `…:replay:reserved_order` | zset | the same by number of insertion |
| `…:replay:reserved_weights` | zset | the same by weight |
| `…:replay:reserved_uses` | zset | the same by acknowledged uses |
| `…:replay:archived` | zset | ids of chunks of former sessions, kept for inspection, by number of insertion |
| `…:replay:version_counts` | hash | version -> sampleable chunks of it |
| `…:replay:fragments` | hash | fragment id -> its entry, for every fragment held, in a chunk or not yet |
| `…:replay:workers` | hash | worker -> JSON: what it has sent, and what waits for a chunk |
| `…:replay:due` | zset | workers of whom something waits, by the run clock at which to look after it |
| `…:replay:samples` | hash | sample id -> JSON: the chunks it was given, in order |
| `…:replay:sample_states` | hash | sample id -> JSON of its lease |
| `…:replay:requests` | hash | request id -> id of its sample, while that is held |
| `…:snapshot:{slot}:{part}` | copy | `replay` and each of its parts as they were at a snapshot; of the same types |
| `…:curricula` | hash | curriculum -> its id |
| `…:curricula_loading` | zset | ids of curricula whose state is being loaded, by the run clock at their last progress |
| `…:curriculum:{id}` | hash | a curriculum: configuration, revision, totals, random counter |
| `…:curriculum:{id}:items` | hash | item -> `category prior metadata`, for every item (`app.store.curriculum.items`) |
| `…:curriculum:{id}:estimates` | hash | seen item -> what is known of it, and its last scores, packed |
| `…:curriculum:{id}:unseen` | zset | items not observed yet and without a prior, all with score 0 |
| `…:curriculum:{id}:prior_only` | zset | items not observed yet, by their prior |
| `…:curriculum:{id}:mean_reward` | zset | seen items by mean reward; unseen ones with a prior by that |
| `…:curriculum:{id}:posterior` | zset | seen items by the mean of their posterior |
| `…:curriculum:{id}:signal` | zset | seen items by mean absolute advantage of their last group |
| `…:curriculum:{id}:last` | zset | seen items by mean reward of their last group |
| `…:curriculum:{id}:drawn` | zset | seen items by the number of the sample that last handed them out |
| `…:curriculum:{id}:category` | zset | all items by the number of their category, 0 of those that have none |
| `…:curriculum:{id}:category_numbers` | hash | category -> its number, from 1 |
| `…:curriculum:{id}:arms` | hash | arm of the bandit -> its value |
| `…:curriculum:{id}:in_flight` | zset | items handed out, by the run clock from which others may have them |
| `…:curriculum:{id}:holders` | hash | those items -> number and id of the sample that handed them out |
| `…:curriculum:{id}:requests` | zset | requests that told observations, by the run clock until which they are known |
| `…:curriculum:{id}:samples` | hash | requests for samples -> JSON of what they were given |
| `…:curriculum:{id}:samples_until` | zset | those requests, by the run clock until which they are known |
| `…:replay:entering` | zset | groups of acknowledged batches that are to become chunks, by the order they came in |
| `…:replayed` | hash | group id -> batches, in hands or kept, that have it from the replay buffer |
| `…:marked_hashes` | set | tokens of marked hashes: their payloads are deleted unless something else names them |
| `…:marked_hash:{token}` | hash | a former `groups` or `fragments` hash |

`…` is `lachesis:2:{run}`: the braces are a hash tag, so a run's index lives on one slot and scripts work in a
cluster. `2` is the version of the format (`FORMAT`).
"""

import re
from dataclasses import dataclass
from typing import Literal, get_args

from app.core.errors import InvalidField
from lachesis.wire.replay import MAX_SNAPSHOTS
from lachesis.wire.runs import RUN_NAME

FORMAT = 2
"""The version of what is stored. Raise it with each change that other versions of the service would misread."""

PREFIX = f"lachesis:{FORMAT}"
FORMER_RUNS = tuple(f"lachesis:{version}:runs" for version in range(1, FORMAT))
"""The keys that tell that Redis holds data of an older version."""

RUNS = f"{PREFIX}:runs"
NONE = "-"

ReplayPart = Literal[
    "chunks",
    "order",
    "weights",
    "versions",
    "uses",
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
"""What a replay buffer consists of, beside its totals; in the order `lua/replay/replay_keys.lua` names them."""

REPLAY_PARTS: tuple[ReplayPart, ...] = get_args(ReplayPart)

SavedPart = Literal["replay"] | ReplayPart
"""What a snapshot consists of; in the order `lua/replay/replay_places.lua` knows."""

SAVED_PARTS: tuple[SavedPart, ...] = ("replay", *REPLAY_PARTS)

CurriculumPart = Literal[
    "items", "estimates", "mean_reward", "posterior", "signal", "last", "drawn", "unseen", "prior_only", "category",
    "category_numbers", "arms", "in_flight", "holders", "requests", "samples", "samples_until",
]  # fmt: skip
"""What a curriculum consists of, beside its totals; in the order `lua/curriculum/curriculum_keys.lua` names them."""

CURRICULUM_PARTS: tuple[CurriculumPart, ...] = get_args(CurriculumPart)


def member_name(environment: int, member: str) -> str:
    """Return the field of a member in the `members` hash."""
    return f"{environment}:{member}"


def parse_member_name(name: str) -> tuple[int, str]:
    """Invert `member_name`."""
    environment, _, member = name.partition(":")
    return int(environment), member


def is_run_name(text: str) -> bool:
    """Whether a run can have this name."""
    return re.fullmatch(RUN_NAME, text) is not None


def lane_name(environment: int | None, size: int) -> str:
    """Name a lane in the `lanes` and `buffers` hashes."""
    return f"{NONE if environment is None else environment}:{size}"


def parse_lane_name(name: str) -> tuple[int | None, int]:
    """Invert `lane_name`."""
    environment, size = name.split(":")
    return (None if environment == NONE else int(environment)), int(size)


class _Key:
    """A key of a run, called what its attribute is called, or otherwise if that is said."""

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
    run = _Key()
    environments = _Key()
    seen = _Key()
    served = _Key()
    groups = _Key()
    lanes = _Key()
    buffers = _Key()
    recent = _Key()
    versions = _Key()
    given_ids = _Key()
    given_ids_until = _Key()
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
    leases = _Key()
    lease_states = _Key()
    workers = _Key()
    dropped = _Key()
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

    def replay_keys(self, slot: int | None = None) -> list[str]:
        """The keys that every script of the replay buffer is handed; or, of a snapshot, the same."""
        place = [self.replay, *map(self.replay_part, REPLAY_PARTS)] if slot is None else self.snapshot_place(slot)
        return [self.run, *place, self.unreferenced, self.history, self.ended]

    def snapshot_part(self, slot: int, part: SavedPart) -> str:
        return self.called(f"snapshot:{slot}:{part}")

    def snapshot_place(self, slot: int) -> list[str]:
        return [self.snapshot_part(slot, part) for part in SAVED_PARTS]

    def naming_payloads(self) -> tuple[str, ...]:
        """The hashes whose fields are ids of payloads: a payload that none of them names can be deleted."""
        saved = (self.snapshot_part(slot, "fragments") for slot in range(MAX_SNAPSHOTS))
        return (self.groups, self.replay_part("fragments"), self.replayed, *saved)

    def curriculum(self, curriculum_id: str) -> str:
        return self.called(f"curriculum:{curriculum_id}")

    def curriculum_part(self, curriculum_id: str, part: CurriculumPart) -> str:
        return self.called(f"curriculum:{curriculum_id}:{part}")

    def curriculum_keys(self, curriculum_id: str) -> list[str]:
        """The keys that every script of a curriculum is handed; all but the first are its own."""
        parts = (self.curriculum_part(curriculum_id, part) for part in CURRICULUM_PARTS)
        return [self.run, self.curriculum(curriculum_id), *parts]

    def marked_hash(self, token: str) -> str:
        return self.called(f"marked_hash:{token}")

    def state(self) -> tuple[str, ...]:
        """The keys that a reset simply deletes: they name no payloads, and no other keys."""
        saved = (key for slot in range(MAX_SNAPSHOTS) for key in self.snapshot_place(slot))
        return (
            *(self.environments, self.seen, self.served, self.leases, self.lease_states, self.dropped, self.versions),
            *(self.given_ids, self.given_ids_until, self.history, self.ended),
            *(self.kept, self.kept_steps, self.kept_leases, self.sent, self.starvation),
            *self.membership(),
            *(self.replay, *(self.replay_part(part) for part in REPLAY_PARTS if part != "fragments")),
            *(key for key in saved if key not in self.naming_payloads()),
        )

    def all_held(self) -> tuple[str, ...]:
        """Every key but `run`, `workers`, and what these catalogs name: without them a run holds nothing."""
        cataloged = (*self.naming_payloads(), self.lanes, self.buffers)
        curricula = (self.curricula, self.curricula_loading)
        return (*self.state(), *cataloged, *curricula, self.recent, self.unreferenced, self.marked_hashes)

    def membership(self) -> tuple[str, ...]:
        """The keys of members, in the order of `lua/environments/members.lua`."""
        return (self.members, self.members_heard, self.member_counts, self.running, self.started)

    def lane(self, name: str) -> str:
        return self.called(f"lane:{name}")

    def buffer(self, name: str) -> str:
        return self.called(f"buffer:{name}")

    def payload(self, group_id: str) -> str:
        return f"{PREFIX}:payload:{self.name}:{group_id}"
