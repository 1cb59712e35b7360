"""Fragments of long episodes, as they are sent to and read from a replay buffer (``…/replay/fragments``).

In binary a fragment is one safetensors blob: tensors under any names, such as ``obs/image``, and metadata that says
what `FRAGMENT_KEYS` names. Several in one body are a frame of them (`lachesis.wire.frame`). In JSON it is an object
with the same keys, and tensors in base64.
"""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, SkipValidation

from lachesis.wire.body import MAX_INTEGER
from lachesis.wire.groups import MAX_COST, TensorInJson
from lachesis.wire.replay import ChunkId, Priority, Session, Worker
from lachesis.wire.states import FragmentOutcome

FRAGMENT_ID = r"[A-Za-z0-9._:-]{1,128}"
MAX_FRAGMENTS = 1024
"""Maximum number of fragments in one request."""

POLICY_VERSIONS = "policy_versions"
"""Name of the tensor (integers, one dimension) with the policy version that sampled each step, if these differ."""

FRAGMENT_KEYS = ("worker", "number", "session", "policy_version", "episodes", "reward", "cost", "priority", "metadata")
"""Facts of a fragment other than its tensors: strings in a blob's metadata, JSON values in JSON.

    worker          who sends it; required
    number          its number among the worker's fragments of this session, from 0; required
    session         the training attempt it was made in; 0 if it does not say
    policy_version  the policy version that sampled it; its oldest, if a tensor `policy_versions` gives one per step
    episodes        a JSON array of the ids of the episodes it is of, up to 64
    reward          a number, finite
    cost            what it costs to train on, in units of its sender's choice, finite and >= 0
    priority        finite and >= 0; a chunk has the largest of its fragments'
    metadata        a JSON object, kept and not read
"""

_Whole = Annotated[int, Field(ge=0, le=MAX_INTEGER)]
Number = Annotated[
    int, Field(ge=0, le=MAX_INTEGER, description="Its number among the worker's fragments of this session, from 0.")
]
EpisodeId = Annotated[str, Field(min_length=1, max_length=128)]
MAX_EPISODES = 64
"""Maximum number of episodes that a fragment may name."""
EpisodeIds = Annotated[list[EpisodeId], Field(max_length=MAX_EPISODES)]

_FRAGMENT: dict[str, Any] = {
    "worker": "worker-0",
    "number": 0,
    "policy_version": 41,
    "episodes": ["episode-17"],
    "reward": 1.0,
    "tensors": {"obs/position": {"dtype": "F32", "shape": [1], "data": "AACAPw=="}},
}


class FragmentFacts(BaseModel):
    """Facts that the sender of a fragment gives. They are kept, and handed out with it."""

    episodes: EpisodeIds = Field(default=[], description="The episodes it is of.")
    reward: float | None = Field(default=None, description="Its reward.")
    cost: float | None = Field(default=None, ge=0, le=MAX_COST, description="What it costs to train on, in any unit.")
    metadata: dict[str, Any] | None = Field(default=None, description="Anything; kept, not read.")


class HeldFacts(FragmentFacts):
    """Facts of a fragment that the buffer holds."""

    group: str | None = Field(default=None, description="If it is a group of the run: the id that its sender gave it.")
    environment: int | None = Field(default=None, description="If it is a group of the run: its environment.")
    sequences: int | None = Field(default=None, description="If it is a group of the run: its number of sequences.")
    filtered_by: str | None = Field(
        default=None, description="If it is a group of the run: the filter that found it, if any."
    )
    loss_weight: float = Field(default=1.0, description="Factor for its loss, as that filter sets it.")


class SubmittedFragment(FragmentFacts):
    """A fragment as it is sent in JSON (`POST …/replay/fragments`)."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [_FRAGMENT]})

    worker: Worker
    number: Number
    session: Session = 0
    policy_version: _Whole | None = Field(
        default=None, description="The policy version that sampled it; the oldest one if it has `policy_versions`."
    )
    priority: Priority | None = None
    tensors: dict[str, TensorInJson] = Field(min_length=1, description="Its tensors, by name.")


class SubmittedFragments(BaseModel):
    """Several fragments of one worker in one body. The service stores all of them or none."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"fragments": [_FRAGMENT]}]})

    fragments: list[SubmittedFragment] = Field(
        min_length=1, max_length=MAX_FRAGMENTS, description="Fragments of one worker and session; no duplicate number."
    )


class FragmentReceipt(BaseModel):
    """What happened to a submitted fragment."""

    number: int = Field(description="Its number.")
    status: SkipValidation[FragmentOutcome] = Field(  # a newer service may have further ones
        description="`stored`. `repeated`: the buffer had it before. Refused and counted: `late` (it came after the "
        "buffer skipped its gap), `old_session` and `future_session` (it is of another session), `future_version` "
        "(the version that sampled it is not in force yet), `too_large` (a chunk with it does not fit into the "
        "buffer). Accepted and dropped at once: `stale` (the version that sampled it is too old), `gap` (it is in no "
        "chunk), `evicted` (the buffer is full)."
    )
    fragment: str | None = Field(description="Its id; null if it is not stored, or is in a chunk already.")


class FragmentReceipts(BaseModel):
    """What happened to the fragments of a request, in its order."""

    fragments: list[FragmentReceipt]


class StoredFragment(HeldFacts):
    """A fragment that is stored, without its tensors."""

    fragment: str = Field(description="Its id.")
    chunk: ChunkId | None = Field(description="The chunk it is in, or null while it is in none.")
    worker: str = Field(description="Who sent it.")
    session: int = Field(description="The session it was made in.")
    number: int = Field(description="Its number among the worker's fragments of that session, from 0.")
    version: int = Field(description="The oldest policy version that sampled any of it.")
    payload_bytes: int = Field(description="Its stored size.")


class FetchFragments(BaseModel):
    """Fragments to read at once (`POST …/replay/fragments/fetch`)."""

    model_config = ConfigDict(extra="forbid")

    fragments: list[Annotated[str, Field(pattern=f"^{FRAGMENT_ID}$")]] = Field(
        min_length=1, max_length=MAX_FRAGMENTS, description="Their ids.", examples=[["6f1a0c52d2b84f0e"]]
    )
