"""What the clients write down as they go, so that every group can be accounted for afterwards.

A group is known by the hash of everything in it: one that was changed on the way is one that nobody sent.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

COLUMNS = (
    "tokens", "masks", "scores", "advantages", "ref_logprobs", "messages", "generation_params", "inference_logprobs",
    "overrides", "group_overrides", "images", "env_id", "distill_token_ids", "distill_logprobs",
)  # fmt: skip


def fingerprint(group: Mapping[str, Any]) -> str:
    """Hash all 14 columns of a group; one it lacks counts as null, as the contract says it is served."""
    whole = {column: group.get(column) for column in COLUMNS}
    return hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()[:24]


def describe(groups: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Say of each group what the accounting needs: fingerprint, size in sequences, environment id."""
    return [{"group": fingerprint(g), "size": len(g["tokens"]), "env_id": g.get("env_id")} for g in groups]


class Journal:
    """A file of JSON lines, each written through at once: a killed process loses none that it wrote."""

    def __init__(self, path: str | Path) -> None:
        self._file = Path(path).open("a", buffering=1)  # noqa: SIM115 - open as long as the process lives

    def write(self, event: str, **fields: Any) -> None:
        """Append one event."""
        self._file.write(json.dumps({"event": event, **fields}) + "\n")
