"""Curricula in Redis: their names and configurations, what strategies must know of them, and their items' places."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from app.core.curriculum.indexes import ItemCounts, ItemIndex, Span
from app.core.curriculum.settings import CurriculumPolicy
from app.store.curriculum.entries import MAX_CURRICULA, parse_pairs, parse_policy, policy_text
from app.store.redis.client import RedisClient
from app.store.redis.keys import CurriculumPart, RunKeys
from app.store.redis.pipeline import Argument, Command
from app.store.redis.scripts import positional
from app.store.runs.view import parse_policy as parse_run_policy
from app.store.runs.view import reading, run_clock

LENGTHS = (
    ItemIndex.MEAN_REWARD,
    ItemIndex.POSTERIOR,
    ItemIndex.SIGNAL,
    ItemIndex.LAST,
    ItemIndex.LAST_SAMPLED,
    ItemIndex.UNSEEN,
    ItemIndex.PRIOR_ONLY,
)
"""The orders whose lengths are always counted, as `lua/curriculum/curriculum_places.lua` names them."""

REWARD_UNITS = 65536
"""Parts of one that the sum of all mean reward is kept in."""

_NO_CATEGORY = ""
_LOOKS = 8
_COUNTED: tuple[CurriculumPart, ...] = ("mean_reward", "unseen", "drawn", "in_flight")


@dataclass(frozen=True, slots=True)
class CurriculumView:
    """A curriculum without its items: what every use case starts from.

    Attributes:
        run: Whose it is.
        name: Its name.
        curriculum_id: What its keys are named by.
        revision: Changes whenever its configuration does.
        policy: Its configuration.
        samples: Samples so far.
        step: The run's: batches handed out so far.
        clock_ms: The run clock.
        memory_ms: How long the run remembers names that senders gave, run clock.
    """

    run: str
    name: str
    curriculum_id: str
    revision: str
    policy: CurriculumPolicy
    samples: int
    step: int
    clock_ms: int
    memory_ms: int

    @property
    def keys(self) -> list[str]:
        """The keys that every script of it is handed."""
        return RunKeys(self.run).curriculum_keys(self.curriculum_id)


@dataclass(frozen=True, slots=True)
class Census:
    """What was counted of a curriculum in one step.

    Attributes:
        counts: What strategies know.
        counter: How often the generator drew, before what was claimed.
        updates: Observations so far.
        reward_sum: Sum of the scores of `ItemIndex.MEAN_REWARD`.
        left_out: Observations of groups that could not be counted (`lua/curriculum/observe_groups.lua`).
        in_flight: Items handed out and not observed yet, whose time is not up.
        numbers: The number of each category; that of none is 0.
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
        in_flight: Items handed out and not observed yet, some of whose time may be up.
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

    async def ids(self, run: str) -> dict[str, str]:
        """Read the names of the run's curricula, sorted, and what their keys are named by."""
        found = await self._connection.call("HGETALL", RunKeys(run).curricula)
        return {name.decode(): curriculum.decode() for name, curriculum in sorted(found.items())}

    async def summaries(self, runs: Sequence[str]) -> dict[str, list[CurriculumSummary]]:
        """Read the curricula of runs, by name, in two round trips; runs that have none are left out."""
        names = [("HGETALL", RunKeys(run).curricula) for run in runs]
        found = dict(zip(runs, await self._connection.pipeline(names) if names else [], strict=True))
        named = [(run, *pair) for run, own in found.items() for pair in sorted(own.items())]
        commands: list[Command] = []
        for run, _, own in named:
            keys, curriculum_id = RunKeys(run), own.decode()
            commands.append(("HMGET", keys.curriculum(curriculum_id), "samples", "updates", "mean_reward"))
            commands += [("ZCARD", keys.curriculum_part(curriculum_id, part)) for part in _COUNTED]
        replies = await self._connection.pipeline(commands) if commands else []
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

    async def view(self, run: str, name: str) -> CurriculumView | None:
        """Read a curriculum without its items; None if the run has none of this name."""
        keys = RunKeys(run)
        for _ in range(_LOOKS):
            found = await self._connection.call("HGET", keys.curricula, name)
            if found is None:
                return None
            curriculum_id = found.decode()
            time, (step, clock_ms, time_ms, policy), (config, revision, samples) = await self._connection.pipeline(
                [
                    ("TIME",),
                    ("HMGET", keys.run, "step", "clock_ms", "time_ms", "policy"),
                    ("HMGET", keys.curriculum(curriculum_id), "config", "revision", "samples"),
                ]
            )
            if config is None:  # another curriculum took its name since, or it was deleted
                continue
            clock = {"clock_ms": clock_ms, "time_ms": time_ms}
            return CurriculumView(
                run=run,
                name=name,
                curriculum_id=curriculum_id,
                revision=revision.decode(),
                policy=parse_policy(config),
                samples=int(samples or 0),
                step=int(step or 0),
                clock_ms=run_clock(time, {mark: int(text) for mark, text in clock.items() if text is not None}),
                memory_ms=round(1000 * parse_run_policy(policy).dedup_window_s),
            )
        return None

    async def put(self, run: str, name: str, curriculum_id: str, policy: CurriculumPolicy, old: str, new: str) -> str:
        """Write a curriculum's configuration; make it if need be. Safe to repeat.

        Args:
            run: The run's name.
            name: The curriculum's.
            curriculum_id: What its keys are named by; never used before for one that is to be made.
            policy: Its configuration.
            old: The revision this was decided on; empty for one that is to be made.
            new: The revision from now on, unlike any other.

        Returns:
            ``put``; or, with nothing changed, ``outdated`` (look and decide again), ``missing`` (there is no such
            run) or ``crowded`` (the run has `MAX_CURRICULA`).
        """
        keys = RunKeys(run)
        arguments: list[Argument] = [name, curriculum_id, old, new, policy_text(policy), MAX_CURRICULA]
        places = [keys.run, keys.curricula, keys.curriculum(curriculum_id)]
        (word,) = await self._connection.run(positional("put_curriculum", places, arguments))
        return str(word.decode())

    async def delete(self, view: CurriculumView) -> None:
        """Forget a curriculum and its name, unless the name stands for another by now."""
        keys = RunKeys(view.run)
        places = [keys.run, keys.curricula, *view.keys[1:]]
        await self._connection.run(positional("delete_curriculum", places, [view.name, view.curriculum_id]))

    async def census(
        self, view: CurriculumView, spans: Sequence[Span] = (), *, draws: int = 0, samples: int = 0, by_category: bool
    ) -> Census | None:
        """Count what strategies must know; None if the curriculum is gone.

        Args:
            view: Which curriculum.
            spans: Ranges of scores whose items are counted.
            draws: How far to move the random counter on: who does so has those numbers for itself.
            samples: 1 to count a sample.
            by_category: Whether to count the items of each category.
        """
        arguments: list[Argument] = [draws, samples, int(by_category), view.clock_ms]
        for span in spans:
            arguments += [span.index.value, repr(span.low), repr(span.high)]
        word, *found = await self._connection.run(positional("count_curriculum", view.keys, arguments))
        if word != b"counted":
            return None
        return _census(found, by_category=by_category)

    async def categories(self, view: CurriculumView) -> dict[int, str]:
        """Read the categories by their numbers."""
        key = RunKeys(view.run).curriculum_part(view.curriculum_id, "category_numbers")
        found = await self._connection.call("HGETALL", key)
        return {int(number): name.decode() for name, number in found.items()}

    async def ease_bounds(self, view: CurriculumView) -> tuple[float | None, float | None]:
        """Read the least and the greatest ease; None if no item has one."""
        key = RunKeys(view.run).curriculum_part(view.curriculum_id, "mean_reward")
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
    """Name an arm as strategies do: Redis has a category's number."""
    kind, _, number = key.partition(":")
    return f"{kind}:{named.get(int(number), '')}" if kind == "category" else key
