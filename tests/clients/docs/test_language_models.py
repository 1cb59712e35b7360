"""The example in `examples/language_model`, and its page. Its loss is tested where PyTorch is installed."""

import ast
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from lachesis import Group
from tests.clients.docs.example_modules import EXAMPLES, load_example
from tests.clients.docs.test_snippets import snippets

TRAINER = "language_model/trainer.py"


def function_of_page(name: str) -> str:
    (block,) = [snippet for snippet in snippets("docs/how-to/language-models.md") if f"{name}(" in snippet]
    (found,) = [one for one in ast.parse(block).body if isinstance(one, ast.FunctionDef) and one.name == name]
    source = ast.get_source_segment(block, found)
    assert source is not None
    return source


def test_the_page_shows_the_loss_of_the_example() -> None:
    assert function_of_page("loss_of") in (EXAMPLES / TRAINER).read_text()


def test_what_vllm_sampled_becomes_a_group_whose_columns_are_aligned() -> None:
    names: dict[str, Any] = {"Group": Group, "RequestOutput": object}
    exec(function_of_page("group_of"), names)
    output = SimpleNamespace(prompt_token_ids=[5, 6], outputs=[answer([7, 8], [-0.5, -1.5]), answer([9], [-2.5])])
    group = names["group_of"](output, [0.0, 1.0], 3)
    assert group.tokens == [[5, 6, 7, 8], [5, 6, 9]]
    assert group.masks == [[-100, -100, 7, 8], [-100, -100, 9]]
    assert group.inference_logprobs == [[0, 0, -0.5, -1.5], [0, 0, -2.5]]
    assert (group.scores, group.policy_version) == ([0.0, 1.0], 3)
    assert group.packed(environment=None)


def answer(tokens: list[int], logprobs: list[float]) -> SimpleNamespace:
    """Return an answer as vLLM describes it: for each position, the log-probability of the sampled token."""
    positions = [{token: SimpleNamespace(logprob=value)} for token, value in zip(tokens, logprobs, strict=True)]
    return SimpleNamespace(token_ids=tuple(tokens), logprobs=positions)


@pytest.fixture
def trainer() -> ModuleType:
    for package in ("torch", "transformers"):
        pytest.importorskip(package, reason=f"{package} is not installed (`pip install {package}`)")
    return load_example(TRAINER)


@pytest.mark.parametrize("drift", [0.0, 0.1, 0.5])
def test_the_loss_is_that_of_each_sampled_token_by_itself(trainer: ModuleType, drift: float) -> None:
    """The policy is a table of logits: the next token depends on the last one only."""
    torch = sys.modules["torch"]
    rng = np.random.default_rng(7)
    table = rng.normal(size=(11, 11))
    logprobs = table - np.log(np.exp(table).sum(axis=1, keepdims=True))
    tokens, in_loss = rng.integers(0, 11, (4, 9)), rng.random((4, 9)) < 0.6
    in_loss[:, 0] = False
    sampled = np.zeros((4, 9))
    sampled[:, 1:] = logprobs[tokens[:, :-1], tokens[:, 1:]] + drift * rng.normal(size=(4, 8))
    advantages = rng.normal(size=(4, 1))

    def model(input_ids: Any, attention_mask: Any) -> Any:
        assert attention_mask.shape == input_ids.shape
        return SimpleNamespace(logits=torch.from_numpy(table)[input_ids])

    columns = (tokens, np.where(in_loss, tokens, -100), sampled, np.ones_like(tokens), advantages)
    found = trainer.loss_of(model, *map(torch.from_numpy, columns))
    wanted = 0.0
    for row, position in np.argwhere(in_loss):
        now = logprobs[tokens[row, position - 1], tokens[row, position]]
        ratio, gain = np.exp(now - sampled[row, position]), advantages[row, 0]
        wanted -= min(ratio * gain, min(max(ratio, 0.8), 1.2) * gain)
    assert float(found) == pytest.approx(wanted, rel=1e-5)
