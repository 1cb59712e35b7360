"""Bodies of the Atropos surface, as its clients send them.

Numbers are coerced as those clients rely on (``"3"``, ``3.0`` and ``true`` are integers), unknown fields are ignored.
Bounds are wide: they refuse what could harm the service, not what merely makes no sense to it.
"""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from lachesis.wire.body import MAX_INTEGER

MAX_BATCH_SIZE = 131_072
"""Most sequences in a batch, and in a group that is declared: forming a batch takes memory in proportion."""

_Text = Annotated[str, Field(max_length=4096)]
_Count = Annotated[int, Field(ge=-MAX_INTEGER, le=MAX_INTEGER)]


class _Body(BaseModel):
    model_config = ConfigDict(frozen=True, allow_inf_nan=False)


class Registration(_Body):
    """What a trainer says of its run (`POST /register`)."""

    wandb_group: _Text = Field(description="Weights & Biases group that environments log to.", examples=["grpo"])
    wandb_project: _Text = Field(description="Weights & Biases project.", examples=["math-rl"])
    batch_size: int = Field(ge=1, le=MAX_BATCH_SIZE, description="Sequences in each batch, exactly.", examples=[128])
    max_token_len: _Count = Field(description="Longest sequence the trainer takes, tokens.", examples=[2048])
    checkpoint_dir: _Text = Field(description="Where environments keep their checkpoints.", examples=["checkpoints"])
    save_checkpoint_interval: _Count = Field(description="Steps between checkpoints.", examples=[100])
    starting_step: _Count = Field(description="Step the run starts at.", examples=[0])
    num_steps: _Count = Field(description="Steps the run takes in all.", examples=[1000])


class RegisterEnvironment(_Body):
    """What an environment says of itself (`POST /register-env`)."""

    max_token_length: _Count = Field(description="Longest sequence it makes, tokens.", examples=[2048])
    desired_name: _Text = Field(description="Name it would like; it gets `<desired_name>_<n>`.", examples=["gsm8k"])
    weight: float = Field(
        description="Inference weight beside other environments. Clients send -1 to be left out of it.", examples=[1.0]
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
    """Which environment is meant (`POST /disconnect-env`, `GET /status-env`)."""

    env_id: int = Field(ge=0, le=MAX_INTEGER, description="The id it got when it registered.", examples=[0])


class ScoredData(_Body):
    """A scored group (`POST /scored_data`): sequences sampled from one prompt, with what a trainer needs of them.

    Rows of `tokens` and `masks` agree in number and length, and there is one score each; the other columns come
    back as they were sent. A served group always has all of these keys, null where absent.

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
        default=None, description="What the trainer does otherwise, per sequence."
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
