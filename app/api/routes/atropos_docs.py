"""What the Atropos surface answers, for OpenAPI: its problems, and examples."""

from typing import Any

from app.api.routes.answer_docs import sending
from app.core import errors

PROBLEMS = sending(errors.RunArchived)

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


def answers(**examples: Any) -> dict[int | str, dict[str, Any]]:
    """Show what a successful answer looks like, by name of the case."""
    named = {name: {"summary": name.replace("_", " "), "value": value} for name, value in examples.items()}
    return {200: {"content": {"application/json": {"examples": named}}}}


ANSWERS_ROOT = answers(hello={"message": "AtroposLib API"})
ANSWERS_ROOT[200]["content"]["text/html"] = {"schema": {"type": "string"}}
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
