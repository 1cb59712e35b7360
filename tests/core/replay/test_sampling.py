"""Strategies against their distributions, on a buffer that is a list; and the time of a draw from a million chunks."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise, permutations
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.numeric.weighted_without_replacement import sample_without_replacement
from app.core.replay.sampling import (
    MAX_WEIGHT,
    WEIGHT_UNIT,
    ChunkCounts,
    ChunkDraw,
    ChunkTotals,
    draw,
    draw_probabilities,
    importance,
    order_by_weight,
    totals_of,
    weight_of,
)
from lachesis.wire.replay import Sampling, SamplingStrategy
from tests.core.numeric.chi_square import fits
from tests.properties import examples

CURRENT = 9


@dataclass(frozen=True)
class Buffer:
    """Chunks 0, 1, ... as inserted, by weight and version. No two weigh the same, so that ranks say all."""

    weights: tuple[int, ...]
    versions: tuple[int, ...]

    @property
    def counts(self) -> ChunkCounts:
        powers = Counter(weight.bit_length() - 1 for weight in self.weights)
        return ChunkCounts(len(self.weights), sum(self.weights), powers, Counter(self.versions), CURRENT)

    def at(self, drawn: ChunkDraw) -> int:
        """Look up who stands at a place, as Redis does."""
        scores: Sequence[int] = range(len(self.weights))
        if drawn.ranked_by != "order":
            scores = self.weights if drawn.ranked_by == "weights" else self.versions
        return ranked(tuple(scores), drawn.low, drawn.high)[drawn.rank]

    def take(self, draws: list[ChunkDraw], wanted: int) -> tuple[list[int], list[ChunkDraw]]:
        """Take chunks first come, none twice, as the script does."""
        chunks: dict[int, ChunkDraw] = {}
        for each in draws:
            chunk = self.at(each)
            if len(chunks) < wanted and chunk not in chunks and each.accept < self.weights[chunk]:
                chunks[chunk] = each
        return list(chunks), list(chunks.values())

    def sample(
        self, sampling: Sampling, wanted: int, seed: int, counter: int
    ) -> tuple[list[int], list[ChunkDraw], int]:
        """Take a sample, however many lists of draws it needs, at most 12."""
        chunks, taken = list[int](), list[ChunkDraw]()
        for _ in range(12):
            draws, counter = draw(self.counts, sampling, wanted, seed, counter, taken)
            before = chunks
            chunks, taken = self.take(draws, wanted)
            assert chunks[: len(before)] == before
            if len(chunks) == min(wanted, len(self.weights)):
                return chunks, taken, counter
        raise AssertionError("it does not end")


@cache
def ranked(scores: tuple[int, ...], low: int, high: int) -> list[int]:
    """The chunks of a range of scores, as a sorted set has them."""
    return sorted((chunk for chunk, score in enumerate(scores) if low <= score <= high), key=lambda each: scores[each])


BUFFER = Buffer(weights=(9, 2, 3, 40, 1), versions=(3, 9, 5, 9, 8))


def distribution_of(buffer: Buffer, sampling: Sampling) -> list[float]:
    """Each chunk's probability to be drawn, as the strategy's definition has it."""
    chunks = range(len(buffer.weights))
    match sampling.strategy:
        case "uniform":
            shares = [1.0 for _ in chunks]
        case "proportional":
            shares = [float(weight) for weight in buffer.weights]
        case "rank":
            best_first = sorted(chunks, key=lambda chunk: -buffer.weights[chunk])
            shares = [(1 + best_first.index(chunk)) ** -sampling.alpha for chunk in chunks]
        case "recency":
            shares = [2 ** -((len(chunks) - 1 - chunk) / sampling.half_life_chunks) for chunk in chunks]
        case "staleness":
            shares = [1 / (1 + CURRENT - version) for version in buffer.versions]
        case _:
            raise AssertionError("not at random")
    return [share / sum(shares) for share in shares]


def ordered_distribution(single: list[float], wanted: int) -> dict[tuple[int, ...], float]:
    """Return the probability of each ordered sample, drawn chunk by chunk from those that are left."""
    samples = {}
    for sample in permutations(range(len(single)), wanted):
        probability, left = 1.0, list(single)
        for chunk in sample:
            probability *= single[chunk] / sum(left)
            left[chunk] = 0.0
        samples[sample] = probability
    return samples


RANDOM = [
    Sampling(strategy="uniform"),
    Sampling(strategy="proportional"),
    Sampling(strategy="rank", alpha=0.0),
    Sampling(strategy="rank", alpha=0.7),
    Sampling(strategy="rank", alpha=4.0),
    Sampling(strategy="recency", half_life_chunks=2.0),
    Sampling(strategy="recency", half_life_chunks=0.3),  # so uneven that a sample of three ends in a race
    Sampling(strategy="recency", half_life_chunks=1e12),
    Sampling(strategy="staleness"),
]
NAMES = [f"{each.strategy}-{each.alpha}-{each.half_life_chunks:g}" for each in RANDOM]


@pytest.mark.slow
@pytest.mark.parametrize("sampling", RANDOM, ids=NAMES)
def test_ordered_samples_are_as_frequent_as_sampling_without_replacement_says(sampling: Sampling) -> None:
    expected = ordered_distribution(distribution_of(BUFFER, sampling), 3)
    seen = Counter(tuple(BUFFER.sample(sampling, 3, seed=5, counter=64 * turn)[0]) for turn in range(3000))
    fits([seen[sample] for sample in expected], list(expected.values()))


@pytest.mark.slow
def test_samples_that_take_several_lists_of_draws_keep_the_distribution() -> None:
    """One chunk outweighs all others so far that the first list hardly ever has a second one."""
    uneven = Buffer(weights=(5, 6, 2**40, 2**12, 1), versions=(CURRENT,) * 5)
    sampling = Sampling(strategy="proportional")
    expected = ordered_distribution(distribution_of(uneven, sampling), 4)
    seen, lists = Counter[tuple[int, ...]](), 0
    for turn in range(1500):
        chunks, _, counter = uneven.sample(sampling, 4, seed=6, counter=64 * turn)
        seen[tuple(chunks)] += 1
        lists += counter - 64 * turn
    assert lists > 2.5 * 1500
    fits([seen[sample] for sample in expected], list(expected.values()))


@pytest.mark.slow
def test_all_chunks_are_ordered_as_draws_without_replacement_would() -> None:
    expected = ordered_distribution([each / sum(BUFFER.weights) for each in BUFFER.weights], 5)
    seen = Counter(tuple(order_by_weight(BUFFER.weights, seed=7, counter=turn)) for turn in range(5000))
    fits([seen[order] for order in expected], list(expected.values()))


@pytest.mark.parametrize("strategy", get_args(SamplingStrategy))
def test_the_most_uneven_buffer_gives_all_but_one(strategy: SamplingStrategy) -> None:
    """One chunk of each power of two, and versions as far apart."""
    chunks = 53
    ladder = Buffer(tuple(2**power for power in range(chunks)), tuple(min(CURRENT, power) for power in range(chunks)))
    for turn in range(20):
        sample, _, _ = ladder.sample(
            Sampling(strategy=strategy, alpha=4, half_life_chunks=0.1), chunks - 1, 1, 64 * turn
        )
        assert len(set(sample)) == chunks - 1


@pytest.mark.parametrize("strategy", get_args(SamplingStrategy))
@pytest.mark.parametrize("wanted", [5, 6, 1000])
def test_who_wants_more_than_there_is_gets_all_at_once(strategy: SamplingStrategy, wanted: int) -> None:
    draws, _ = draw(BUFFER.counts, Sampling(strategy=strategy), wanted, seed=1, counter=0)
    assert sorted(BUFFER.take(draws, wanted)[0]) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("strategy", get_args(SamplingStrategy))
def test_nothing_is_drawn_from_nothing(strategy: SamplingStrategy) -> None:
    assert draw(ChunkCounts(0), Sampling(strategy=strategy), 3, seed=1, counter=7) == ([], 8)


def test_first_in_first_out_and_last_in_first_out_are_no_matter_of_chance() -> None:
    for counter in range(20):
        assert BUFFER.sample(Sampling(strategy="fifo"), 3, 1, counter)[0] == [0, 1, 2]
        assert BUFFER.sample(Sampling(strategy="lifo"), 3, 1, counter)[0] == [4, 3, 2]


@pytest.mark.parametrize("sampling", RANDOM, ids=NAMES)
def test_probabilities_are_the_distribution(sampling: Sampling) -> None:
    chunks, taken, _ = BUFFER.sample(sampling, 5, seed=2, counter=0)
    weights = [BUFFER.weights[chunk] for chunk in chunks]
    told = draw_probabilities(taken, weights, totals_of(BUFFER.counts, sampling.strategy), sampling)
    assert told == pytest.approx([distribution_of(BUFFER, sampling)[chunk] for chunk in chunks])


@pytest.mark.parametrize("strategy", sorted({*get_args(SamplingStrategy)} - {"fifo", "lifo"}))
def test_the_probabilities_of_all_chunks_sum_to_one(strategy: SamplingStrategy) -> None:
    """Importance weights depend on it."""
    sampling = Sampling(strategy=strategy, half_life_chunks=2.0)
    chunks, taken, _ = BUFFER.sample(sampling, 5, seed=2, counter=0)
    weights = [BUFFER.weights[chunk] for chunk in chunks]
    assert sum(draw_probabilities(taken, weights, totals_of(BUFFER.counts, strategy), sampling)) == pytest.approx(1)


def test_probabilities_are_never_zero() -> None:
    """An importance weight divides by them."""
    hopeless = ChunkDraw("order", 0, 1, rank=0)
    told = draw_probabilities([hopeless], [1], ChunkTotals(10**6), Sampling(strategy="recency", half_life_chunks=1))
    assert told[0] > 0
    assert importance([1.0, told[0]], beta=1.0)[1] == 1.0


def test_no_probability_is_above_one_if_a_weight_grew_after_the_totals_were_read() -> None:
    drawn = ChunkDraw("weights", 1, 1, rank=0)
    assert draw_probabilities([drawn], [9], ChunkTotals(1, weight=3), Sampling(strategy="proportional")) == [1.0]


@given(st.lists(st.floats(1e-6, 1), min_size=1, max_size=20), st.integers(1, 10**6), st.floats(0, 1))
def test_importance_weights_are_those_of_prioritised_replay(
    distribution: list[float], chunks: int, beta: float
) -> None:
    plain = [(chunks * probability) ** -beta for probability in distribution]
    assert importance(distribution, beta) == pytest.approx([weight / max(plain) for weight in plain])


@pytest.mark.parametrize("strategy", get_args(SamplingStrategy))
def test_restored_it_continues_the_same_sequence(strategy: SamplingStrategy) -> None:
    def run(counter: int, samples: int) -> tuple[list[list[int]], int]:
        taken = []
        for _ in range(samples):
            chunks, _, counter = BUFFER.sample(Sampling(strategy=strategy), 2, 11, counter)
            taken.append(chunks)
        return taken, counter

    whole, end = run(0, 12)
    head, saved = run(0, 5)
    tail, end_again = run(saved, 7)
    assert (head + tail, end_again) == (whole, end)


@pytest.mark.parametrize("sampling", RANDOM, ids=NAMES)
def test_other_seeds_and_counters_draw_otherwise(sampling: Sampling) -> None:
    counts = ChunkCounts(1000, 0, {3: 400, 9: 600}, {2: 500, 4: 500}, CURRENT)
    lists = {tuple(draw(counts, sampling, 8, seed, counter)[0]) for seed in (0, 1, 2**64 - 1) for counter in (0, 1, 2)}
    assert len(lists) == 9


def test_neighbouring_counters_share_no_randomness() -> None:
    lists = [
        {each.rank for each in draw(ChunkCounts(10**6), Sampling(strategy="rank", alpha=0), 256, 1, counter)[0]}
        for counter in range(20)
    ]
    assert max(len(one & other) for one, other in pairwise(lists)) <= 3


SPANS = st.dictionaries(st.integers(0, 52), st.integers(1, 300), min_size=1, max_size=10)


@examples(300)
@given(SPANS, st.sampled_from(RANDOM), st.integers(0, 400), st.integers(0, 2**64 - 1), st.integers(0, 2**32))
def test_draws_name_places_that_are_there(
    spans: dict[int, int], sampling: Sampling, wanted: int, seed: int, counter: int
) -> None:
    chunks = sum(spans.values())
    counts = ChunkCounts(chunks, chunks, spans, spans, version=52)
    draws, after = draw(counts, sampling, wanted, seed, counter)
    assert after == counter + 1
    for each in draws:
        match sampling.strategy:
            case "proportional":
                power = each.low.bit_length() - 1
                assert (each.low, each.high) == (2**power, 2 ** (power + 1) - 1)
                assert 0 <= each.rank < spans[power]
                assert 0 <= each.accept < each.high
            case "staleness":
                assert each.low == each.high
                assert 0 <= each.rank < spans[each.low]
            case _:
                assert 0 <= each.rank < chunks
    if sampling.strategy != "proportional":
        assert len(set(draws)) == len(draws) >= min(wanted, chunks)


def test_a_race_alone_is_sampling_without_replacement() -> None:
    """The draws always fall on place 2; what comes after it is by weight."""
    shares = np.array([1.0, 2.0, 0.5, 4.0])
    generator = np.random.Generator(np.random.Philox(key=3))
    expected = {
        sample[1:]: probability / 2 * 15
        for sample, probability in ordered_distribution(list(shares / 7.5), 3).items()
        if sample[0] == 2
    }
    stuck = np.full(22, 2)
    seen = Counter(
        tuple(
            sample_without_replacement(lambda _: stuck, lambda places: np.log(shares[places]), 4, 3, generator).tolist()
        )
        for _ in range(3000)
    )
    fits([seen[2, *rest] for rest in expected], np.array(list(expected.values())) / sum(expected.values()))


@given(st.floats(0, 1e300), st.floats(0, 1e300), st.floats(0, 4))
def test_weights_are_whole_and_ordered_as_priorities_are(one: float, other: float, alpha: float) -> None:
    low, high = weight_of(min(one, other), alpha), weight_of(max(one, other), alpha)
    assert 1 <= low <= high <= MAX_WEIGHT


@given(st.floats(1e-3, 1e9), st.floats(0, 1))
def test_weights_are_priorities_to_the_power_alpha(priority: float, alpha: float) -> None:
    assert abs(weight_of(priority, alpha) - priority**alpha * WEIGHT_UNIT) <= 0.5 + 1e-9 * WEIGHT_UNIT * priority


def test_weights_end_where_redis_counts_no_further() -> None:
    assert weight_of(0, 0.5) == weight_of(1e-30, 1) == 1
    assert weight_of(0, 0) == WEIGHT_UNIT
    assert weight_of(2**32 - 1, 1) == (2**32 - 1) * WEIGHT_UNIT
    assert weight_of(2**32, 1) == weight_of(math.nextafter(math.inf, 0), 4) == MAX_WEIGHT


@pytest.mark.parametrize(
    "sampling", [Sampling(strategy=each) for each in get_args(SamplingStrategy)], ids=lambda each: each.strategy
)
def test_as_many_draws_are_made_of_a_million_chunks_as_of_a_thousand(sampling: Sampling) -> None:
    """Each is a look-up in Redis: at most three for a chunk that is wanted, however many there are."""
    million = ChunkCounts(
        10**6, 0, dict.fromkeys(range(10, 30), 50_000), dict.fromkeys(range(1000), 1000), version=1003
    )
    few = replace(million, chunks=1000, powers={10: 1000}, versions={9: 1000})
    for counts in (few, million):
        for counter in range(10):
            assert 256 <= len(draw(counts, sampling, 256, seed=1, counter=counter)[0]) <= 3 * 256
