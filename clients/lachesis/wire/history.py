"""Series of a run over time (`GET /v1/runs/{run}/history`)."""

from typing import Annotated, Literal

from pydantic import BaseModel, Field

Series = list[float | None]
"""One value for each span of time. Null means that nothing is known."""

HistoryValue = Literal["reward", "length", "staleness", "waiting"]
"""What histograms exist of."""

HistoryCount = Literal["groups", "sequences", "tokens"]
"""What shares of environments are counted in."""


class BlockedSeconds(BaseModel):
    """How long each cause kept the next batch from being trained on, seconds. One cause counts at a time."""

    waiting_for_data: Series = Field(description="Too few trainable sequences were queued.")
    minimum_short: Series = Field(description="An environment had too little for its minimum share.")
    no_exact_fit: Series = Field(description="Sizes of groups did not sum to a batch, or could not be divided.")
    trainer_holds_batch: Series = Field(description="A trainer held a batch.")
    starvation: Series = Field(description="Nothing trainable arrived.")
    paused: Series = Field(description="An operator had paused serving.")


CAUSES = tuple(BlockedSeconds.model_fields)
"""The causes. The service says them in sentences, with the descriptions of these fields."""


class CurriculumSeries(BaseModel):
    """How many items a curriculum had, as the last look in each span found them."""

    items_by_reward: list[Series] = Field(
        description="Items by mean reward, or by prior until they are seen. There is one series for each tenth of the "
        "range from `reward_min` to `reward_max`, the lowest first. The first and the last series also have all items "
        "beyond this range."
    )
    unseen: Series = Field(description="Items that were not observed yet and have no prior.")


class RunSeries(BaseModel):
    """Series of the run. Without `fields`, the answer has all of them."""

    groups_in: Series = Field(
        default=[], description="Accepted groups of all environments, including groups that were dropped on arrival."
    )
    sequences_in: Series = Field(default=[], description="Their sequences.")
    tokens_in: Series = Field(default=[], description="Their tokens.")
    bytes_in: Series = Field(default=[], description="Their payload, bytes.")
    groups_out: Series = Field(default=[], description="Groups in new batches, without those from the replay buffer.")
    sequences_out: Series = Field(default=[], description="Their sequences.")
    tokens_out: Series = Field(default=[], description="Their tokens.")
    bytes_out: Series = Field(default=[], description="Their payload, bytes.")

    queued_groups: Series = Field(default=[], description="Groups in the queue, mean.")
    queued_sequences: Series = Field(default=[], description="Sequences in the queue, mean.")
    step: Series = Field(default=[], description="The step.")
    policy_version: Series = Field(default=[], description="The policy version.")
    batches: Series = Field(default=[], description="New batches.")
    relaxed_batches: Series = Field(default=[], description="New batches with less than some minimum share.")
    dropped: dict[str, Series] = Field(default={}, description="Dropped groups, by reason.")
    blocked_s: BlockedSeconds | None = Field(
        default=None, description="What kept the next batch from being trained on."
    )
    blocked_sentence: list[str | None] = Field(
        default=[],
        description="`blocked_s` of each span as sentences, the longest first. Each may be followed by the last reason "
        "in the words of `explain`, up to 300 characters. Null if nothing is known.",
    )
    trainer_idle_share: Series = Field(
        default=[], description="Part of the time in which no trainer held a batch, from 0 to 1."
    )
    rank_imbalance: Series = Field(
        default=[], description="Imbalance of batches that were divided between ranks, mean."
    )
    replay_age_versions: Series = Field(
        default=[], description="Policy versions that sampled chunks were behind, mean."
    )
    replay_uses: Series = Field(default=[], description="Uses of the chunks that the replay buffer retired, mean.")
    curricula: dict[str, CurriculumSeries] = Field(
        default={}, description="Series of curricula, by name: of the first 8 by name."
    )


class Distribution(BaseModel):
    """A value of groups: the exact mean, and quantiles, which are usually within 2 %.

    A quantile is off by at most 1 % where values are near each other. It is off by at most 8 % where they spread over
    two powers of ten, 17 % over four, and 37 % over eight.
    """

    mean: Series = Field(description="The mean.")
    p10: Series = Field(description="A tenth of the values is below this one.")
    p50: Series = Field(description="The median.")
    p90: Series = Field(description="Nine tenths of the values are below this one.")


