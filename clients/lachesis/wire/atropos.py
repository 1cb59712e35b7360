"""Bodies of the Atropos surface, as its clients send them.

Numbers are coerced, because these clients rely on it: ``"3"``, ``3.0`` and ``true`` are integers. Unknown fields are
ignored. Bounds are wide: they refuse only values that could harm the service.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from lachesis.wire.body import MAX_INTEGER
from lachesis.wire.limits import MAX_BATCH_SIZE

_Text = Annotated[str, Field(max_length=4096)]
_Count = Annotated[int, Field(ge=-MAX_INTEGER, le=MAX_INTEGER)]


class _Body(BaseModel):
    model_config = ConfigDict(frozen=True, allow_inf_nan=False)


class Registration(_Body):
    """The registration of a trainer: facts of its run (`POST /register`)."""

    wandb_group: _Text = Field(description="Weights & Biases group that environments log to.", examples=["grpo"])
    wandb_project: _Text = Field(description="Weights & Biases project.", examples=["math-rl"])
    batch_size: int = Field(ge=1, le=MAX_BATCH_SIZE, description="Sequences in each batch, exactly.", examples=[128])
    max_token_len: _Count = Field(description="Longest sequence the trainer takes, tokens.", examples=[2048])
    checkpoint_dir: _Text = Field(description="Where environments keep their checkpoints.", examples=["checkpoints"])
    save_checkpoint_interval: _Count = Field(description="Steps between checkpoints.", examples=[100])
    starting_step: _Count = Field(description="Step the run starts at.", examples=[0])
    num_steps: _Count = Field(description="Steps the run takes in all.", examples=[1000])


class RegisterEnvironment(_Body):
    """The registration of an environment (`POST /register-env`)."""

    max_token_length: _Count = Field(description="Longest sequence it makes, tokens.", examples=[2048])
    desired_name: _Text = Field(description="Name it would like; it gets `<desired_name>_<n>`.", examples=["gsm8k"])
    weight: float = Field(
        ge=-1e12,
        le=1e12,
        description="Inference weight relative to other environments. Clients send -1 to be left out of weighting.",
        examples=[1.0],
    )
    group_size: int = Field(
        default=1,
        ge=1,
        le=MAX_BATCH_SIZE,
        description="Sequences in each of its groups. Clients of Atropos 0.2 do not say.",
        examples=[8],
    )
    min_batch_allocation: float | None = Field(
        default=None, ge=0, le=1, description="Smallest fraction of each batch it must have, or null.", examples=[0.25]
    )


class EnvironmentIdentifier(_Body):
    """The environment of a request (`POST /disconnect-env`, `GET /status-env`)."""

    env_id: int = Field(ge=0, le=MAX_INTEGER, description="The id it got when it registered.", examples=[0])


class ScoredData(_Body):
    """A scored group (`POST /scored_data`): sequences sampled from one prompt, with their data for training.

    Rows of `tokens` and `masks` agree in number and length, and each row has one score. The other columns come back as
    they were sent. A served group always has all of these keys; a missing column is null.

    This describes the body. The service reads it without this class (`app/api/codec/scored_data.py`), at C speed.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "tokens": [[1, 15043, 29991, 2], [1, 15043, 2]],
                    "masks": [[-100, -100, 29991, 2], [-100, -100, 2]],
                    "scores": [1.0, -0.5],
                    "inference_logprobs": [[1.0, 1.0, -0.25, -0.125], [1.0, 1.0, -2.5]],
                    "env_id": 0,
                }
            ]
        }
    )

    tokens: list[list[int]] = Field(description="Token ids per sequence, at least one; 64 bits at most.")
    masks: list[list[int]] = Field(description="Labels per token: -100 where the loss is masked (on prompts).")
    scores: list[float] = Field(description="One score per sequence, finite.")
    advantages: list[list[float]] | None = Field(default=None, description="Advantages per token.")
    ref_logprobs: list[list[float]] | None = Field(default=None, description="The reference model's, per token.")
    messages: list[list[dict[str, Any]]] | None = Field(
        default=None,
        description="A conversation per sequence; each message has `role` and `content`, and any other keys.",
        examples=[[[{"role": "user", "content": "Hello!"}]]],
    )
    generation_params: dict[str, Any] | None = Field(default=None, description="How the group was sampled.")
    inference_logprobs: list[list[float]] | None = Field(
        default=None, description="The sampling model's, per token; 1.0 where masked."
    )
    overrides: list[dict[str, Any]] | None = Field(
        default=None, description="Settings of the trainer that differ, per sequence."
    )
    group_overrides: dict[str, Any] | None = Field(default=None, description="The same for the whole group.")
    images: Any | None = Field(default=None, description="Images in any form; kept, not read.")
    env_id: int | None = Field(
        default=None, ge=0, le=MAX_INTEGER, description="The environment it comes from; an unknown one has no share."
    )
    distill_token_ids: list[list[list[int]]] | None = Field(
        default=None, description="A teacher's likeliest token ids: sequence, position, rank."
    )
    distill_logprobs: list[list[list[float]]] | None = Field(
        default=None, description="Their log probabilities, in the same shape."
    )


