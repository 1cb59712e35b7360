"""The rules of the house that no linter knows. CONTRIBUTING.md lists them for people."""

import ast
import importlib
import pkgutil
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import get_args, get_origin

import pytest
from pydantic import BaseModel

import app
from app import events
from app.core import errors
from app.settings import Settings
from app.telemetry import METRICS
from lachesis.wire.status import RunStatus

ROOT = Path(__file__).parents[1]
MODULES = sorted([*ROOT.glob("app/**/*.py"), *ROOT.glob("clients/**/*.py")])
SCRIPTS = sorted(ROOT.glob("app/store/lua/**/*.lua"))

MODULE_LIMIT, SCRIPT_LIMIT = 500, 60

UNSAFE_MODULES = {"pickle", "cPickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "torch"}
UNSAFE_CALLS = {"eval", "exec", "yaml.load", "yaml.unsafe_load", "yaml.full_load", "numpy.load", "np.load"}
# Written so that this file does not match itself.
HOSTS = re.compile(
    r"py[p]i\.org|python[h]osted\.org|npm[j]s\.(org|com)|deb[.]debian\.org|crates[.]io|proxy[.]golang", re.I
)
MACHINE = re.compile(r"(?<![\w.])/(?:work|root|opt/wheels|opt/p[y]pi[\w-]*)/")


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def lines(path: Path) -> int:
    return len(path.read_text().splitlines())


def tracked() -> list[Path]:
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("not a git clone: cannot tell which files are tracked")
    listing = ["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listing, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [ROOT / name for name in names.split("\0") if name and (ROOT / name).is_file()]


def table_paths(markdown: str) -> Iterator[str]:
    """What a table's cells name in backticks that looks like a path of this repository."""
    for line in markdown.splitlines():
        if line.startswith("|"):
            yield from re.findall(r"`([\w.-]+/[\w./*-]*)`", line)


def subclasses(cls: type[errors.LachesisError]) -> Iterator[type[errors.LachesisError]]:
    for sub in cls.__subclasses__():
        yield sub
        yield from subclasses(sub)


def import_everything() -> None:
    for module in pkgutil.walk_packages(app.__path__, "app."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)


@pytest.mark.parametrize("module", MODULES, ids=relative)
def test_no_module_has_grown_past_its_limit(module: Path) -> None:
    assert lines(module) <= MODULE_LIMIT, f"{relative(module)} is longer than {MODULE_LIMIT} lines: split it by subject"


@pytest.mark.parametrize("module", MODULES, ids=relative)
def test_no_module_can_run_code_it_was_sent(module: Path) -> None:
    """Environments run code that models wrote: nothing here may turn bytes into code."""
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.Import):
            assert not {alias.name.split(".")[0] for alias in node.names} & UNSAFE_MODULES
        elif isinstance(node, ast.ImportFrom):
            assert (node.module or "").split(".")[0] not in UNSAFE_MODULES
        elif isinstance(node, ast.Call):
            assert ast.unparse(node.func) not in UNSAFE_CALLS, f"{relative(module)}:{node.lineno}"


def test_there_are_scripts_to_hold_to_the_rules() -> None:
    assert SCRIPTS


@pytest.mark.parametrize("script", SCRIPTS, ids=relative)
def test_every_script_is_short_and_opens_with_its_contract(script: Path) -> None:
    """`name: purpose`; each KEYS[i] with type and contents; ARGV; Returns; Cost. A fragment has only the first."""
    source = script.read_text()
    first, _, rest = source.partition("\n")
    is_command = first.startswith("#!lua")
    header = re.match(r"(?:--.*\n)+", rest if is_command else source)
    assert lines(script) <= SCRIPT_LIMIT
    assert header, "no header"
    assert header[0].startswith(f"-- {script.stem}: "), "the header opens with the file's name"
    body = source[source.index(header[0]) + len(header[0]) :]
    assert "\n-- Returns " in header[0] or not is_command
    assert "\n-- Cost: O(" in header[0] or not is_command
    assert ("ARGV" in header[0]) == ("ARGV" in body) or not is_command
    described = re.findall(r"^-- KEYS\[(\d+)[.]*\] .*\b(?:hash|zset|set|list|string|stream)\b", header[0], re.M)
    # A fragment's KEYS are those of the command that includes it, whose header is held to them by test_scripts.py.
    assert set(re.findall(r"KEYS\[(\d+)\]", body)) <= set(described) or not is_command


def test_every_file_the_architectures_table_names_exists() -> None:
    named = list(table_paths((ROOT / "ARCHITECTURE.md").read_text()))
    assert named
    assert [name for name in named if not any(ROOT.glob(name.rstrip("/")))] == []


def variables(text: str) -> set[str]:
    return set(re.findall(r"\bLACHESIS_[A-Z0-9_]+\b", text))


SETTINGS = {f"LACHESIS_{name.upper()}" for name in Settings.model_fields}


@pytest.mark.parametrize("page", ["docs/operations.md", ".env.example"])
def test_every_setting_is_documented(page: str) -> None:
    assert SETTINGS - variables((ROOT / page).read_text()) == set()


def status_fields(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Every key of a reply by its path, such as ``leases[].step``."""
    for name, field in model.model_fields.items():
        yield prefix + name
        for part in (field.annotation, *get_args(field.annotation)):
            if isinstance(part, type) and issubclass(part, BaseModel):
                many = "[]" if get_origin(field.annotation) is list else ""
                yield from status_fields(part, f"{prefix}{name}{many}.")


def test_every_field_of_the_status_is_documented_and_no_other() -> None:
    table = (ROOT / "docs/operations.md").read_text().partition("## Fields of `GET /status`")[2].partition("\n## ")[0]
    assert sorted(re.findall(r"^\| `([^`]+)` \|", table, re.M)) == sorted(status_fields(RunStatus))


def test_every_metric_is_documented_with_its_kind_and_labels_and_no_other() -> None:
    table = (ROOT / "docs/operations.md").read_text().partition("## Metrics")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| ([^|]+) \| ([^|]+) \|$", table, re.M)
    documented = [(name, kind, tuple(re.findall(r"`(\w+)`", labels))) for name, kind, labels, _ in rows]
    assert documented == [(metric.name, metric.kind.value, metric.labels) for metric in METRICS]


def test_every_event_is_documented_and_no_other() -> None:
    table = (ROOT / "docs/operations.md").read_text().partition("## The log")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.+) \| [^|]+ \|$", table, re.M)
    kinds = [value for value in vars(events).values() if isinstance(value, type) and issubclass(value, events.Event)]
    messages = {re.sub(r"(?<!^)(?=[A-Z])", " ", kind.__name__).lower() for kind in kinds} - {"event"}
    assert {message for row in rows for message in re.findall(r"`([^`]+)`", row)} == messages


def test_the_example_names_no_variable_that_nothing_reads() -> None:
    compose = variables((ROOT / "docker-compose.yml").read_text())
    assert variables((ROOT / ".env.example").read_text()) - SETTINGS - compose == set()


@pytest.mark.parametrize(
    ("page", "line"),
    [(".env.example", r"^#(LACHESIS_\w+)=(.*)$"), ("docs/operations.md", r"^\| `(LACHESIS_\w+)` \| `(.+?)` \|")],
)
def test_the_defaults_shown_to_people_are_the_defaults(page: str, line: str) -> None:
    shown = dict(re.findall(line, (ROOT / page).read_text(), re.M))
    for name, field in Settings.model_fields.items():
        if field.default is not None:
            parsed = Settings.model_validate({name: shown[f"LACHESIS_{name.upper()}"]})
            assert getattr(parsed, name) == field.default, name


def test_the_tree_of_errors_is_drawn_as_it_is() -> None:
    """Every class under its parent in the docstring of `app/core/errors.py`, wherever it is defined."""
    import_everything()
    drawn: dict[str, str] = {}
    path: list[str] = []
    for indent, name in re.findall(r"^ {4}([│├└─ ]*)([A-Z]\w+)", errors.__doc__ or "", re.M):
        depth = len(indent) // 4
        path[depth:] = [name]
        if depth:
            drawn[name] = path[depth - 1]
    assert drawn == {cls.__name__: cls.__bases__[0].__name__ for cls in subclasses(errors.LachesisError)}


def test_every_error_has_a_code_of_its_own() -> None:
    import_everything()
    classes: list[type[errors.LachesisError]] = [errors.LachesisError, *subclasses(errors.LachesisError)]
    assert [cls.__name__ for cls in classes if "code" not in vars(cls)] == []
    assert len({cls.code for cls in classes}) == len(classes)


def test_no_file_names_a_package_registry_or_a_path_of_one_machine() -> None:
    found = []
    for path in tracked():
        text = path.read_bytes().decode("utf-8", "ignore")
        found += [f"{relative(path)}: {match[0]}" for match in [*HOSTS.finditer(text), *MACHINE.finditer(text)]]
    assert found == []


def requirements(lock: str) -> dict[str, str]:
    """Every pinned package of a lock and its version, from its unindented lines."""
    text = (ROOT / "requirements" / lock).read_text()
    pins = [line for line in text.splitlines() if line and not line.startswith(("#", " "))]
    assert all(re.match(r"[\w.\[\]-]+==[\w.+!-]+( ; .+)? \\$", pin) for pin in pins)
    return dict(pin.split(" ")[0].split("==") for pin in pins)


def test_what_developers_have_holds_all_that_the_server_has() -> None:
    """`make run` and `make test` share .venv: neither may change a version the other installed."""
    assert requirements("server.lock").items() <= requirements("dev.lock").items()