class EnvironmentSeries(BaseModel):
    """Series of an environment. Groups come in when they are accepted, and go out in new batches.

    Without `fields`, the answer has all of them.
    """

    groups_in: Series = Field(default=[], description="Accepted groups, including groups that were dropped on arrival.")
    sequences_in: Series = Field(default=[], description="Their sequences.")
    tokens_in: Series = Field(default=[], description="Their tokens.")
    bytes_in: Series = Field(default=[], description="Their payload, bytes.")
    groups_out: Series = Field(
        default=[],
        description="Groups in new batches, without those from the replay buffer. A group whose batch was given back "
        "counts again.",
    )
    sequences_out: Series = Field(default=[], description="Their sequences.")
    tokens_out: Series = Field(default=[], description="Their tokens.")
    bytes_out: Series = Field(default=[], description="Their payload, bytes.")
    reward_in: Distribution | None = Field(default=None, description="Mean reward of each group that came in.")
    reward_out: Distribution | None = Field(default=None, description="Mean reward of each group that went out.")
    length_in: Distribution | None = Field(
        default=None, description="Tokens in a sequence, mean of each group that came in."
    )
    length_out: Distribution | None = Field(default=None, description="The same of the groups that went out.")
    staleness_out: Distribution | None = Field(
        default=None,
        description="Policy versions between sampling and delivery, of the groups that went out and name a version.",
    )
    waiting_s: Distribution | None = Field(
        default=None, description="Seconds from arrival to delivery, of the groups that went out."
    )
    queued_groups: Series = Field(default=[], description="Groups in the queue, mean.")
    dropped: dict[str, Series] = Field(default={}, description="Dropped groups, by reason.")
    share_promised: Series = Field(default=[], description="Minimum share in each batch.")
    share_got: Series = Field(default=[], description="Share in the sequences of new batches.")
    owed_sequences: Series = Field(default=[], description="Sequences that relaxed batches owe the environment, mean.")


NextIn = Annotated[
    int,
    Field(
        description="In how many seconds the service next writes what it has counted, if somebody asks. Earlier "
        "requests get almost the same answer. 0: less than a second. Longer with more than 50 environments."
    ),
]


class _Spans(BaseModel):
    """A range of time, in spans of equal length."""

    from_s: int = Field(description="When the first span begins, seconds since 1970.")
    to_s: int = Field(description="When the last span ends.")
    step_s: int = Field(
        description="Length of a span, seconds: 10, 60 or 900. If asked for, or with many environments over a long "
        "time, also 3600, 21600 or 86400."
    )
    next_in_s: NextIn
    times_s: list[int] = Field(
        description="When each span begins, seconds since 1970. Empty if the range is in the future or ends before the "
        "last 30 days."
    )


class History(_Spans):
    """Series of a run and of its environments."""

    first_epoch: int = Field(
        description="Another number means another run of this name, or the same run after a reset: earlier answers are "
        "of what is gone. 0 until the run is configured."
    )
    run: RunSeries = Field(description="Series of the run.")
    environments: dict[str, EnvironmentSeries] = Field(
        description="Series of environments, by name: of the first 256 to register. If environments came and went in "
        'the range, of the 256 with the most sequences, in and out. The name `""` stands for all others, and for '
        "groups without an environment."
    )


class HistoryHistograms(_Spans):
    """How a value of groups was distributed over time, with the same bins at all times."""

    value: HistoryValue = Field(description="The value.")
    edges: list[float] = Field(
        description="Bounds of the bins, which cover almost all values. The first and the last bin also have all "
        "values beyond these bounds. Where values spread over a wide range, a bin may have some groups of its "
        "neighbours. Empty if nothing is known."
    )
    generated: list[list[int]] = Field(
        description="Accepted groups by span and bin. Empty for `staleness` and `waiting`."
    )
    trained: list[list[int]] = Field(description="Groups in new batches by span and bin.")
    generated_total: list[int] = Field(description="`generated`, of all spans together.")
    trained_total: list[int] = Field(description="`trained`, of all spans together.")
    shift: str | None = Field(
        description="How groups that were trained on differ from generated ones, as a sentence. Of `waiting`, how long "
        "groups that were trained on had waited. Null if that is not known."
    )
    development: str | None = Field(
        description="How the difference of `reward` or `length` developed, as a sentence. It compares the first half "
        "of the time in which groups were trained on with the second half. Null if that is not known."
    )


class EnvironmentShare(BaseModel):
    """The shares of an environment in what was generated and in what was trained on."""

    name: str = Field(
        description='Its name. The name `""` stands for all other environments, and for groups without an environment.'
    )
    generated: int = Field(description="What of it was generated.")
    trained: int = Field(description="What of it was trained on.")
    generated_share: float | None = Field(
        description="Its share in what was generated, from 0 to 1. Null if nothing was generated."
    )
    trained_share: float | None = Field(
        description="Its share in what was trained on, from 0 to 1. Null if nothing was trained on."
    )
    difference: float | None = Field(
        description="`trained_share` minus `generated_share`. Null if one of them is not known."
    )
    shift: str | None = Field(description="Both shares as a sentence. Null if one of them is not known.")


class HistoryShares(BaseModel):
    """What of each environment was generated and trained on in a range of time."""

    from_s: int = Field(description="When the range begins, seconds since 1970.")
    to_s: int = Field(description="When the range ends.")
    next_in_s: NextIn
    count: HistoryCount = Field(description="What is counted.")
    generated: int = Field(description="Generated, over all environments.")
    trained: int = Field(description="Trained on, over all environments.")
    shift: str | None = Field(
        description="The largest difference of shares as a sentence. Null if nothing was generated or trained on."
    )
    environments: list[EnvironmentShare] = Field(
        description="The first 256 environments to register, and all others together. If environments came and went in "
        "the range, the 256 with the most sequences, in and out. Those with the largest difference come first."
    )