class _Reply(BaseModel):
    """A reply of the Atropos surface."""

    model_config = ConfigDict(frozen=True)


class Hello(_Reply):
    """The name of the service (`GET /`)."""

    message: str


class RegisterReply(_Reply):
    """The trainer is registered (`POST /register`)."""

    uuid: int = Field(ge=0, le=MAX_INTEGER, description="A number. No other request needs it.")


class WaitForTrainer(_Reply):
    """No trainer has asked for a batch yet: register again later (`POST /register-env`)."""

    status: Literal["wait for trainer to start"] = "wait for trainer to start"


class EnvironmentRegistered(_Reply):
    """The environment is registered (`POST /register-env`)."""

    status: Literal["success"] = "success"
    env_id: int = Field(description="The id of the environment.")
    wandb_name: str = Field(description="Its name.")
    checkpoint_dir: str = Field(description="Where it keeps its checkpoints.")
    starting_step: int = Field(description="The run's step now.")
    checkpoint_interval: int = Field(description="Steps between checkpoints.")
    num_steps: int = Field(description="Steps the run takes in all.")


class Done(_Reply):
    """The request succeeded (`POST /disconnect-env`)."""

    status: Literal["success"] = "success"


class Failed(_Reply):
    """The request failed (`POST /disconnect-env`)."""

    status: Literal["failure"] = "failure"
    error: str = Field(description="The reason.")


class WandbInfo(_Reply):
    """Where to log (`GET /wandb_info`). Null before `/register`."""

    group: str | None
    project: str | None


class RunInfo(_Reply):
    """Batch size and longest sequence (`GET /info`). -1 before `/register`."""

    batch_size: int
    max_token_len: int


class ServedGroup(_Reply):
    """A group as a trainer gets it: all keys of `ScoredData`, null where the group has none.

    This describes the reply. The service writes it without this class (`app/api/codec/atropos_batch.py`), at C speed.
    """

    tokens: list[list[int]]
    masks: list[list[int]]
    scores: list[float]
    advantages: list[list[float]] | None
    ref_logprobs: list[list[float]] | None
    messages: list[list[dict[str, Any]]] | None
    generation_params: dict[str, Any] | None
    inference_logprobs: list[list[float]] | None
    overrides: list[dict[str, Any]] | None
    group_overrides: dict[str, Any] | None
    images: Any
    env_id: int | None
    distill_token_ids: list[list[list[int]]] | None
    distill_logprobs: list[list[list[float]]] | None


class ServedBatch(_Reply):
    """The next batch, or null (`GET /batch`)."""

    batch: list[ServedGroup] | None


class NotRegistered(_Reply):
    """No trainer has registered (`GET /batch`)."""

    status: Literal["error"] = "error"
    message: str
    batch: list[Any] = []


class NoExample(_Reply):
    """There is no group yet: empty lists (`GET /latest_example`)."""

    tokens: list[Any] = []
    masks: list[Any] = []
    scores: list[Any] = []
    advantages: list[Any] = []
    ref_logprobs: list[Any] = []
    generation_params: list[Any] = []
    inference_logprobs: list[Any] = []
    messages: list[Any] = []
    images: list[Any] = []


class Received(_Reply):
    """The group is in the queue (`POST /scored_data`)."""

    status: Literal["received"] = "received"


class Buffered(_Reply):
    """The group waits until a set of the declared size is complete (`POST /scored_data`)."""

    status: Literal["buffered"] = "buffered"
    buffer_size: int = Field(description="Sequences that wait now.")


class ListReceived(_Reply):
    """The groups are stored (`POST /scored_data_list`)."""

    status: Literal["received"] = "received"
    groups_processed: int = Field(description="How many groups were sent.")


class ListBuffered(ListReceived):
    """Some of the groups wait until sets of the declared size are complete (`POST /scored_data_list`)."""

    buffered: int = Field(ge=1, description="How many of the groups wait.")
    last_buffer_size: int = Field(description="Sequences that wait now.")


class EnvironmentPace(_Reply):
    """How full the queue is for an environment (`GET /status-env`)."""

    current_step: int = Field(description="Batches served.")
    queue_size: int = Field(description="Groups of its size that wait: its own, and those beyond others' minimums.")
    unallocated_fraction: float = Field(
        ge=-1, le=1, description="Share of a batch that no live environment was promised. -1 while intake is paused."
    )
    self_queue_size: int = Field(
        ge=0, description="Its own groups that wait. 1,000,000,000 while intake is paused, so that it starts no groups."
    )
    max_group_size: int = Field(ge=1, description="Sequences in the largest group that waits.")
    env_weight: float = Field(description="Its part of the inference weight of all live environments.")
