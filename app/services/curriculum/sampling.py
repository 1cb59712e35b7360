"""Sample from curricula: choose the items to try next."""

import asyncio
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from app.core.curriculum import checks, sampling
from app.core.curriculum.bins import bin_at, bin_distribution, in_other_indexes, middle
from app.core.curriculum.indexes import ItemCounts, ItemDraw, ItemIndex, MixtureComponent
from app.core.curriculum.strategies import table, thompson
from app.services.curriculum.curricula import again_if_replaced, counted, counts_at, gone
from app.services.threads import MANY_PLACES, in_thread_if
from app.store.curriculum.entries import StoredItem
from app.store.curriculum.items import ItemStore, Place, SampleId, TakenItems
from app.store.curriculum.store import Census, CurriculumStore, CurriculumView
from lachesis.wire.curricula import CurriculumSettings, CurriculumStrategy
from lachesis.wire.states import Missing

_LOOKED_UP = 512
"""Items looked up to estimate bin probabilities where there is no formula; candidates of `thompson`."""

_AGAIN = "handed out before, to the same request"


@dataclass(frozen=True, slots=True)
class CurriculumSampleRequest:
    """A request for a sample.

    Attributes:
        n: Number of items, or of bins.
        step: Trainer steps so far; None for the run's.
        total_steps: Steps at which progress is 1; None for the curriculum's.
        seed: Random seed for this sample only; None to use the curriculum's generator.
        strategy: Strategy for this sample only; None for the curriculum's.
        request_id: The id of the request. The same id gets the same items again while they are in flight.
    """

    n: int
    step: int | None = None
    total_steps: int | None = None
    seed: int | None = None
    strategy: CurriculumStrategy | None = None
    request_id: str = ""


@dataclass(frozen=True, slots=True)
class DrawnItem:
    """An item of a sample. Its probability is that of the next draw; None if it is not computed."""

    item: StoredItem
    bin: int
    probability: float | None
    why: str


@dataclass(frozen=True, slots=True)
class CurriculumSample:
    """What was sampled: items, or bins.

    Attributes:
        strategy: The strategy that drew it.
        sample_id: The id of the sample that holds the items.
        repeated: Whether the request got the same items before.
        items: The items in the order drawn; fewer than requested if no more are available.
        bins: The bins in the order drawn.
        in_flight: Number of items in flight now.
        free_s: Seconds until the first item in flight is free. None means that no item is in flight.
        in_flight_ttl_s: How long other samples do not get these items, seconds.
        missing: Why there are fewer items than requested. None if there are enough, or if ``repeated``: then the other
            items are no longer held.
    """

    strategy: CurriculumStrategy
    sample_id: str = ""
    repeated: bool = False
    items: tuple[DrawnItem, ...] = ()
    bins: tuple[int, ...] = ()
    in_flight: int = 0
    free_s: float | None = None
    in_flight_ttl_s: float = 0.0
    missing: Missing | None = None


@dataclass(frozen=True, slots=True)
class SamplingDistribution:
    """The present distribution of a strategy, and the state of the generator that draws from it."""

    settings: CurriculumSettings
    census: Census
    counts: ItemCounts
    parts: tuple[MixtureComponent, ...]
    probabilities: sampling.ItemProbabilities
    seed: int
    counter: int

    @property
    def indexes(self) -> tuple[ItemIndex, ...]:
        """Return the indexes to look ranks up in. The first is by mean reward, which gives the bin."""
        return tuple(dict.fromkeys((ItemIndex.MEAN_REWARD, *(part.index for part in self.parts))))

    async def places(self, wanted: int, counter: int) -> tuple[list[ItemDraw], list[Place]]:
        """Draw places without repetition."""
        places = sum(part.size for part in self.parts)
        draws = await in_thread_if(places > MANY_PLACES, sampling.choose, self.parts, wanted, self.seed, counter)
        return draws, self.named(draws)

    def named(self, draws: Sequence[ItemDraw]) -> list[Place]:
        """Return the places where draws are looked up."""
        numbers = self.census.numbers
        return [Place(draw.component.index, draw.rank, numbers.get(draw.component.category or "", 0)) for draw in draws]

    def missing(self, in_flight: int) -> Missing:
        """Return why no more items can be drawn while this many are in flight."""
        if not self.counts.items:
            return "no_items"
        return "in_flight" if self.parts and in_flight else "not_drawn"

    def drawn_item(self, item: StoredItem, why: str, n_bins: int) -> DrawnItem:
        """Return an item with its bin and its probability."""
        ranks = {index: rank for index, rank in zip(self.indexes, item.ranks, strict=True) if rank >= 0}
        probability = None
        if not table.draws_candidates(self.settings):
            probability = self.probabilities.of(ranks, self.census.named.get(item.category, ""))
        return DrawnItem(item, self.bin_of(item, n_bins), probability, why)

    def bin_of(self, item: StoredItem, n_bins: int) -> int:
        """Return the bin of an item that was looked up in `indexes`."""
        return bin_at(item.ranks[0], self.counts.length(ItemIndex.MEAN_REWARD), n_bins)


