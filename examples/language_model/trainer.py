"""A trainer that teaches a language model with GRPO.

python examples/language_model/trainer.py --model Qwen/Qwen2.5-0.5B --weights weights

It needs `pip install torch transformers`. It saves the weights of each policy version in a folder of `--weights`, where
workers load them. Start it again after a crash: it continues after the last saved step.
"""

import argparse
import logging
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils.logging import disable_progress_bar

from lachesis import Batch, LachesisError, Rank, Trainer

BATCH_SIZE, MICRO_BATCH_TOKENS, MAX_STALENESS = 32, 4096, 2
CLIP = 0.2


def loss_of(
    model: Any, tokens: Tensor, labels: Tensor, sampled: Tensor, attention: Tensor, advantages: Tensor
) -> Tensor:
    """Return the clipped loss, summed over tokens: advantages are [rows, 1], all others [rows, longest]."""
    logits = model(input_ids=tokens, attention_mask=attention).logits[:, :-1].float()
    labels, sampled = labels[:, 1:], sampled[:, 1:]
    logprobs = -cross_entropy(logits.transpose(1, 2), labels, ignore_index=-100, reduction="none")
    ratio = (logprobs - sampled).exp()
    gain = torch.minimum(ratio * advantages, ratio.clamp(1 - CLIP, 1 + CLIP) * advantages)
    return -(gain * (labels != -100)).sum()


def advantages_of(batch: Batch) -> NDArray[np.float32]:
    """Return the advantage of each sequence: its score beside those of its siblings, f32 [sequences]."""
    groups = [(group.scores - group.scores.mean()) / (group.scores.std() + 1e-4) for group in batch.groups]
    return np.concatenate(groups).astype(np.float32)


def columns_of(batch: Batch, pad_id: int) -> list[NDArray[Any]]:
    """Return what `loss_of` takes after the model, for all sequences of a batch."""
    tokens = batch.tokens_padded(pad_id).astype(np.int64)
    labels = batch.padded("masks", -100).astype(np.int64)
    sampled = batch.padded("inference_logprobs", 0.0)
    attention = (np.arange(tokens.shape[1]) < batch.lengths[:, None]).astype(np.int64)
    return [tokens, labels, sampled, attention, advantages_of(batch)[:, None]]


def save(model: Any, tokenizer: Any, weights: Path, version: int) -> None:
    """Save the weights of a version, and delete those that no worker needs any more."""
    beside = weights / "new"
    model.save_pretrained(beside)
    tokenizer.save_pretrained(beside)
    beside.rename(weights / str(version))
    for old in saved_versions(weights)[: -MAX_STALENESS - 1]:
        shutil.rmtree(weights / str(old))


def saved_versions(weights: Path) -> list[int]:
    """Return the versions whose weights are saved, in ascending order."""
    return sorted(int(folder.name) for folder in weights.glob("[0-9]*"))


def train(name: str, weights: Path, steps: int, learning_rate: float) -> None:
    """Learn until so many steps are done. Each step makes a policy version of the same number."""
    shutil.rmtree(weights / "new", ignore_errors=True)
    versions = saved_versions(weights)
    saved = versions[-1] if versions else 0
    source = weights / str(saved) if versions else name
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model: Any = AutoModelForCausalLM.from_pretrained(source).to(device)
    tokenizer = AutoTokenizer.from_pretrained(source)
    if not versions:
        save(model, tokenizer, weights, saved)
    optimizer = torch.optim.AdamW(model.parameters(), learning_rate)
    rank = Rank(0, 1, micro_batch_tokens=MICRO_BATCH_TOKENS, padded=True)
    with Trainer() as trainer:
        trainer.create_run(batch_size=BATCH_SIZE, max_staleness=MAX_STALENESS)
        trainer.rewind(saved)  # after a crash, the batches since then come again
        trainer.set_policy_version(saved)
        for batch in trainer.batches(prefetch=1, rank=rank):
            optimizer.zero_grad()
            columns = columns_of(batch, tokenizer.pad_token_id)
            count = int((batch.masks != -100).sum())
            for rows in batch.micro_batches:
                longest = batch.lengths[rows].max()
                parts = (torch.from_numpy(column[rows, :longest]).to(device) for column in columns)
                (loss_of(model, *parts) / count).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            batch.ack()
            save(model, tokenizer, weights, batch.step)
            trainer.set_policy_version(batch.step)
            trainer.checkpoint(batch.step)
            print(f"step {batch.step}: mean score {batch.scores.mean():.3f}", flush=True)
            if batch.step >= steps:
                break


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="Qwen/Qwen2.5-0.5B", help="a name of the hub, or a folder")
    parser.add_argument("--weights", type=Path, required=True, help="the folder for the weights")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--learning-rate", type=float, default=1e-6)
    given = parser.parse_args()
    logging.basicConfig(format="%(levelname)s %(message)s", level=logging.WARNING)
    disable_progress_bar()  # it would show one for each policy version
    try:
        train(given.model, given.weights, given.steps, given.learning_rate)
    except LachesisError as error:
        sys.exit(f"trainer: {error}")
