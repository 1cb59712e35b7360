"""A slow environment that is promised a quarter of each batch: pairs of completions with logprobs."""

import random
from typing import Any

from witnessed_env import WitnessedEnv


class MinimumEnv(WitnessedEnv):
    """Completions, with the logprobs of the model that sampled them."""

    name = "minimum"
    group_size = 2
    min_batch_allocation = 0.25

    async def collect_trajectories(self, item: dict[str, str]) -> tuple[dict[str, Any] | None, list[Any]]:
        """Ask the model for a pair of completions."""
        if self.stopping():
            return None, []
        prompt = item["content"]
        sampled = await self.server.completion(prompt=prompt, n=self.config.group_size, max_tokens=64, logprobs=1)
        prefix = self.tokenizer.encode(prompt)
        group: dict[str, Any] = {"tokens": [], "masks": [], "scores": [], "inference_logprobs": []}
        for choice in sampled.choices:
            words = [self.tokenizer.encode(f" {word}") for word in choice.logprobs.tokens]
            answer = [token for word in words for token in word]
            logprobs = [p for word, p in zip(words, choice.logprobs.token_logprobs, strict=True) for _ in word]
            group["tokens"].append(prefix + answer)
            group["masks"].append([-100] * len(prefix) + answer)
            group["inference_logprobs"].append([1.0] * len(prefix) + logprobs)
            group["scores"].append(random.random())  # noqa: TID251 - any number will do, and float64 must survive
        return group, []


if __name__ == "__main__":
    MinimumEnv.cli()
