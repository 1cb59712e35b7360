"""A rollout worker with a language model: it samples several answers to a sum, and scores them.

python examples/language_model/worker.py --weights weights

It needs `pip install torch transformers`, and trainer.py beside it. Start as many as you like.
`rollout` samples with transformers. docs/how-to/language-models.md has the same function for vLLM.
"""

import argparse
import contextlib
import logging
import random
import re
import sys
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils.logging import disable_progress_bar

from lachesis import Environment, Group, LachesisError

GROUP_SIZE, MAX_NEW_TOKENS = 8, 24


def reward(answer: str, right: int) -> float:
    """Return 1 for the right number, less for a more distant one, and 0 without a number."""
    number = re.search(r"\d{1,9}", answer)
    return 0.0 if number is None else 1 / (1 + abs(int(number[0]) - right))


def rollout(model: Any, tokenizer: Any, version: int, chance: random.Random) -> Group:
    """Sample a group of answers to a new question."""
    left, right = chance.randint(1, 49), chance.randint(1, 49)
    prompt = tokenizer(f"{left} + {right} = ", return_tensors="pt").to(model.device)
    sampled = model.generate(
        **prompt,
        do_sample=True,
        # The trainer computes the probabilities of this distribution, so nothing else may shape it. Models bring
        # defaults of their own.
        temperature=1.0,
        top_k=0,
        top_p=1.0,
        repetition_penalty=1.0,
        num_return_sequences=GROUP_SIZE,
        max_new_tokens=MAX_NEW_TOKENS,
        pad_token_id=tokenizer.pad_token_id,
        return_dict_in_generate=True,
        output_logits=True,
    )
    begin = prompt.input_ids.shape[1]
    answers = [_without_padding(row, tokenizer.eos_token_id) for row in sampled.sequences[:, begin:].tolist()]
    logprobs = torch.stack(sampled.logits, dim=1).float().log_softmax(dim=-1)  # [answers, tokens, vocabulary]
    chosen = logprobs.gather(2, sampled.sequences[:, begin:, None])[:, :, 0].tolist()
    question = prompt.input_ids[0].tolist()
    return Group(
        tokens=[question + answer for answer in answers],
        masks=[[-100] * begin + answer for answer in answers],
        inference_logprobs=[[0.0] * begin + row[: len(answer)] for row, answer in zip(chosen, answers, strict=True)],
        scores=[reward(tokenizer.decode(answer), left + right) for answer in answers],
        policy_version=version,
    )


def _without_padding(tokens: list[int], end: int) -> list[int]:
    """Return the tokens up to the first end of sequence, which stays: the policy learns to stop."""
    return tokens[: tokens.index(end) + 1] if end in tokens else tokens


def work(weights: Path, seed: int) -> None:
    """Submit groups until Ctrl-C."""
    chance, loaded = random.Random(seed), -1
    torch.manual_seed(seed)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    with Environment("sums", group_size=GROUP_SIZE, wait_for_run_s=600, drain_s=10) as environment:
        while True:
            with environment.permit() as permit:  # waits until the trainer needs a group
                if permit.policy_version != loaded:
                    loaded = permit.policy_version
                    model: Any = AutoModelForCausalLM.from_pretrained(weights / str(loaded)).to(device)
                    tokenizer = AutoTokenizer.from_pretrained(weights / str(loaded))
                environment.submit(rollout(model, tokenizer, loaded, chance))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", type=Path, required=True, help="the folder that the trainer writes")
    parser.add_argument("--seed", type=int, default=0, help="give each worker another one")
    given = parser.parse_args()
    logging.basicConfig(format="%(levelname)s %(message)s", level=logging.WARNING)
    disable_progress_bar()  # it would show one for each policy version
    try:
        with contextlib.suppress(KeyboardInterrupt):
            work(given.weights, given.seed)
    except LachesisError as error:
        sys.exit(f"worker: {error}")
