"""The curricula of a run, as they are set up, changed and looked at under ``/v1/runs/{run}/curricula``."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from lachesis.wire.body import MAX_INTEGER, Body, Change
from lachesis.wire.runs import YEAR_S

CURRICULUM_NAME = r"[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}"
JSON_LINES = "application/jsonl"
"""Media type of a curriculum's state: a header, a line for each item, and a last line."""

MAX_REWARD = 1e6
"""Maximum magnitude of a reward, prior or threshold: the store counts the mean reward of all items in 64 bits."""

MAX_BINS = 100
"""Most bins of a curriculum."""

MAX_CATEGORY = 128
"""Characters of a category."""

MAX_CATEGORIES = 1000
"""Most categories of a curriculum."""

REWARD_TENTHS = 10
"""Ranges of mean reward in which items are counted."""

_Share = Annotated[float, Field(ge=0, le=1)]
_Reward = Annotated[float, Field(ge=-MAX_REWARD, le=MAX_REWARD)]
_Weight = Annotated[float, Field(ge=0, le=1e9)]

CurriculumStrategy = Literal[
    "uniform", "easy_first", "competence_based", "learnability", "thompson", "plr", "difficulty_pools", "bandit"
]
ItemSorting = Literal["mean_reward", "posterior", "signal", "last", "drawn"]
Form = Literal["cdf", "frontier"]
Arms = Literal["bins", "categories"]
Strategy = Annotated[
    CurriculumStrategy, Field(description="How the next items are chosen (docs/how-to/curriculum.md).")
]


class CurriculumSettings(Body):
    """How a curriculum estimates its items and chooses among them (`PUT …/curricula/{curriculum}`).

    A curriculum keeps the parameters of all strategies, so that you can switch the strategy, and switch back.
    """

    # The one definition of these settings, for the service, the SDK and the documents. The names and defaults of the
    # first six are those of Atropos's CurriculumScheduler.

    model_config = ConfigDict(json_schema_extra={"examples": [{"strategy": "learnability", "n_bins": 10}]})

    strategy: Strategy = "uniform"
    n_bins: int = Field(
        default=5, ge=1, le=MAX_BINS, description="Number of quantile bins of mean reward. Bin 0 has the easiest items."
    )
    temperature: float = Field(
        default=1.0,
        ge=1e-6,
        le=1e6,
        description="Divisor of log-probabilities. A lower temperature makes the distribution sharper. The usual value "
        "is 1, and 0.1 for `bandit`. A switch of the strategy keeps the temperature.",
    )
    ema_alpha: float = Field(
        default=0.3, gt=0, le=1, description="Weight of a group's mean reward in the moving average of its item."
    )
    competence_threshold: _Reward = Field(
        default=0.5, description="`competence_based`, `frontier`: minimum mean reward of a mastered item."
    )
    total_steps: int | None = Field(
        default=None,
        ge=1,
        le=MAX_INTEGER,
        description="Number of trainer steps at which progress is 1, for requests that do not name a number. "
        "`easy_first` and `competence_based` with `cdf` need this number.",
    )
    in_flight_ttl_s: float = Field(
        default=600.0,
        ge=0,
        le=YEAR_S,
        description="Time that an item stays in flight without an observation, seconds. Then the curriculum may hand "
        "it out again.",
    )
    reward_min: _Reward = Field(default=0.0, description="Reward that counts as a failure, for posteriors.")
    reward_max: _Reward = Field(
        default=1.0, description="Reward that counts as a success, for posteriors. It is above `reward_min`."
    )
    forgetting: float = Field(
        default=0.1,
        ge=0,
        lt=1,
        description="Share of the earlier evidence of a posterior that each further group removes.",
    )
    prior_weight: _Weight = Field(
        default=8.0,
        description="Number of rewards that a prior counts as. The first observation of the item replaces the prior.",
    )
    seed: int = Field(default=0, ge=0, le=MAX_INTEGER, description="Seed of the generator that draws items.")
    form: Form = Field(
        default="cdf",
        description="`competence_based`: `cdf` draws from a growing share of the easiest items. `frontier` draws from "
        "the bins around the easiest item that is not mastered.",
    )
    initial_competence: _Share = Field(default=0.01, description="`cdf`: the share of items at the beginning.")
    frontier_width: float = Field(
        default=1.0, ge=1e-6, le=1e6, description="`frontier`: standard deviation of the Gaussian, bins."
    )
    target_pass_rate: _Share = Field(
        default=0.5, description="`thompson`: the strategy prefers items whose drawn pass rate is nearest to this rate."
    )
    candidates: int = Field(
        default=1024,
        ge=1,
        le=4096,
        description="`thompson`: maximum number of items that a sample compares. A request for more items compares as "
        "many as it asks for.",
    )
    score_temperature: float = Field(
        default=0.1,
        ge=0.01,
        le=1e6,
        description="`plr`: beta. Probability by score is in proportion to `rank ** (-1 / beta)`, where rank 1 has the "
        "highest score.",
    )
    staleness_share: _Share = Field(
        default=0.1,
        description="`plr`: rho. Share of the draws of seen items that goes by the number of samples since an item was "
        "last handed out. The other draws go by score.",
    )
    unseen_share: _Share = Field(
        default=0.5, description="`plr`: probability of an unseen item, while unseen items exist."
    )
    hard_threshold: _Reward = Field(
        default=0.2, description="`difficulty_pools`: maximum mean reward of the last group of a hard item."
    )
    easy_threshold: _Reward = Field(
        default=0.8,
        description="`difficulty_pools`: minimum mean reward of the last group of an easy item. It is above "
        "`hard_threshold`.",
    )
    hard_weight: _Weight = Field(default=0.2, description="`difficulty_pools`: weight of the hard pool.")
    normal_weight: _Weight = Field(default=0.6, description="`difficulty_pools`: weight of the normal pool.")
    easy_weight: _Weight = Field(
        default=0.2, description="`difficulty_pools`: weight of the easy pool. At least one of the three is above 0."
    )
    arms: Arms = Field(default="bins", description="`bandit`: whether its arms are bins or categories.")
    arm_alpha: float = Field(
        default=0.5, gt=0, le=1, description="`bandit`: weight of an observation in the value of its arm."
    )


