"""Items of a curriculum: registered, observed, sampled, looked at."""

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, SkipValidation

from lachesis.wire.body import MAX_INTEGER, Body, Change
from lachesis.wire.curricula import MAX_CATEGORY, CurriculumSettings, ItemMetadata, Strategy
from lachesis.wire.states import Missing

MAX_KEY = 512
"""Characters of an item's key."""
MAX_METADATA_BYTES = 4096
MAX_ITEMS = 250_000
"""Maximum number of items in one request."""
MAX_OBSERVATIONS = 10_000
"""Most observations in one request."""
MAX_REWARDS = 65_536
"""Most rewards of one observation."""
MAX_SAMPLE = 4096
"""Maximum number of items in one sample."""


def _has_an_address(key: str) -> str:
    if key in (".", ".."):
        raise ValueError("is `.` or `..`, which HTTP clients remove from the path of the item")
    return key


ItemKey = Annotated[
    str, Field(min_length=1, max_length=MAX_KEY, description="An item: a dataset entry, a task.", examples=["gsm8k/17"])
]
NewItemKey = Annotated[
    ItemKey,
    AfterValidator(_has_an_address),
    Field(description="An item: a dataset entry, a task. Not `.` and not `..`."),
]
Category = Annotated[
    str | None,
    Field(min_length=1, max_length=MAX_CATEGORY, description="An arm of the bandit. Null means no category."),
]
Reward = Annotated[float, Field(ge=-1e6, le=1e6)]
Prior = Annotated[
    Reward | None,
    Field(description="Expected mean reward. It counts until the first observation. Null means no prior."),
]


class NewItem(Body):
    """An item to register. If the item exists, fields that are null or left out stay as they are."""

    key: NewItemKey
    category: Category = None
    prior: Prior = None
    metadata: ItemMetadata = None


def _from_key(item: Any) -> Any:
    return {"key": item} if isinstance(item, str) else item


class NewItems(Body):
    """Items to register (`POST …/items`): keys alone, or keys with more fields. Estimates of known items stay."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"items": [{"key": "gsm8k/17", "prior": 0.4, "category": "algebra"}]}]}
    )

    items: list[Annotated[NewItem, BeforeValidator(_from_key, json_schema_input_type=str | NewItem)]] = Field(
        min_length=1, max_length=MAX_ITEMS, description="The items."
    )


class ItemsRegistered(BaseModel):
    """What `POST …/items` did."""

    registered: int = Field(description="Items that are new.")
    known: int = Field(description="Items that were registered before.")


class ItemChange(Change):
    """Changes to an item (`PATCH …/items/{key}`). Fields that are left out stay. Null removes a value."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"category": "algebra"}]})

    category: Category = None
    prior: Prior = None
    metadata: ItemMetadata = None


class Item(BaseModel):
    """An item and what is known of it."""

    key: str = Field(description="Its key.")
    bin: int = Field(
        description="Its bin. Bin 0 is the easiest. An item without observations and prior is in the middle bin."
    )
    mean_reward: float | None = Field(
        description="Moving average of its groups' mean rewards, or its prior. High means easy. Null means neither."
    )
    count: int = Field(description="Observations so far.")
    pass_rate: float = Field(description="Mean of the posterior of its pass rate.")
    passed: float = Field(description="Weight of its passes. Older passes weigh less.")
    failed: float = Field(description="Weight of its failures. Older failures weigh less.")
    signal: float = Field(description="Mean |reward - mean| of its last group.")
    prior: float | None = Field(description="The mean reward it was registered with.")
    category: str | None = Field(description="Its category.")
    metadata: dict[str, Any] | None = Field(description="As registered.")


class ItemDetails(Item):
    """An item with its history (`GET …/items/{key}`)."""

    history: list[float] = Field(description="Mean rewards of its last groups, at most 50, oldest first.")
    drawn: int = Field(
        description="Number of the last sample that handed it out, counted from 1 in each curriculum. 0: none did, "
        "or the item has no observation yet, or its first one came after its time in flight."
    )
    in_flight_s: float = Field(description="Seconds until other requests may get the item. 0 means now.")


class Items(BaseModel):
    """A page of items (`GET …/items`)."""

    items: list[Item]
    cursor: str | None = Field(description="Send this value as `cursor` to get the next page. Null on the last page.")


class Observation(Body):
    """The rewards of one group of sequences that tried an item."""

    item: ItemKey
    rewards: list[Reward] = Field(min_length=1, max_length=MAX_REWARDS, description="One for each sequence.")


