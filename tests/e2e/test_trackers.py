"""`examples/trackers.py` with the real libraries, which are in a virtual environment of their own."""

import ast
import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from lachesis import Environment, Group, Trainer
from lachesis.wire.filters import ZeroVarianceFilter
from tests.e2e.service import Service
from tests.e2e.venv import REPOSITORY, trackers_python

pytestmark = pytest.mark.e2e

BATCHES = 3
Rows = list[dict[str, float]]

# How to read back what each library has written, as one JSON object a row.
READERS = {
    "tensorboard": """
import glob, json, struct
from tensorboardX.proto.event_pb2 import Event
rows = {}
for path in glob.glob("runs/math/*"):
    data = open(path, "rb").read()
    while data:  # a TFRecord: length, its checksum, the event, its checksum
        (length,) = struct.unpack("<Q", data[:8])
        event = Event.FromString(data[12:12 + length])
        data = data[16 + length:]
        for value in event.summary.value:
            rows.setdefault(event.step, {})[value.tag] = value.simple_value
for step, row in rows.items():
    print(json.dumps({"step": step, **row}))
""",
    "wandb": """
import glob, json, struct
from wandb.proto.wandb_internal_pb2 import Record
(path,) = glob.glob("wandb/offline-run-*/*.wandb")
data, at, record = open(path, "rb").read(), 7, b""
while at < len(data):  # a log of LevelDB: blocks of 32 KiB with pieces of records: checksum, length, kind, bytes
    if 32768 - at % 32768 < 7:
        at += 32768 - at % 32768
        continue
    length, kind = struct.unpack("<HB", data[at + 4:at + 7])
    record, at = record + data[at + 7:at + 7 + length], at + 7 + length
    if kind in (1, 4):  # whole, or its last piece
        found, record = Record.FromString(record), b""
        if found.WhichOneof("record_type") == "history":
            items = found.history.item
            print(json.dumps({item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items}))
""",
    "trackio": """
import glob, json, sqlite3
(path,) = glob.glob("trackio/lachesis.db")
for step, metrics in sqlite3.connect(path).execute("SELECT step, metrics FROM metrics ORDER BY id"):
    print(json.dumps({"step": step, **json.loads(metrics)}))
""",
}


@pytest.fixture(scope="module")
def python() -> Path:
    return trackers_python()


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    started = Service(tmp_path)
    yield started
    started.stop()


def train(url: str) -> None:
    """A run that has trained on a few batches of one group."""
    with Trainer(url, run="math") as trainer:
        trainer.create_run(batch_size=2, filter_zero_variance=ZeroVarianceFilter())
        with Environment("sums", url, run="math", group_size=2) as environment:
            for number in range(BATCHES):
                environment.submit(Group([[1, 2], [1, 3]], [[-100, 2], [-100, 3]], [0.0, 1.0], id=f"g{number}"))
        for version in range(1, BATCHES + 1):
            batch = trainer.take(wait_s=60)
            assert batch is not None
            trainer.set_policy_version(version)
            batch.ack()


@pytest.mark.parametrize("tracker", READERS)
def test_a_row_for_each_trained_batch_reaches_the_library(
    tracker: str, service: Service, python: Path, tmp_path: Path
) -> None:
    train(service.url)
    env = {**os.environ, "PYTHONPATH": str(REPOSITORY / "clients"), "WANDB_MODE": "offline", "TRACKIO_DIR": "trackio"}
    env |= {"LACHESIS_URL": service.url, "LACHESIS_RUN": "math", "WANDB_SILENT": "true"}

    def run(*arguments: str) -> str:
        command = [str(python), *arguments]
        done = subprocess.run(command, cwd=tmp_path, env=env, check=True, timeout=300, stdout=subprocess.PIPE)
        return done.stdout.decode()

    printed = run(str(REPOSITORY / "examples/trackers.py"), tracker, "--rows", str(BATCHES))
    sent: Rows = [
        {"step": int(step), **ast.literal_eval(row)} for step, row in re.findall(r"^step (\d+): ({.*})$", printed, re.M)
    ]
    assert [row["step"] for row in sent] == [1, 2, 3]
    assert [row["policy_version"] for row in sent] == [1, 2, 3]
    assert [row["events/batch_acknowledged"] for row in sent] == [1, 2, 3]
    assert {row["batch/groups"] for row in sent} == {1}
    assert all(row["batch/seconds_held"] >= 0 for row in sent)
    arrived: Rows = [json.loads(line) for line in run("-c", READERS[tracker]).splitlines()]
    assert len(arrived) == len(sent)
    for one, other in zip(arrived, sent, strict=True):
        kept = {name: value for name, value in one.items() if not name.startswith("_")}  # wandb adds the time
        assert kept == pytest.approx(other, rel=1e-6)
