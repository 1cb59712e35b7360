"""Find the longest sequence that a run accepts."""

from typing import Any

from numpy.typing import NDArray

from app.core.runs.settings import Policy, RunConfig


def sequence_limit(config: RunConfig | None, policy: Policy) -> int | None:
    """Return the most tokens of a sequence that a run takes; None: there is no limit.

    A trainer of Atropos gives a limit when it registers (``max_token_len``). The run's own setting has precedence.
    """
    if policy.max_sequence_tokens is not None:
        return policy.max_sequence_tokens
    return config.max_token_len if config is not None and config.max_token_len > 0 else None


def position_of_too_long(lengths: NDArray[Any], limit: int | None) -> int | None:
    """Return the position of the longest sequence if it is too long, else None.

    Args:
        lengths: Tokens of each sequence, integers of shape [sequences].
        limit: Most tokens of a sequence; None: there is no limit.
    """
    if limit is None or not len(lengths):
        return None
    longest = int(lengths.argmax())
    return longest if lengths[longest] > limit else None
