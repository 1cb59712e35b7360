"""The curricula of a run, as they are set up, changed and looked at under ``/v1/runs/{run}/curricula``."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from lachesis.wire.body import MAX_INTEGER, Body, Change
from lachesis.wire.runs import YEAR_S

CURRICULUM_NAME = r"[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}"
JSON_LINES = "application/jsonl"
"""Media type of a curriculum's state: a header, a line for each item, and a last line."""

_Share = Annotated[float, Field(ge=0, le=1)]
_Alpha = Annotated[float, Field(gt=0, le=1)]
_Reward = Annotated[float, Field(ge=-1e6, le=1e6)]
_Weight = Annotated[float, Field(ge=0, le=1e9)]

StrategyName = Literal[
    "uniform", "easy_first", "competence_based", "learnability", "thompson", "plr", "difficulty_pools", "bandit"
]
Strategy = Annotated[StrategyName, Field(description="How the next items are chosen (docs/how-to/curriculum.md).")]
NBins = Annotated[int, Field(ge=1, le=100, description="Quantile bins of mean reward, bin 0 the easiest.")]
Temperature = Annotated[
    float,
    Field(
        ge=1e-6,
        le=1e6,
        description="Log-probabilities are divided by it: lower is sharper. Usual is 1, for `bandit` 0.1; a switch of "
        "strategy leaves it as it is.",
    ),
]
EmaAlpha = Annotated[_Alpha, Field(description="How much a group's mean reward counts in its item's mean reward.")]
CompetenceThreshold = Annotated[
    _Reward, Field(description="`competence_based`, `frontier`: mean reward from which an item counts as mastered.")
]
TotalSteps = Annotated[
    int | None,
    Field(
        ge=1,
        le=MAX_INTEGER,
        description="Trainer steps at which progress is 1, where a request does not say. `easy_first` and "
        "`competence_based`, `cdf`, need it.",
    ),
]
InFlightTtl = Annotated[
    float,
    Field(
        ge=0, le=YEAR_S, description="How long an item handed out waits for its score before others get it, seconds."
    ),
]
RewardMin = Annotated[_Reward, Field(description="The reward that counts as a failure, for posteriors.")]
RewardMax = Annotated[_Reward, Field(description="The reward that counts as a success; above `reward_min`.")]
Forgetting = Annotated[
    float, Field(ge=0, lt=1, description="Share of a posterior's evidence that each further group makes obsolete.")
]
PriorWeight = Annotated[_Weight, Field(description="Rewards that a prior counts as while its item is not seen.")]
Seed = Annotated[int, Field(ge=0, le=MAX_INTEGER, description="Of the generator that draws.")]
CompetenceForm = Annotated[
    Literal["cdf", "frontier"],
    Field(description="`competence_based`: the easiest share of items, growing; or bins around the frontier."),
]
InitialCompetence = Annotated[_Share, Field(description="`cdf`: the share of items to begin with.")]
FrontierWidth = Annotated[
    float, Field(ge=1e-6, le=1e6, description="`frontier`: standard deviation of the Gaussian, bins.")
]
TargetPassRate = Annotated[_Share, Field(description="`thompson`: items whose drawn pass rate is nearest come first.")]
Candidates = Annotated[
    int, Field(ge=1, le=4096, description="`thompson`: items compared at most, unless more are asked.")
]
ScoreTemperature = Annotated[
    float, Field(ge=0.01, le=1e6, description="`plr`: beta; an item's share is its rank to the power -1 / beta.")
]
StalenessShare = Annotated[_Share, Field(description="`plr`: rho, the share drawn by how long ago it was drawn.")]
UnseenShare = Annotated[_Share, Field(description="`plr`: probability of an unseen item while there are any.")]
HardThreshold = Annotated[
    _Reward, Field(description="`difficulty_pools`: items are hard whose last group's mean was no higher.")
]
EasyThreshold = Annotated[
    _Reward, Field(description="`difficulty_pools`: items are easy whose last group's mean was no lower.")
]
PoolWeight = Annotated[_Weight, Field(description="`difficulty_pools`: how likely this pool is, beside the others.")]
ArmsOf = Annotated[Literal["bins", "categories"], Field(description="`bandit`: what its arms are.")]
ArmAlpha = Annotated[_Alpha, Field(description="`bandit`: how much an observation counts in its arm's value.")]


class CurriculumSettings(Body):
    """How a curriculum estimates its items and chooses among them (`PUT …/curricula/{curriculum}`).

    Every strategy's parameters are there at all times, so that one can switch, and switch back.
    """

    model_config = ConfigDict(json_schema_extra={"examples": [{"strategy": "learnability", "n_bins": 10}]})

    strategy: Strategy = "uniform"
    n_bins: NBins = 5
    temperature: Temperature = 1.0
    ema_alpha: EmaAlpha = 0.3
    competence_threshold: CompetenceThreshold = 0.5
    total_steps: TotalSteps = None
    in_flight_ttl_s: InFlightTtl = 600.0
    reward_min: RewardMin = 0.0
    reward_max: RewardMax = 1.0
    forgetting: Forgetting = 0.1
    prior_weight: PriorWeight = 8.0
    seed: Seed = 0
    form: CompetenceForm = "cdf"
    initial_competence: InitialCompetence = 0.01
    frontier_width: FrontierWidth = 1.0
    target_pass_rate: TargetPassRate = 0.5
    candidates: Candidates = 1024
    score_temperature: ScoreTemperature = 0.1
    staleness_share: StalenessShare = 0.1
    unseen_share: UnseenShare = 0.5
    hard_threshold: HardThreshold = 0.2
    easy_threshold: EasyThreshold = 0.8
    hard_weight: PoolWeight = 0.2
    normal_weight: PoolWeight = 0.6
    easy_weight: PoolWeight = 0.2
    arms: ArmsOf = "bins"
    arm_alpha: ArmAlpha = 0.5


class CurriculumChange(CurriculumSettings, Change):
    """Changes to a curriculum while it goes on (`PATCH …/curricula/{curriculum}`): only what is named changes.

    Estimates stay, whatever changes.
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
        description="By name, for loggers as they are.", examples=[{"curriculum/items_tracked": 1000.0}]
    )


class StateLoaded(BaseModel):
    """What was restored from a document (`PUT …/curricula/{curriculum}/state`)."""

    items: int = Field(description="Items in it.")
    items_seen: int = Field(description="Those that were observed at least once.")


ItemMetadata = Annotated[
    dict[str, Any] | None, Field(description="Anything, up to 4096 bytes of JSON; kept, and handed out with the item.")
]
