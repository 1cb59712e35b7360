"""Store curricula: their names, their settings, and the counts that strategies need."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

from app.core.curriculum.indexes import ItemCounts, ItemIndex, Span
from app.store.curriculum import scripts
from app.store.curriculum.entries import MAX_CURRICULA, parse_curriculum_settings, parse_pairs
from app.store.redis.client import RedisClient
from app.store.redis.keys import CurriculumKeys, CurriculumPart, RunKeys
from app.store.redis.pipeline import Command
from app.store.redis.scripts import outcome
from app.store.redis.settings_text import settings_text
from app.store.runs.clock import CLOCK_COMMANDS, CLOCK_FIELDS, Now
from app.store.runs.view import parse_policy, reading
from lachesis.wire.curricula import CurriculumSettings
from lachesis.wire.errors import CurriculumNotFound

LENGTHS = (
    ItemIndex.MEAN_REWARD,
    ItemIndex.POSTERIOR,
    ItemIndex.SIGNAL,
    ItemIndex.LAST,
    ItemIndex.LAST_SAMPLED,
    ItemIndex.UNSEEN,
    ItemIndex.PRIOR_ONLY,
)
"""The indexes whose lengths are always counted, as `lua/curriculum/curriculum_places.lua` names them."""

REWARD_UNITS = 65536
"""The sum of mean rewards is stored in units of 1 / ``REWARD_UNITS``."""

_NO_CATEGORY = ""
_LOOKS = 8
_MOST_KNOWN = 4096  # names of curricula that a process remembers
_COUNTED: tuple[CurriculumPart, ...] = ("mean_reward", "unseen", "drawn", "in_flight")


@dataclass(frozen=True, slots=True)
class CurriculumView:
    """A curriculum without its items: what every use case starts from.

    Attributes:
        run: The run that it belongs to.
        name: Its name.
        curriculum_id: The id in the names of its keys.
        revision: Changes whenever its settings do.
        settings: Its configuration.
        samples: Samples so far.
        step: The run's: batches handed out so far.
        clock_ms: The run clock.
        memory_ms: How long the run remembers ids of requests, milliseconds of run clock.
    """

    run: str
    name: str
    curriculum_id: str
    revision: str
    settings: CurriculumSettings
    samples: int
    step: int
    clock_ms: int
    memory_ms: int

    @property
    def keys(self) -> CurriculumKeys:
        """Its keys."""
        return CurriculumKeys(RunKeys(self.run), self.curriculum_id)


@dataclass(frozen=True, slots=True)
class Census:
    """The counts of a curriculum, read in one step.

    Attributes:
        counts: The counts that strategies use.
        counter: How often the generator drew, without the draws claimed here.
        updates: Observations so far.
        reward_sum: Sum of the scores of `ItemIndex.MEAN_REWARD`.
        left_out: Observations of groups that could not be counted (`lua/curriculum/observe_groups.lua`).
        in_flight: Items handed out and not observed yet, whose time is not up.
        numbers: The number of each category; 0 is that of items without one.
        named: The category of each number.
    """

    counts: ItemCounts
    counter: int
    updates: int
    reward_sum: float
    left_out: int
    in_flight: int
    numbers: Mapping[str, int] = field(default_factory=dict)
    named: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CurriculumSummary:
    """A curriculum in a few numbers.

    Attributes:
        name: Its name.
        seen: Items observed at least once.
        unseen: The others.
        in_flight: Items handed out and not observed yet, expired ones included.
        samples: Samples so far.
        updates: Observations so far.
        mean_reward: Mean of the scores of `ItemIndex.MEAN_REWARD`; None if there is none.
    """

    name: str
    seen: int
    unseen: int
    in_flight: int
    samples: int
    updates: int
    mean_reward: float | None


class CurriculumStore:
    """Reads and changes which curricula a run has."""

    def __init__(self, connection: RedisClient) -> None:
        self._connection = connection
        self._ids: dict[tuple[str, str], str] = {}  # by run and name, as they were read last

    async def ids(self, run: str) -> dict[str, str]:
        """Read the names of the run's curricula, sorted, and what their keys are named by."""
        found = await self._connection.call("HGETALL", RunKeys(run).curricula)
        return {name.decode(): curriculum.decode() for name, curriculum in sorted(found.items())}

    async def summaries(self, runs: Sequence[str]) -> dict[str, list[CurriculumSummary]]:
        """Read the curricula of runs, by name, in two round trips; runs without curricula are left out."""
        names = [("HGETALL", RunKeys(run).curricula) for run in runs]
        found = dict(zip(runs, await self._connection.pipeline(names), strict=True))
        named = [(run, *pair) for run, own in found.items() for pair in sorted(own.items())]
        commands: list[Command] = []
        for run, _, own in named:
            keys, curriculum_id = RunKeys(run), own.decode()
            commands.append(("HMGET", keys.curriculum(curriculum_id), "samples", "updates", "mean_reward"))
            commands += [("ZCARD", keys.curriculum_part(curriculum_id, part)) for part in _COUNTED]
        replies = await self._connection.pipeline(commands)
        summaries: dict[str, list[CurriculumSummary]] = {}
        for n, (run, name, _) in enumerate(named):
            totals, mean_reward, unseen, seen, in_flight = replies[5 * n : 5 * n + 5]
            with reading(run):
                samples, updates, parts = (int(total or 0) for total in totals)
            summary = CurriculumSummary(
                name=name.decode(),
                seen=seen,
                unseen=mean_reward + unseen - seen,
                in_flight=in_flight,
                samples=samples,
                updates=updates,
                mean_reward=parts / REWARD_UNITS / mean_reward if mean_reward else None,
            )
            summaries.setdefault(run, []).append(summary)
        return summaries

    async def existing(self, run: str, name: str) -> CurriculumView:
        """Read a curriculum without its items.

        Raises:
            CurriculumNotFound: The run has none of this name.
        """
        view = await self.view(run, name)
        if view is None:
            raise CurriculumNotFound(f"run {run} has no curriculum {name}")
        return view

    async def view(self, run: str, name: str) -> CurriculumView | None:
        """Read a curriculum without its items; None if the run has none of this name."""
        keys = RunKeys(run)
        for _ in range(_LOOKS):
            known = self._ids.get((run, name))
            if known is None:
                found = await self._connection.call("HGET", keys.curricula, name)
                if found is None:
                    return None
                if len(self._ids) >= _MOST_KNOWN:
                    self._ids.clear()
                known = self._ids[run, name] = found.decode()
            found, time, service, (step, *clock, policy), (config, revision, samples) = await self._connection.pipeline(
                [
                    ("HGET", keys.curricula, name),
                    *CLOCK_COMMANDS,
                    ("HMGET", keys.run, "step", *CLOCK_FIELDS, "policy"),
                    ("HMGET", keys.curriculum(known), "config", "revision", "samples"),
                ]
            )
            if found != known.encode() or config is None:  # another one took its name since, or it was deleted
                self._ids.pop((run, name), None)
                continue
            return CurriculumView(
                run=run,
                name=name,
                curriculum_id=known,
                revision=revision.decode(),
                settings=parse_curriculum_settings(config),
                samples=int(samples or 0),
                step=int(step or 0),
                clock_ms=Now(time, service).run_clock_of(clock),
                memory_ms=parse_policy(policy).request_memory_ms,
            )
        return None

    async def put(
        self, run: str, name: str, curriculum_id: str, settings: CurriculumSettings, old: str, new: str
    ) -> scripts.PutOutcome:
        """Write a curriculum's settings, and create it if it does not exist. Safe to repeat.

        Args:
            run: The run's name.
            name: The curriculum's name.
            curriculum_id: The id in the names of its keys. A new curriculum needs an unused one.
            settings: Its configuration.
            old: The revision that this was decided on; empty for a new curriculum.
            new: The revision from now on; it must be unique.

        Returns:
            ``put``; or, with nothing changed, ``outdated`` (look and decide again), ``missing`` (there is no such
            run) or ``crowded`` (the run has `MAX_CURRICULA`).
        """
        command = scripts.put_curriculum(
            CurriculumKeys(RunKeys(run), curriculum_id),
            name=name,
            curriculum_id=curriculum_id,
            old=old,
            new=new,
            config=settings_text(settings),
            most_curricula=MAX_CURRICULA,
        )
        (word,) = await self._connection.run(command)
        return outcome(word, get_args(scripts.PutOutcome))

    async def delete(self, view: CurriculumView) -> None:
        """Delete a curriculum and its name, unless the name belongs to another one by now."""
        command = scripts.delete_curriculum(
            view.keys.run_keys, deleted_keys=view.keys.own(), name=view.name, curriculum_id=view.curriculum_id
        )
        await self._connection.run(command)

    async def census(
        self, view: CurriculumView, spans: Sequence[Span] = (), *, draws: int = 0, samples: int = 0, by_category: bool
    ) -> Census | None:
        """Count what a strategy needs; None if the curriculum was deleted.

        Args:
            view: The curriculum.
            spans: Ranges of scores whose items are counted.
            draws: By how much to advance the random counter. No other request gets the numbers in between.
            samples: 1 to count a sample.
            by_category: Whether to count the items of each category.
        """
        command = scripts.count_curriculum(
            view.keys,
            draws=draws,
            new_samples=samples,
            by_category=by_category,
            clock_ms=view.clock_ms,
            spans=[scripts.ScoreRange(span.index.value, repr(span.low), repr(span.high)) for span in spans],
        )
        word, *found = await self._connection.run(command)
        if word != b"counted":
            return None
        return _census(found, by_category=by_category)

    async def mean_reward_bounds(self, view: CurriculumView) -> tuple[float | None, float | None]:
        """Read the least and the greatest mean reward; None if no item has one."""
        key = view.keys.part("mean_reward")
        ends = await self._connection.pipeline([("ZRANGE", key, end, end, "WITHSCORES") for end in (0, -1)])
        least, greatest = (float(found[0][1]) if found else None for found in ends)
        return least, greatest


