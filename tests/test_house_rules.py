"""House rules that no linter checks. CONTRIBUTING.md lists them."""

import ast
import importlib
import pkgutil
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path, PurePath

import pytest

import app
from app.settings import ServiceSettings
from lachesis.wire import errors

ROOT = Path(__file__).parents[1]
MODULES = sorted([*ROOT.glob("app/**/*.py"), *ROOT.glob("clients/**/*.py")])
TESTS = sorted(ROOT.glob("tests/**/test_*.py"))
BESIDE = [file for folder in ("tests", "benchmarks", "examples", "tools") for file in ROOT.glob(f"{folder}/**/*.py")]
SCRIPTS = sorted(ROOT.glob("app/store/lua/**/*.lua"))

MODULE_LIMIT, SCRIPT_LIMIT, NAME_LIMIT = 500, 60, 15

UNSAFE_MODULES = {"pickle", "cPickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "torch"}
UNSAFE_CALLS = {
    *("eval", "exec", "yaml.load", "yaml.unsafe_load", "yaml.full_load", "numpy.load", "np.load", "torch.load"),
    *("os.system", "os.popen", "asyncio.create_subprocess_shell"),
}
# Written so that this file does not match itself.
HOSTS = re.compile(
    r"py[p]i\.org|python[h]osted\.org|npm[j]s\.(org|com)|deb[.]debian\.org|crates[.]io|proxy[.]golang", re.I
)
MACHINE = re.compile(r"(?<![\w.])/(?:work|root|opt/wheels|opt/p[y]pi[\w-]*)/")


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT) if path.is_relative_to(ROOT) else path)


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


def import_everything() -> None:
    for module in pkgutil.walk_packages(app.__path__, "app."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)


def too_long(module: Path) -> Iterator[str]:
    """Name a module that is longer than one subject needs."""
    if lines(module) > MODULE_LIMIT:
        yield f"{relative(module)} has more than {MODULE_LIMIT} lines: split it by subject"


def runs_code_it_was_sent(module: Path) -> Iterator[str]:
    """Name imports and calls that turn bytes into code. Environments run code that models wrote."""
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.Import):
            named = {alias.name.split(".")[0] for alias in node.names} & UNSAFE_MODULES
        elif isinstance(node, ast.ImportFrom):
            named = {(node.module or "").split(".")[0]} & UNSAFE_MODULES
        elif isinstance(node, ast.Call):
            named = {ast.unparse(node.func)} & UNSAFE_CALLS
            named |= {"shell" for option in node.keywords if option.arg == "shell"}
        else:
            continue
        yield from (f"{relative(module)}:{node.lineno} uses {name}, which can run code" for name in named)


def describes_itself(module: Path) -> Iterator[str]:
    """Name functions whose docstring starts without a verb: ``Whether`` in place of ``Return whether``."""
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            is_property = any("property" in ast.unparse(decorator) for decorator in node.decorator_list)
            if not is_property and re.match("(Whether|The|All|How|What) ", ast.get_docstring(node) or ""):
                yield f"{relative(module)}:{node.lineno} start the docstring of {node.name} with a verb"


@pytest.mark.parametrize("rule", [too_long, runs_code_it_was_sent, describes_itself])
def test_every_module_keeps_the_rule(rule: Callable[[Path], Iterator[str]]) -> None:
    assert MODULES
    assert [offence for module in MODULES for offence in rule(module)] == []


def test_no_module_beside_the_code_is_too_long() -> None:
    assert BESIDE
    assert [offence for module in sorted(BESIDE) for offence in too_long(module)] == []


@pytest.mark.parametrize(
    ("source", "offences"),
    [
        ("import pickle", 1),
        ("import os, marshal.x as y", 1),
        ("from torch import load", 1),
        ("def f():\n  return eval('1')\nyaml.load(f)", 2),
        ("torch.load(f)\nos.system(f)\nsubprocess.run(f, shell=True)", 3),
        ("import json\njson.loads('1')\nyaml.safe_load(f)\nevaluate(1)", 0),
    ],
)
def test_unsafe_code_is_found(source: str, offences: int, tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text(source)
    assert len(list(runs_code_it_was_sent(module))) == offences


def long_names(module: Path) -> Iterator[str]:
    """Name tests whose name is no short sentence."""
    for name in re.findall(r"^ *(?:async )?def test_(\w+)", module.read_text(), re.M):
        if len(name.split("_")) > NAME_LIMIT:
            yield f"{relative(module)}: test_{name} has more than {NAME_LIMIT} words"


def test_the_name_of_a_test_is_a_short_sentence() -> None:
    assert TESTS
    assert [offence for module in TESTS for offence in long_names(module)] == []


@pytest.mark.parametrize(("words", "offences"), [(NAME_LIMIT, 0), (NAME_LIMIT + 1, 1)])
@pytest.mark.parametrize("keyword", ["def", "    async def"])
def test_a_long_name_is_found(keyword: str, words: int, offences: int, tmp_path: Path) -> None:
    module = tmp_path / "test_module.py"
    module.write_text(f"{keyword} test{'_word' * words}() -> None:\n")
    assert len(list(long_names(module))) == offences


def script_faults(script: Path) -> Iterator[str]:
    """Say what is wrong with the header of a script, or with its length.

    The header has the line `name: purpose`, Returns, and Cost; a fragment has only the first. Lines that name KEYS and
    ARGV do not count: `tests/store/redis/test_scripts.py` checks them.
    """
    source = script.read_text()
    first, _, rest = source.partition("\n")
    header = re.match(r"(?:--.*\n)+", rest if first.startswith("#!lua") else source)
    code = [line for line in source.splitlines() if not re.match(r"--|local \w+ = .*\b(KEYS|ARGV)\b", line)]
    if len(code) > SCRIPT_LIMIT:
        yield f"it has more than {SCRIPT_LIMIT} lines"
    if header is None or not header[0].startswith(f"-- {script.stem}: "):
        yield f"it does not open with `-- {script.stem}: `"
        return
    if not first.startswith("#!lua"):
        return
    for part in ("\n-- Returns ", "\n-- Cost: O("):
        if part not in header[0]:
            yield f"its header has no `{part.strip()}`"


def test_every_script_is_short_and_has_a_header() -> None:
    assert SCRIPTS
    assert [f"{relative(script)}: {fault}" for script in SCRIPTS for fault in script_faults(script)] == []


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        ("return 1\n", "does not open with"),
        ("-- other: does it\nreturn 1\n", "does not open with"),
        ("#!lua\n-- named: does it\n--\n-- Cost: O(1)\nreturn 1\n", "no `-- Returns`"),
        ("#!lua\n-- named: does it\n--\n-- Returns 1\nreturn 1\n", "no `-- Cost: O(`"),
        ("-- named: does it\n" + "return\n" * (SCRIPT_LIMIT + 1), "lines"),
    ],
)
def test_a_fault_of_a_script_is_found(source: str, fault: str, tmp_path: Path) -> None:
    script = tmp_path / "named.lua"
    script.write_text(source)
    (found,) = script_faults(script)
    assert fault in found


