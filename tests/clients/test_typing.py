"""What mypy and readers see of the SDK."""

import inspect
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import get_type_hints

import pytest

import lachesis
from lachesis._prefetch.items import ItemStream
from lachesis.batches.batch import AsyncBatch
from lachesis.curriculum.curriculum import Curriculum
from lachesis.curriculum.options import CurriculumOptions, HowSampled, ItemOptions
from lachesis.curriculum.upkeep import CurriculumUpkeep
from lachesis.environments.environment import Environment, EnvironmentOptions
from lachesis.replay.buffer import HowDrawn, Replay, ReplayOptions
from lachesis.replay.sample import AsyncSample
from lachesis.replay.upkeep import ReplayUpkeep
from lachesis.replay.worker import Worker
from lachesis.runs.trainer import AsyncTrainer, NewRun, RunChanges
from lachesis.sync.curriculum import SyncCurriculum, SyncItemStream
from lachesis.sync.curriculum_upkeep import SyncCurriculumUpkeep
from lachesis.sync.environment import SyncEnvironment
from lachesis.sync.replay import Sample, SyncReplay, SyncWorker
from lachesis.sync.replay_upkeep import SyncReplayUpkeep
from lachesis.sync.trainer import Batch, Trainer
from lachesis.wire.curricula import CurriculumChange, CurriculumSettings
from lachesis.wire.curriculum_items import ItemChange, NewItem, SampleItems
from lachesis.wire.replay import ReplayChange, ReplaySettings
from lachesis.wire.runs import RunChange, RunCreate
from lachesis.wire.samples import TakeSample

ROOT = Path(__file__).parents[2]
TWINS: list[tuple[type, type]] = [
    (Trainer, AsyncTrainer),
    (Batch, AsyncBatch),
    (SyncEnvironment, Environment),
    (SyncReplay, Replay),
    (SyncReplayUpkeep, ReplayUpkeep),
    (Sample, AsyncSample),
    (SyncWorker, Worker),
    (SyncCurriculum, Curriculum),
    (SyncCurriculumUpkeep, CurriculumUpkeep),
    (SyncItemStream, ItemStream),
]


@pytest.mark.slow
def test_uses_of_the_sdk_have_the_types_they_should_have() -> None:
    """Strictly, and with every error that is expected in `typed_usage.py` found."""
    files = ["tests/clients/typed_usage.py", *map(str, sorted((ROOT / "examples").glob("*.py")))]
    command = [sys.executable, "-m", "mypy", "--strict", "--warn-unused-ignores", *files]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_package_says_that_it_is_typed() -> None:
    assert (ROOT / "clients/lachesis/py.typed").exists()


def test_every_public_name_is_there_and_has_a_docstring() -> None:
    for name in lachesis.__all__:
        assert (getattr(lachesis, name).__doc__ or "").strip(), name
    with pytest.raises(AttributeError, match="nothing"):
        lachesis.nothing  # noqa: B018


def test_public_names_are_shown_before_they_are_loaded() -> None:
    """In a process of its own: here, other tests have loaded them."""
    code = "import sys, lachesis; print(*dir(lachesis)); sys.exit('httpx' in sys.modules)"
    done = in_process(code)
    assert done.returncode == 0, done.stderr
    assert set(lachesis.__all__) <= set(done.stdout.split())


def test_help_tells_how_to_begin_and_lists_every_class() -> None:
    shown = in_process("import pydoc, lachesis; print(pydoc.plain(pydoc.render_doc(lachesis)))").stdout
    assert 'with Trainer("http://lachesis:8000", run="math") as trainer:' in shown
    for name in lachesis.__all__:
        assert name == "errors" or f"class {name}" in shown, name


def in_process(code: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "PYTHONPATH": str(ROOT / "clients")}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, check=False, env=environ, capture_output=True, text=True, timeout=60)


def public(cls: type) -> dict[str, object]:
    return {name: member for name, member in vars(cls).items() if not name.startswith("_")}


@pytest.mark.parametrize(("sync", "original"), TWINS)
def test_the_synchronous_classes_have_all_that_the_others_have(sync: type, original: type) -> None:
    renamed = {"aclose": "close"}
    instance = {"settings", "outcomes", "name"}  # attributes of instances there, properties here
    wanted = {renamed.get(name, name) for name in public(original)} | (instance & public(sync).keys())
    assert public(sync).keys() == wanted
    for name, member in public(original).items():
        if inspect.isfunction(member):
            twin = public(sync)[renamed.get(name, name)]
            assert inspect.isfunction(twin)
            assert inspect.signature(twin).parameters == inspect.signature(member).parameters, name


def test_the_synchronous_trainer_is_made_as_the_other() -> None:
    assert inspect.signature(Trainer).parameters == inspect.signature(AsyncTrainer).parameters


@pytest.mark.parametrize(("sync", "original"), TWINS)
def test_the_synchronous_methods_say_themselves_what_they_take_and_raise(sync: type, original: type) -> None:
    """In their own docstrings, which editors show: not by reference, and as much as the others say."""
    for name, member in public(sync).items():
        said = inspect.getdoc(member.fget if isinstance(member, property) else member) or ""
        assert said, name
        assert not said.startswith("See "), name
        twin = public(original).get(name)
        if inspect.isfunction(member) and twin is not None:
            raised = inspect.getdoc(twin) or ""
            expected = set(inspect.signature(member).parameters) - {"self"}
            expected |= set(re.findall(r"\b(?:[A-Z][a-z]+){2,}\b(?=[:,`])", raised.partition("Raises:")[2]))
            assert {word for word in expected if word not in said} == set(), name


def test_settings_of_runs_are_those_of_the_contract() -> None:
    """They are written down a second time for type checkers; here is what keeps them equal."""
    for written, model, besides in ((NewRun, RunCreate, {"name", "batch_size"}), (RunChanges, RunChange, set())):
        assert get_type_hints(written).keys() | besides == model.model_fields.keys()


def test_settings_of_buffers_and_samples_are_those_of_the_contract() -> None:
    options = get_type_hints(ReplayOptions).keys()
    assert options == ReplaySettings.model_fields.keys() == ReplayChange.model_fields.keys()
    besides = {"num_chunks", "num_fragments", "request_id", "trainer"}
    assert get_type_hints(HowDrawn).keys() | besides == TakeSample.model_fields.keys()


def test_settings_of_curricula_and_their_samples_and_items_are_those_of_the_contract() -> None:
    options = get_type_hints(CurriculumOptions)
    assert options.keys() == CurriculumSettings.model_fields.keys() == CurriculumChange.model_fields.keys()
    assert get_type_hints(HowSampled).keys() | {"n", "bins_only", "request_id"} == SampleItems.model_fields.keys()
    assert get_type_hints(ItemOptions).keys() == ItemChange.model_fields.keys() == NewItem.model_fields.keys() - {"key"}


def test_options_of_environments_are_those_of_the_class() -> None:
    given = inspect.signature(Environment).parameters.values()
    assert get_type_hints(EnvironmentOptions).keys() == {one.name for one in given if one.kind == one.KEYWORD_ONLY}


def test_the_formats_can_be_imported_without_an_http_client() -> None:
    """As the service does."""
    code = "import sys, lachesis.wire.columns; sys.exit('httpx' in sys.modules or 'lachesis.sync' in sys.modules)"
    assert in_process(code).returncode == 0