def _census(found: Sequence[Any], *, by_category: bool) -> Census:
    (counter, samples, updates, mean_reward, left_out, in_flight), lengths, spans, arms, names, sizes = found
    numbers = {name: int(number) for name, number in sorted(parse_pairs(names).items(), key=lambda pair: pair[1])}
    in_turn = [_NO_CATEGORY, *(name.decode() for name in names[::2])]
    by_name = dict(zip(in_turn, sizes, strict=True)) if by_category else {}
    named = {number: name for name, number in numbers.items()} | {0: _NO_CATEGORY}
    counts = ItemCounts(
        lengths=dict(zip(LENGTHS, lengths, strict=True)),
        spans=tuple(spans),
        categories={name: by_name[name] for name in (_NO_CATEGORY, *numbers) if by_name.get(name)},
        arms={named_arm(key, named): value for key, value in parse_pairs(arms).items()},
        samples=int(samples),
    )
    reward_sum = int(mean_reward) / REWARD_UNITS
    return Census(counts, int(counter), int(updates), reward_sum, int(left_out), in_flight, numbers, named)


def named_arm(key: str, named: Mapping[int, str]) -> str:
    """Return the key of an arm that strategies use. Redis stores the number of a category in its place."""
    kind, _, number = key.partition(":")
    return f"{kind}:{named.get(int(number), '')}" if kind == "category" else key