class CurriculumSamples:
    """Hands out items."""

    def __init__(self, store: CurriculumStore, items: ItemStore) -> None:
        self._store = store
        self._items = items

    @again_if_replaced
    async def sample(self, run: str, name: str, request: CurriculumSampleRequest) -> CurriculumSample:
        """Hand out items that are not in flight. The strategy's distribution is restricted to these.

        A repeated request gets the items that it got before and still holds. Their bins and probabilities are as of
        now.

        Raises:
            CurriculumNotFound: The run has none of this name.
            InvalidField: The strategy needs ``total_steps``, and neither the request nor the curriculum has it.
        """
        view = await self._store.existing(run, name)
        distribution = await self._distribution(view, request)
        found: dict[str, DrawnItem] = {}
        taken = TakenItems(False, uuid.uuid4().hex, distribution.census.in_flight, 0, ())
        number = distribution.census.counts.samples + 1
        for attempt in range(sampling.ATTEMPTS):
            wanted = request.n - len(found)
            # A repeated request gets what it holds, even if the strategy would draw nothing now.
            if not wanted or not (distribution.parts or (request.request_id and not attempt)):
                break
            own = SampleId(number, taken.sample, attempt)
            taken, items = await self._take(view, distribution, own, wanted, taken.in_flight, request.request_id)
            if taken.repeated:
                found = {sampled.item.key: sampled for sampled in items}
                break
            for sampled in items:
                found.setdefault(sampled.item.key, sampled)
        is_complete = len(found) == request.n or (taken.repeated and found)
        return CurriculumSample(
            distribution.settings.strategy,
            taken.sample,
            taken.repeated,
            tuple(found.values()),
            in_flight=taken.in_flight,
            free_s=taken.free_ms / 1000 if taken.free_ms else None,
            in_flight_ttl_s=view.settings.in_flight_ttl_s,
            missing=None if is_complete else distribution.missing(taken.in_flight),
        )

    async def release(self, run: str, name: str, sample_id: str, keys: Sequence[str]) -> int:
        """Release items of a sample that will not be tried; return how many the sample still held.

        Raises:
            CurriculumNotFound: The run has none of this name.
        """
        return await self._items.release(await self._store.existing(run, name), sample_id, keys)

    @again_if_replaced
    async def bins(self, run: str, name: str, request: CurriculumSampleRequest) -> CurriculumSample:
        """Draw bins one by one, each with the probability that the strategy's next item is in it. Hand out no items.

        Raises:
            As `sample`.
        """
        view = await self._store.existing(run, name)
        distribution = await self._distribution(view, request)
        if distribution.parts and table.draws_candidates(distribution.settings):
            probabilities = np.array(await self.bins_of(view, distribution))
            random = sampling.generator(distribution.seed, distribution.counter)
            drawn = random.choice(len(probabilities), request.n, p=probabilities / probabilities.sum()).tolist()
        else:
            drawn = await self._draw_bins(view, distribution, distribution.parts, request.n)
        return CurriculumSample(
            distribution.settings.strategy,
            bins=tuple(drawn),
            in_flight=distribution.census.in_flight,
            in_flight_ttl_s=view.settings.in_flight_ttl_s,
            missing=None if drawn else distribution.missing(distribution.census.in_flight),
        )

    async def distribution_of(
        self,
        view: CurriculumView,
        settings: CurriculumSettings,
        step: int | None,
        total_steps: int | None,
        **claims: int,
    ) -> SamplingDistribution:
        """Return the distribution of a strategy over a curriculum's items as they are now.

        Raises:
            CurriculumNotFound: It was removed in the meantime.
            InvalidField: The strategy needs ``total_steps``, and neither the request nor the curriculum has it.
        """
        progress = checks.progress(settings, view.step if step is None else step, total_steps)
        census = await counted(self._store, view, settings, **claims)
        counts = counts_at(view, census)
        parts = table.parts(settings, counts, progress)
        return SamplingDistribution(
            settings, census, counts, parts, sampling.ItemProbabilities(parts), settings.seed, census.counter
        )

    async def bins_of(self, view: CurriculumView, distribution: SamplingDistribution) -> list[float]:
        """Return the probability of each bin in the next draw; all 0 if there is nothing to draw."""
        n_bins = view.settings.n_bins
        if not distribution.parts:
            return [0.0] * n_bins
        if table.draws_candidates(distribution.settings):
            return await self._bins_of_the_best(view, distribution)
        others = in_other_indexes(distribution.parts)
        if not others:
            return bin_distribution(distribution.parts, distribution.counts, n_bins)
        looked_up = await self._draw_bins(view, distribution, others, _LOOKED_UP)
        return bin_distribution(distribution.parts, distribution.counts, n_bins, looked_up or [middle(n_bins)])

    async def best(self, view: CurriculumView, distribution: SamplingDistribution, wanted: int) -> list[StoredItem]:
        """Return the candidates of `thompson`, those in flight among them, the best first."""
        keys = await self._best_keys(view, distribution, wanted, distribution.counter, idle_only=False)
        return [item for item in await self._items.look(view, keys, distribution.indexes) if item is not None]

    async def _best_keys(
        self, view: CurriculumView, distribution: SamplingDistribution, wanted: int, counter: int, *, idle_only: bool
    ) -> list[str]:
        settings, seed = distribution.settings, distribution.seed
        most = thompson.candidates_for(settings, wanted)
        ranges = thompson.candidate_ranges(most, distribution.counts.items, seed, counter)
        keys, evidence = await self._items.candidates(view, ranges, idle_only=idle_only)
        return [keys[n] for n in thompson.best(settings, evidence, seed, counter)]

    async def _distribution(self, view: CurriculumView, request: CurriculumSampleRequest) -> SamplingDistribution:
        settings = view.settings
        if request.strategy is not None:
            settings = settings.model_copy(update={"strategy": request.strategy})
        draws = 0 if request.seed is not None else sampling.ATTEMPTS
        distribution = await self.distribution_of(
            view, settings, request.step, request.total_steps, draws=draws, samples=1
        )
        return distribution if request.seed is None else replace(distribution, seed=request.seed, counter=0)

    async def _take(
        self,
        view: CurriculumView,
        distribution: SamplingDistribution,
        own: SampleId,
        wanted: int,
        in_flight: int,
        request_id: str,
    ) -> tuple[TakenItems, list[DrawnItem]]:
        counter = distribution.counter + own.attempt
        more = sampling.draws_for(wanted, distribution.counts.items, in_flight, own.attempt)
        places: Sequence[Place] | Sequence[str]
        if distribution.parts and table.draws_candidates(distribution.settings):
            best = await self._best_keys(view, distribution, max(wanted, more), counter, idle_only=True)
            places = best[:more] if own.attempt == 0 else best  # other samples rarely took many of them since
            whys = [distribution.parts[0].why] * len(places)
        else:
            draws, places = await distribution.places(more, counter)
            whys = [draw.component.why for draw in draws]
        taken = await self._items.take(view, own, wanted, places, distribution.indexes, request_id)
        if taken is None:
            raise gone(view)
        return taken, [
            distribution.drawn_item(item, _AGAIN if taken.repeated or place < 0 else whys[place], view.settings.n_bins)
            for place, item in taken.items
        ]

    async def _draw_bins(
        self, view: CurriculumView, distribution: SamplingDistribution, parts: Sequence[MixtureComponent], n: int
    ) -> list[int]:
        """Draw items with repetition, and return their bins."""
        draws = sampling.independent(parts, n, distribution.seed, distribution.counter)
        found = await self._items.look(view, distribution.named(draws))
        return [distribution.bin_of(item, view.settings.n_bins) for item in found if item is not None]

    async def _bins_of_the_best(self, view: CurriculumView, distribution: SamplingDistribution) -> list[float]:
        most = min(distribution.settings.candidates, _LOOKED_UP)
        few = replace(distribution, settings=distribution.settings.model_copy(update={"candidates": most}))
        candidates = await self.best(view, few, 1)
        probabilities = await asyncio.to_thread(
            thompson.best_probabilities, distribution.settings, [item.estimate for item in candidates]
        )
        n_bins = view.settings.n_bins
        found = [0.0] * n_bins
        for item, probability in zip(candidates, probabilities, strict=True):
            found[distribution.bin_of(item, n_bins)] += probability
        return found
