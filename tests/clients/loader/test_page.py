"""The example runs as it is, and the Python of docs/how-to/loader.md as it is written."""

import contextlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

import lachesis.loader
from lachesis.loader import encode
from tests.clients.loader.fetching import fragments_served

ROOT = Path(__file__).parents[3]
FILES, FRAGMENTS = re.findall(r"^```python\n(.*?)^```$", (ROOT / "docs/how-to/loader.md").read_text(), re.M | re.S)


def test_the_example_loads_an_epoch_in_two_goes() -> None:
    environ = {**os.environ, "PYTHONPATH": str(ROOT / "clients")}
    command = [sys.executable, str(ROOT / "examples/loader.py")]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    *batches, last = done.stdout.splitlines()
    assert len(batches) == 2
    assert all(line.startswith("epoch 0: images (4, ") for line in batches)
    assert last == "restored: 10 episodes are left of the epoch"


def test_the_page_trains_on_the_episodes_of_a_shard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("shards", "episodes"):
        Path(folder).mkdir()
    lines = []
    for number in range(40):
        steps = np.arange(number % 3 + 1)
        Path(f"episodes/{number}.safetensors").write_bytes(encode({"obs": {"image": steps}, "action": steps}))
        lines.append(json.dumps({"episode": f"{number}.safetensors", "length": len(steps), "cost": 1.0}))
    Path("shards/rank-00000-of-00008.jsonl").write_text("\n".join(lines))
    trained: list[tuple[int, ...]] = []
    states: list[dict[str, Any]] = []
    exec(
        FILES,
        {
            "train": lambda images, actions, mask: trained.append((images.shape, actions.shape, mask.shape)),
            "save": lambda _, state: states.append(state),
            "weights": None,
        },
    )
    assert trained == [((rows, 3),) * 3 for rows in (32, 8)] * 3
    assert [(state["epoch"], state["handed_out"]) for state in states] == [
        (0, 32),
        (1, 0),
        (1, 32),
        (2, 0),
        (2, 32),
        (3, 0),
    ]


async def test_the_page_fetches_fragments_by_http() -> None:
    async with fragments_served() as (url, _):
        names = {**vars(lachesis.loader), "asynccontextmanager": contextlib.asynccontextmanager, "httpx": httpx}
        exec(FRAGMENTS, names | {"url": url, "path": "/fragments", "fragment_ids": ["3", "4"]}, names)
        batches = [batch async for batch in names["loader"]]
    assert [batch.data["obs"]["image"][:, 0, 0].tolist() for batch in batches] == [[3, 4]]