class CurriculumChange(CurriculumSettings, Change):
    """Changes to a curriculum (`PATCH …/curricula/{curriculum}`). Estimates and fields that are left out stay."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"strategy": "plr", "staleness_share": 0.3}]})


class CurriculumInfo(BaseModel):
    """A curriculum (`GET …/curricula/{curriculum}`)."""

    name: str = Field(description="Its name.")
    settings: CurriculumSettings = Field(description="Its settings.")
    items: int = Field(description="Items registered.")
    items_seen: int = Field(description="Items that were observed at least once.")
    in_flight: int = Field(description="Items handed out and not observed yet.")
    observations: int = Field(description="Observations so far.")
    samples: int = Field(description="Samples so far.")
    bins: list[int] = Field(description="Items in each bin, the easiest first.")
    reward_edges: list[float] = Field(
        default_factory=list,
        description="Bounds of the tenths of the range from `reward_min` to `reward_max`, in increasing order.",
    )
    items_by_reward: list[int] = Field(
        default_factory=list,
        description="Items by mean reward, or by prior until they are seen: one count for each tenth. The first and "
        "the last count also have all items beyond the range.",
    )
    items_unseen: int = Field(default=0, description="Items that were not observed yet and have no prior.")
    categories: dict[str, int] = Field(
        description="Items in each category. The empty string stands for items without a category."
    )


class Curricula(BaseModel):
    """All curricula of a run, by name."""

    curricula: list[CurriculumInfo]


class CurriculumMetrics(BaseModel):
    """A curriculum in numbers (`GET …/curricula/{curriculum}/metrics`)."""

    metrics: dict[str, float] = Field(
        description="Values by name, ready for a logger.", examples=[{"curriculum/items_tracked": 1000.0}]
    )


class StateLoaded(BaseModel):
    """What was restored from a document (`PUT …/curricula/{curriculum}/state`)."""

    items: int = Field(description="Items in the document.")
    items_seen: int = Field(description="Items that were observed at least once.")


ItemMetadata = Annotated[
    dict[str, Any] | None,
    Field(description="Any JSON of up to 4096 bytes. The curriculum keeps it, and hands it out with the item."),
]
