"""What mypy and readers see of the SDK."""

import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import lachesis
from lachesis import AsyncReplay, AsyncTrainer, Replay, Trainer

ROOT = Path(__file__).parents[2]
PAIRS = [
    (getattr(lachesis, name), getattr(lachesis, f"Async{name}"))
    for name in sorted(lachesis.__all__)
    if f"Async{name}" in lachesis.__all__
]


@pytest.mark.long
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
    """The public members of a class, with those that it inherits."""
    return {name: inspect.getattr_static(cls, name) for name in dir(cls) if not name.startswith("_")}


def test_the_synchronous_classes_are_those_that_the_asyncio_classes_give() -> None:
    """`make sync` writes them."""
    command = [sys.executable, "tools/generate_sync.py", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_class_exists_for_threads_and_for_asyncio() -> None:
    kinds = {"Trainer", "Batch", "Environment", "Replay", "Sample", "Worker", "Curriculum", "ItemStream", "Permit"}
    assert {sync.__name__ for sync, _ in PAIRS} == kinds


@pytest.mark.parametrize(("sync", "original"), PAIRS)
def test_both_kinds_of_a_class_have_the_same_methods_and_parameters(sync: type, original: type) -> None:
    """The generator is not asked: a method that it left out would be missing from the comparison with it."""
    theirs = {"close" if name == "aclose" else name: member for name, member in public(original).items()}
    attributes = {name for cls in original.__mro__ for name in inspect.get_annotations(cls) if name[0] != "_"}
    assert public(sync).keys() == theirs.keys() | attributes
    for name, member in theirs.items():
        if inspect.isfunction(member):
            twin = public(sync)[name]
            assert inspect.isfunction(twin)
            assert inspect.signature(twin).parameters == inspect.signature(member).parameters, name


@pytest.mark.parametrize(("sync", "original"), [(Trainer, AsyncTrainer), (Replay, AsyncReplay)])
def test_both_kinds_of_a_class_are_made_in_the_same_way(sync: type, original: type) -> None:
    assert inspect.signature(sync).parameters == inspect.signature(original).parameters


def test_docstrings_of_the_synchronous_classes_say_nothing_of_asyncio() -> None:
    """Editors show them."""
    for sync, _ in PAIRS:
        members = [member.fget if isinstance(member, property) else member for member in public(sync).values()]
        for said in map(inspect.getdoc, [sync, *members]):
            assert said
            assert not re.search("async|await|event loop", said)
    assert "in any number of threads" in (inspect.getdoc(lachesis.Curriculum.items) or "")
    assert "in any number of tasks" in (inspect.getdoc(lachesis.AsyncCurriculum.items) or "")


def test_the_formats_can_be_imported_without_an_http_client() -> None:
    """As the service does."""
    code = "import sys, lachesis.wire.columns; sys.exit('httpx' in sys.modules or 'lachesis.runs' in sys.modules)"
    assert in_process(code).returncode == 0