def test_every_file_the_architectures_table_names_exists() -> None:
    named = list(table_paths((ROOT / "ARCHITECTURE.md").read_text()))
    assert named
    assert [name for name in named if not any(ROOT.glob(name.rstrip("/")))] == []


def test_every_path_that_is_named_exists() -> None:
    """In backticks in Markdown, docstrings and comments. Paths may start at `app`, `app/store` or the file's folder."""
    files = {relative(file) for file in tracked()}
    known = files | {str(folder) for file in files for folder in PurePath(file).parents}

    def missing(file: str) -> Iterator[str]:
        roots = ("", "app", "app/store", str(PurePath(file).parent))
        for named in re.findall(r"`((?:app|clients|tests|docs|benchmarks|lua)/[\w./-]+)`", (ROOT / file).read_text()):
            if "NOUN" not in named and not any(str(PurePath(root, named)) in known for root in roots):
                yield f"{file} names {named}"

    texts = [file for file in sorted(files) if file.endswith((".md", ".py", ".lua")) and file != "CHANGELOG.md"]
    assert [name for file in texts for name in missing(file)] == []


def variables(text: str) -> set[str]:
    return set(re.findall(r"\bLACHESIS_[A-Z0-9_]+\b", text))


SETTINGS = {f"LACHESIS_{name.upper()}" for name in ServiceSettings.model_fields}


def test_the_example_names_every_setting() -> None:
    """`tests/tools/test_reference_pages.py` holds the documents to the settings."""
    assert SETTINGS - variables((ROOT / ".env.example").read_text()) == set()


def test_the_example_names_no_variable_that_nothing_reads() -> None:
    compose = variables((ROOT / "docker-compose.yml").read_text())
    assert variables((ROOT / ".env.example").read_text()) - SETTINGS - compose == set()


def test_the_defaults_in_the_example_are_the_defaults() -> None:
    shown = dict(re.findall(r"^#(LACHESIS_\w+)=(.*)$", (ROOT / ".env.example").read_text(), re.M))
    for name, field in ServiceSettings.model_fields.items():
        if field.default is not None:
            parsed = ServiceSettings.model_validate({name: shown[f"LACHESIS_{name.upper()}"]})
            assert getattr(parsed, name) == field.default, name


def test_every_error_has_its_own_code_and_one_definition() -> None:
    import_everything()
    classes = list(errors.descendants(errors.ServiceError))
    assert [cls.__name__ for cls in classes if "code" not in vars(cls)] == []
    assert {cls.code: cls for cls in classes} == errors.BY_CODE
    assert len(errors.BY_CODE) == len(classes)


def test_no_line_of_the_changelog_is_left_over_from_another_entry() -> None:
    """A merge may leave the end of an old text below the new one."""
    changelog = (ROOT / "CHANGELOG.md").read_text() + (ROOT / "docs/design/earlier-builds.md").read_text()
    assert re.findall(r"\.\n( +[a-z].*)", changelog) == []


def test_no_file_names_a_registry_or_a_path_of_one_machine() -> None:
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
    locks = ("server.lock", "otel.lock", "dev.lock", "docs.lock")
    for smaller, larger in pairwise(locks):
        assert requirements(smaller).items() <= requirements(larger).items(), f"{smaller} and {larger}"


def described_attributes(node: ast.ClassDef) -> set[str]:
    """The names that the docstring of a class lists under ``Attributes``."""
    _, _, listed = (ast.get_docstring(node) or "").partition("Attributes:\n")
    return set(re.findall(r"^ {4}(\w+): ", listed.partition("\n\n")[0], re.MULTILINE))


def fields_of(node: ast.ClassDef) -> set[str]:
    """The fields of a dataclass, a model or a named tuple; none of a class that sets its attributes itself."""
    if any(isinstance(one, ast.FunctionDef) and one.name == "__init__" for one in node.body):
        return set()
    return {one.target.id for one in node.body if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)}


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_a_class_of_fields_describes_fields_that_it_has(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ClassDef) and (fields := fields_of(node)):
            assert described_attributes(node) <= fields, f"{node.name} describes a field that it does not have"
