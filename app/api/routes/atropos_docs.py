"""What OpenAPI says of the Atropos surface beyond its signatures: bodies read as bytes, examples, problems."""

from typing import Any

GROUP = {
    "tokens": [[1, 15043, 29991, 2], [1, 15043, 2]],
    "masks": [[-100, -100, 29991, 2], [-100, -100, 2]],
    "scores": [1.0, -0.5],
    "advantages": None,
    "ref_logprobs": None,
    "messages": None,
    "generation_params": None,
    "inference_logprobs": [[1.0, 1.0, -0.25, -0.125], [1.0, 1.0, -2.5]],
    "overrides": None,
    "group_overrides": None,
    "images": None,
    "env_id": 0,
    "distill_token_ids": None,
    "distill_logprobs": None,
}
JOINED = {
    "status": "success",
    "env_id": 0,
    "wandb_name": "gsm8k_0",
    "checkpoint_dir": "checkpoints",
    "starting_step": 0,
    "checkpoint_interval": 100,
    "num_steps": 1000,
}
PACE = {
    "current_step": 41,
    "queue_size": 12,
    "unallocated_fraction": 0.75,
    "self_queue_size": 5,
    "max_group_size": 8,
    "env_weight": 0.5,
}
SOME_BUFFERED = {"status": "received", "groups_processed": 2, "buffered": 1, "last_buffer_size": 3}


def takes(model: type[Any], *, many: bool = False, required: bool = True) -> dict[str, Any]:
    """Describe a body that is read as bytes, for OpenAPI."""
    schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
    schema.pop("$defs", None)
    content: dict[str, Any] = {"type": "array", "items": schema} if many else schema
    return {"requestBody": {"required": required, "content": {"application/json": {"schema": content}}}}


def answers(**examples: Any) -> dict[int | str, dict[str, Any]]:
    """Show what a successful answer looks like, by name of the case."""
    named = {name: {"summary": name.replace("_", " "), "value": value} for name, value in examples.items()}
    return {200: {"content": {"application/json": {"examples": named}}}}


PROBLEMS: dict[int | str, dict[str, Any]] = {
    400: {"description": "Not JSON, or not the compression it claims to be; nothing was stored."},
    408: {"description": "The body stopped arriving."},
    413: {"description": "The body is over the limit, as sent or once inflated."},
    415: {"description": "A Content-Encoding other than gzip."},
    422: {"description": "A value is wrong; `errors` names the place. Nothing was stored."},
    503: {"description": "Redis did not answer in time; ask again."},
    507: {"description": "Redis is out of memory; nothing was stored."},
}


ANSWERS_ROOT = answers(hello={"message": "AtroposLib API"})
ANSWERS_REGISTER = answers(registered={"uuid": 4503599627370495})
ANSWERS_REGISTER_ENV = answers(joined=JOINED, too_early={"status": "wait for trainer to start"})
ANSWERS_DISCONNECT_ENV = answers(
    gone={"status": "success"}, unknown={"status": "failure", "error": "there is no environment 3"}
)
ANSWERS_WANDB_INFO = answers(registered={"group": "grpo", "project": "math-rl"})
ANSWERS_INFO = answers(registered={"batch_size": 128, "max_token_len": 2048})
ANSWERS_BATCH = answers(batch={"batch": [GROUP]}, not_ready={"batch": None})
ANSWERS_LATEST_EXAMPLE = answers(group=GROUP)
ANSWERS_SCORED_DATA = answers(queued={"status": "received"}, of_another_size={"status": "buffered", "buffer_size": 3})
ANSWERS_SCORED_DATA_LIST = answers(queued={"status": "received", "groups_processed": 2}, some_buffered=SOME_BUFFERED)
ANSWERS_STATUS_ENV = answers(pace=PACE)
