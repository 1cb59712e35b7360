"""The curricula of a run, as they are set up, changed and looked at under ``/v1/runs/{run}/curricula``."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from lachesis.wire.body import MAX_INTEGER, Body, Change
from lachesis.wire.runs import YEAR_S

CURRICULUM_NAME = r"[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}"
JSON_LINES = "application/jsonl"
"""Media type of a curriculum's state: a header, a line for each item, and a last line."""

_Share = Annotated[float, Field(ge=0, le=1)]
_Reward = Annotated[float, Field(ge=-1e6, le=1e6)]
_Weight = Annotated[float, Field(ge=0, le=1e9)]

StrategyName = Literal[
    "uniform", "easy_first", "competence_based", "learnability", "thompson", "plr", "difficulty_pools", "bandit"
]
Form = Literal["cdf", "frontier"]
Arms = Literal["bins", "categories"]
Strategy = Annotated[StrategyName, Field(description="How the next items are chosen (docs/how-to/curriculum.md).")]


class CurriculumSettings(Body):
    """How a curriculum estimates its items and chooses among them (`PUT …/curricula/{curriculum}`).

    The parameters of all strategies are there at all times, so that you can switch the strategy, and switch back.
    """

    # The one definition of these settings, for the service, the SDK and the documents. The names and defaults of the
    # first six are those of Atropos's CurriculumScheduler.

    model_config = ConfigDict(json_schema_extra={"examples": [{"strategy": "learnability", "n_bins": 10}]})

    strategy: Strategy = "uniform"
    n_bins: int = Field(default=5, ge=1, le=100, description="Quantile bins of mean reward; bin 0 is the easiest.")
    temperature: float = Field(
        default=1.0,
        ge=1e-6,
        le=1e6,
        description="Divides log-probabilities: lower is sharper. Usual is 1, for `bandit` 0.1. A switch of the "
        "strategy keeps it.",
    )
    ema_alpha: float = Field(
        default=0.3, gt=0, le=1, description="Weight of a group's mean reward in the mean reward of its item."
    )
    competence_threshold: _Reward = Field(
        default=0.5, description="`competence_based`, `frontier`: mean reward at which an item counts as mastered."
    )
    total_steps: int | None = Field(
        default=None,
        ge=1,
        le=MAX_INTEGER,
        description="Trainer steps at which progress is 1, if a request does not set them. `easy_first` and "
        "`competence_based` with `cdf` need it.",
    )
    in_flight_ttl_s: float = Field(
        default=600.0,
        ge=0,
        le=YEAR_S,
        description="How long an item that was handed out waits for its score, seconds. Then others can get it.",
    )
    reward_min: _Reward = Field(default=0.0, description="Reward that counts as a failure, for posteriors.")
    reward_max: _Reward = Field(
        default=1.0, description="Reward that counts as a success, for posteriors; above `reward_min`."
    )
    forgetting: float = Field(
        default=0.1, ge=0, lt=1, description="Share of a posterior's evidence that each further group replaces."
    )
    prior_weight: _Weight = Field(
        default=8.0, description="Rewards that a prior counts as, until the item has been seen."
    )
    seed: int = Field(default=0, ge=0, le=MAX_INTEGER, description="Seed of the generator that draws items.")
    form: Form = Field(
        default="cdf",
        description="`competence_based`: `cdf` draws from a growing share of the easiest items, `frontier` from the "
        "bins around the first one that is not mastered.",
    )
    initial_competence: _Share = Field(default=0.01, description="`cdf`: the share of items to begin with.")
    frontier_width: float = Field(
        default=1.0, ge=1e-6, le=1e6, description="`frontier`: standard deviation of the Gaussian, bins."
    )
    target_pass_rate: _Share = Field(
        default=0.5, description="`thompson`: items whose drawn pass rate is nearest to this come first."
    )
    candidates: int = Field(
        default=1024,
        ge=1,
        le=4096,
        description="`thompson`: most items that it compares; more if a request asks for more.",
    )
    score_temperature: float = Field(
        default=0.1, ge=0.01, le=1e6, description="`plr`: beta. An item's share is its rank to the power -1 / beta."
    )
    staleness_share: _Share = Field(
        default=0.1, description="`plr`: rho, the share that is drawn by the time since an item was last drawn."
    )
    unseen_share: _Share = Field(default=0.5, description="`plr`: probability of an unseen item while there are any.")
    hard_threshold: _Reward = Field(
        default=0.2, description="`difficulty_pools`: an item is hard if its last group's mean reward is at most this."
    )
    easy_threshold: _Reward = Field(
        default=0.8,
        description="`difficulty_pools`: an item is easy if its last group's mean reward is at least this. Above "
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
    """Changes to a curriculum (`PATCH …/curricula/{curriculum}`). Only the fields that it names change.

    Estimates stay.
    """

    model_config = ConfigDict(json_schema_extra={"examples": [{"strategy": "plr", "staleness_share": 0.3}]})


class CurriculumInfo(BaseModel):
    """A curriculum (`GET …/curricula/{curriculum}`)."""

    name: str = Field(description="Its name.")
    settings: CurriculumSettings = Field(description="Its settings.")
    items: int = Field(description="Items registered.")
    items_seen: int = Field(description="Those that were observed at least once.")
    in_flight: int = Field(description="Those handed out and not observed yet.")
    observations: int = Field(description="Observations so far.")
    samples: int = Field(description="Samples so far.")
    bins: list[int] = Field(description="Items in each bin, the easiest first.")
    categories: dict[str, int] = Field(description="Items in each category; the empty string: those without one.")


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

    items: int = Field(description="Items in it.")
    items_seen: int = Field(description="Those that were observed at least once.")


ItemMetadata = Annotated[
    dict[str, Any] | None, Field(description="Anything, up to 4096 bytes of JSON; kept, and handed out with the item.")
]
