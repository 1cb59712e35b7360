"""Each strategy's distribution by its definition, item by item: the oracle of parts and draws."""

import math

from app.core.curriculum.estimates import Estimate, posterior
from app.core.curriculum.indexes import ItemIndex
from lachesis.wire.curricula import CurriculumSettings
from tests.core.curriculum.population import Population


def distribution_of(population: Population, progress: float) -> list[float]:
    """Each item's probability to be the next one; of `thompson`, to be the first candidate."""
    settings, items = population.settings, population.estimates
    match settings.strategy:
        case "easy_first":
            last = max(1, settings.n_bins - 1)
            biased = normal([math.exp(-2 * each / last) for each in range(settings.n_bins)])
            return by_group(
                bins(population), [(1 - progress) * each + progress / settings.n_bins for each in biased], settings
            )
        case "competence_based" if settings.form == "frontier":
            return by_group(bins(population), frontier_weights(population), settings)
        case "competence_based":
            initial = settings.initial_competence
            competence = min(1.0, math.sqrt(progress * (1 - initial**2) + initial**2))
            order = easiest_first(population)
            allowed = [item for place, item in enumerate(order, 1) if place / len(order) <= competence] or order[:1]
            return [float(item in allowed) / len(allowed) for item in range(len(items))]
        case "learnability":
            return normal([learnability(settings, each) ** (1 / settings.temperature) for each in items])
        case "plr":
            return [sum(each) for each in zip(*replay(population), strict=True)]
        case "difficulty_pools":
            pools = [pool(settings, each) for each in items]
            return by_group(pools, [settings.hard_weight, settings.normal_weight, settings.easy_weight], settings)
        case "bandit" if settings.arms == "bins":
            values = [population.header.arms.get(f"bin:{each}", 0.0) for each in range(settings.n_bins)]
            return by_group(bins(population), [math.exp(each) for each in values], settings)
        case "bandit":
            names = sorted(set(population.categories))
            values = [population.header.arms.get(f"category:{name}", 0.0) for name in names]
            groups = [names.index(each) for each in population.categories]
            return by_group(groups, [math.exp(each) for each in values], settings)
    return [1 / len(items) for _ in items]


def normal(weights: list[float]) -> list[float]:
    return [each / sum(weights) for each in weights]


def by_group(groups: list[int], weights: list[float], settings: CurriculumSettings) -> list[float]:
    """A group by its tempered weight among those that have items, an item of it uniformly."""
    shares = {group: weights[group] ** (1 / settings.temperature) for group in set(groups)}
    return [shares[group] / sum(shares.values()) / groups.count(group) for group in groups]


def easiest_first(population: Population) -> list[int]:
    """Return all items by difficulty. Items that were never observed are in the middle."""
    known = population.standing(ItemIndex.MEAN_REWARD)[::-1].tolist()
    half = len(known) - len(known) // 2
    return [*known[:half], *population.standing(ItemIndex.UNSEEN).tolist(), *known[half:]]


def bins(population: Population) -> list[int]:
    """Each item's bin: the k-th fifth of the items by mean reward, and the middle for the others."""
    known, n_bins = population.standing(ItemIndex.MEAN_REWARD)[::-1].tolist(), population.settings.n_bins
    edges = [number * len(known) // n_bins for number in range(n_bins + 1)]
    found = {item: number for number in range(n_bins) for item in known[edges[number] : edges[number + 1]]}
    return [found.get(item, n_bins // 2) for item in range(len(population.estimates))]


def frontier_weights(population: Population) -> list[float]:
    settings = population.settings
    easiest = population.standing(ItemIndex.MEAN_REWARD)[::-1].tolist()
    centre = settings.n_bins // 2
    if easiest:
        beyond = [item for item in easiest if population.estimates[item].ema < settings.competence_threshold]
        centre = bins(population)[beyond[0] if beyond else easiest[-1]]
    return [math.exp(-((each - centre) ** 2) / (2 * settings.frontier_width**2)) for each in range(settings.n_bins)]


def learnability(settings: CurriculumSettings, estimate: Estimate) -> float:
    """p (1 - p), p rounded to the middle of its cell."""
    rate = posterior(settings, estimate).mean
    if not estimate.count and estimate.prior is not None:
        width = settings.reward_max - settings.reward_min
        cell = min(31, max(0, math.floor((estimate.prior - settings.reward_min) / width * 32)))
        rate = posterior(settings, Estimate(prior=settings.reward_min + width * (cell + 0.5) / 32)).mean
    elif estimate.count:
        rate = (math.floor(rate * 128) + 0.5) / 128
    return rate * (1 - rate)


def kinds_of(population: Population, progress: float) -> list[list[float]]:
    """The distributions whose mixture a strategy draws from; each sums to its share."""
    if population.settings.strategy == "plr":
        return replay(population)
    return [distribution_of(population, progress)]


def next_free(kinds: list[list[float]], busy: set[int], gone: frozenset[tuple[int, int]]) -> list[float]:
    """Return the distribution of the first item drawn that is not busy: a kind, then a place not drawn before.

    ``gone`` are the places drawn before: kind and item.
    """
    left = [[0.0 if (kind, i) in gone else p for i, p in enumerate(own)] for kind, own in enumerate(kinds)]
    open_shares = sum(sum(own) for own, rest in zip(kinds, left, strict=True) if sum(rest))
    found = [0.0] * len(kinds[0])
    for kind, (own, rest) in enumerate(zip(kinds, left, strict=True)):
        for item, probability in enumerate(rest):
            if not probability:
                continue
            chance = sum(own) / open_shares * probability / sum(rest)
            if item in busy:
                behind = next_free(kinds, busy, gone | {(kind, item)})
                found = [each + chance * later for each, later in zip(found, behind, strict=True)]
            else:
                found[item] += chance
    return found


def replay(population: Population) -> list[list[float]]:
    """By score, by staleness, unseen; exact up to 14 samples."""
    settings, items = population.settings, population.estimates
    seen = [item for item, each in enumerate(items) if each.count]
    new = (settings.unseen_share if seen else 1.0) if len(seen) < len(items) else 0.0
    best_first = population.standing(ItemIndex.SIGNAL)[::-1].tolist()
    steepness = 1 / (settings.score_temperature * settings.temperature)
    scores = normal([(1 + best_first.index(item)) ** -steepness for item in seen])
    ages = [population.header.samples + 1 - items[item].drawn for item in seen]
    stale = normal([age ** (1 / settings.temperature) for age in ages])
    rho = settings.staleness_share
    by_score, by_age = [0.0] * len(items), [0.0] * len(items)
    unseen = [0.0 if each.count else new / max(1, len(items) - len(seen)) for each in items]
    for item, score, age in zip(seen, scores, stale, strict=True):
        by_score[item] = (1 - new) * (1 - rho) * score
        by_age[item] = (1 - new) * rho * age
    return [by_score, by_age, unseen]


def pool(settings: CurriculumSettings, estimate: Estimate) -> int:
    """0 hard, 1 normal, 2 easy."""
    mean = estimate.last if estimate.count else estimate.prior
    if mean is None:
        return 1
    return 0 if mean <= settings.hard_threshold else 2 if mean >= settings.easy_threshold else 1