class Observations(Body):
    """Observations (`POST …/observations`), counted in this order. Items not there yet are registered."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"observations": [{"item": "gsm8k/17", "rewards": [1.0, 0.0, 1.0, 1.0]}]}]}
    )

    observations: list[Observation] = Field(min_length=1, max_length=MAX_OBSERVATIONS)
    request_id: str | None = Field(
        default=None,
        min_length=1,
        max_length=128,
        description="An id of this request. A repetition counts its observations once.",
    )


class ObservedItem(BaseModel):
    """An item after the observations of a request."""

    item: str = Field(description="Its key.")
    bin: int = Field(description="Its bin.")
    mean_reward: float = Field(description="Moving average of its groups' mean rewards.")
    count: int = Field(description="Observations so far.")


class Observed(BaseModel):
    """The items of a request after its observations, in its order."""

    observed: list[ObservedItem]


class SampleItems(Body):
    """A sample (`POST …/samples`)."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"n": 64, "step": 100, "total_steps": 1000}]})

    n: int = Field(ge=1, le=MAX_SAMPLE, description="Number of items or bins.")
    step: int | None = Field(
        default=None, ge=0, le=MAX_INTEGER, description="Trainer steps so far. Null means the run's step."
    )
    total_steps: int | None = Field(
        default=None,
        ge=1,
        le=MAX_INTEGER,
        description="Trainer steps at which progress is 1. Null means the curriculum's setting.",
    )
    seed: int | None = Field(
        default=None,
        ge=0,
        le=MAX_INTEGER,
        description="Seed of this sample. Then the curriculum's generator does not advance.",
    )
    bins_only: bool = Field(default=False, description="Whether to return numbers of bins instead of items.")
    strategy: Strategy | None = Field(
        default=None, description="Strategy of this sample. Null means the curriculum's setting."
    )
    request_id: str | None = Field(
        default=None,
        min_length=1,
        max_length=128,
        description="An id of this request. A repetition gets the same items while they are in flight.",
    )


class SampledItem(BaseModel):
    """An item that was handed out."""

    key: str = Field(description="Its key.")
    bin: int = Field(description="Its bin.")
    probability: float | None = Field(
        description="Probability that one draw from all items gives this item. Null for `thompson`."
    )
    why: str = Field(description="Why the item was chosen.")
    metadata: dict[str, Any] | None = Field(default=None, description="As registered.")


class SampledItems(BaseModel):
    """A sample; it may have fewer items than were asked for."""

    strategy: str = Field(description="The strategy that chose the items.")
    sample: str | None = Field(
        default=None, description="Id of the sample, for the release of items. Null with `bins_only`."
    )
    items: list[SampledItem] = Field(default=[], description="In the order drawn, without duplicates.")
    bins: list[int] = Field(default=[], description="With `bins_only`: numbers of bins, drawn one by one.")
    in_flight: int = Field(description="Items handed out and not observed yet, including these items.")
    in_flight_ttl_s: float = Field(
        description="Seconds until other requests may get these items, if they are not observed before."
    )
    missing: SkipValidation[Missing | None] = Field(  # a newer service may have further reasons
        description="Why a sample has fewer items than were asked for. `no_items`: the curriculum has no items. "
        "`in_flight`: all others that the strategy would draw are in flight. `not_drawn`: the strategy would draw no "
        "others. Null if a repeated request gets the items that it still holds."
    )
    retry_after_s: float | None = Field(description="With `missing`: seconds until the first item in flight is free.")


class ReleaseItems(Body):
    """Items to release, because they will not be tried (`POST …/samples/{sample}/release`)."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"items": ["gsm8k/17"]}]})

    items: list[ItemKey] = Field(min_length=1, max_length=MAX_SAMPLE, description="Their keys.")


class ItemsReleased(BaseModel):
    """What `POST …/samples/{sample}/release` did."""

    released: int = Field(description="Number of items that were released.")


class WhatIf(CurriculumSettings, Change):
    """Settings that another curriculum with the same items and estimates would have (`POST …/what-if`)."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"strategy": "thompson", "n": 16}]})

    n: int = Field(default=16, ge=1, le=MAX_SAMPLE, description="Number of items to sample.")
    step: int | None = Field(
        default=None, ge=0, le=MAX_INTEGER, description="Trainer steps so far. Null means the run's step."
    )


class Alternative(BaseModel):
    """The draws that a strategy would make now."""

    strategy: str = Field(description="Its name.")
    bins: list[float] = Field(
        description="Each bin's probability in the next draw, the easiest bin first. It is estimated from 512 items if "
        "it does not follow from mean reward alone."
    )
    entropy: float = Field(description="Entropy of these probabilities, divided by its maximum: 0 to 1.")
    items: list[SampledItem] = Field(description="What it would sample now, if nothing were in flight.")


class Comparison(BaseModel):
    """Two strategies side by side. Nothing was changed or handed out."""

    current: Alternative = Field(description="The curriculum with its present settings.")
    alternative: Alternative = Field(description="The curriculum with the settings in the request.")
    difference: float = Field(
        description="Half the sum over bins of the absolute differences. 0 means equal, 1 means disjoint."
    )
