"""The Makefile and tools/venv, tried as on a fresh machine: in a copy, with interpreters that a test chooses."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.ports import free_port
from tests.test_house_rules import requirements

ROOT = Path(__file__).parents[2]
MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = set(re.findall(r"^([a-z0-9-]+):.*## ", MAKEFILE, re.M))

Result = subprocess.CompletedProcess[str]


def outside(**env: str) -> dict[str, str]:
    """Our environment without what the `make test` around these tests, and its user's settings, put there."""
    ours = re.compile(r"PYTHON|ARGS|MAKE\w*|MFLAGS|LACHESIS_\w+")
    return {name: value for name, value in os.environ.items() if not ours.fullmatch(name)} | env


def sh(where: Path, *command: str, **env: str) -> Result:
    return subprocess.run(command, cwd=where, env=outside(**env), capture_output=True, text=True, check=False)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A tree with an empty lock, so that an install takes no network."""
    tree = tmp_path / "tree"
    for name in ("tools/venv", "Makefile"):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, tree / name)
    (tree / "requirements").mkdir()
    for name in ("server", "dev"):
        (tree / f"requirements/{name}.lock").write_text(f"# {name}: nothing\n")
    (tree / "clients").symlink_to(ROOT / "clients")
    return tree


@pytest.fixture
def path_of(tmp_path: Path) -> Path:
    """A PATH with what a bare machine has, and no Python."""
    bin_dir = tmp_path / "bin"
    bin_dir.mkdir()
    for tool in ("sh", "cmp", "cp", "rm", "dirname"):
        (bin_dir / tool).symlink_to(shutil.which(tool) or pytest.fail(f"no {tool}"))
    return bin_dir


def interpreter(path: Path, name: str, script: str) -> None:
    """Put a command on the path that behaves as a broken interpreter does."""
    (path / name).write_text(f"#!/bin/sh\n{script}\n")
    (path / name).chmod(0o755)


# ---- the vocabulary


def test_bare_make_lists_every_target_on_a_line_of_its_own() -> None:
    listed = sh(ROOT, "make", "--no-print-directory").stdout.splitlines()
    assert {line.split()[1] for line in listed} == TARGETS
    assert all(re.fullmatch(r"make [a-z0-9-]+ +\S.+", line) for line in listed)
    assert {
        "run",
        "test",
        "test-fast",
        "test-long",
        "mutants",
        "lint",
        "format",
        "e2e",
        "bench",
        "openapi",
        "lock",
        "build",
        "clean",
    } <= TARGETS


def test_every_target_is_phony() -> None:
    phony = re.search(r"^\.PHONY: (.*)$", MAKEFILE.replace("\\\n", ""), re.M)
    assert phony
    assert set(phony[1].split()) >= TARGETS


def test_ci_calls_targets_that_exist_and_ends_with_tests() -> None:
    script = ROOT / ".ci/run"
    steps = re.findall(r"^(?:step make|tests) (\S+)", script.read_text(), re.M)
    assert os.access(script, os.X_OK)
    assert set(steps) <= TARGETS
    assert {"lint", "e2e", "test-browser"} <= set(steps)
    assert steps[-1] == "test"
    rest = "-m 'not e2e and not browser and not at_length' --ignore=tests/test_house_rules.py"  # `make lint` has these
    assert f'\ntests test "{rest}"\n' in script.read_text()


# ---- the interpreter


@pytest.mark.parametrize("version", [(3, 10, 9), (3, 15, 0)])
def test_without_a_fit_python_one_line_says_so(version: tuple[int, ...], tree: Path, path_of: Path) -> None:
    interpreter(path_of, "python3", "exit 127")
    as_version = f"import sys; sys.version_info = {version}; exec(sys.argv[1])"
    interpreter(path_of, "python3.12", f"exec {sys.executable} -c '{as_version}' \"$2\"")
    result = sh(tree, "tools/venv", "server", PATH=str(path_of))
    assert result.returncode == 1
    assert re.fullmatch(r"lachesis: no Python 3\.11 to 3\.14 found .*\n", result.stderr)
    assert not (tree / ".venv").exists()


def test_where_debian_left_ensurepip_out_its_package_is_named(tree: Path, path_of: Path) -> None:
    interpreter(path_of, "python3.12", f'case "$2" in *ensurepip*) exit 1;; esac; exec {sys.executable} "$@"')
    result = sh(tree, "tools/venv", "server", PATH=str(path_of))
    assert result.returncode == 1
    version = "{}.{}".format(*sys.version_info)
    assert re.fullmatch(rf"lachesis: python3\.12 cannot make .* apt-get install python{version}-venv\n", result.stderr)


@pytest.mark.long
@pytest.mark.at_length
def test_a_shim_that_fails_is_passed_over_for_a_python_that_works(tree: Path, path_of: Path) -> None:
    interpreter(path_of, "python3", "echo 'pyenv: python3: command not found' >&2; exit 127")
    interpreter(path_of, "python3.13", "exit 127")
    interpreter(path_of, "python3.12", f'exec {sys.executable} "$@"')
    result = sh(tree, "tools/venv", "server", PATH=str(path_of))
    assert result.returncode == 0, result.stderr
    sdk = sh(tree, ".venv/bin/python", "-c", "import lachesis; print(lachesis.__file__)")
    assert sdk.stdout.startswith(str(tree / "clients")), "the SDK of this tree is importable in its environment"


# ---- the environment


@pytest.mark.long
@pytest.mark.at_length
def test_only_a_failed_install_is_tried_again(tree: Path) -> None:
    lock = tree / "requirements/dev.lock"
    lock.write_text("nothing-of-this-name-exists==1 --hash=sha256:" + "0" * 64)
    offline = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "", "PYTHON": sys.executable}
    for _ in range(2):
        failed = sh(tree, "tools/venv", "dev", **offline)
        assert failed.returncode == 1
        assert "could not install requirements/dev.lock" in failed.stderr
        assert not list((tree / ".venv").glob("*.lock")), "stamped although it failed"
    lock.write_text("# mended\n")
    assert "installing" in sh(tree, "tools/venv", "dev", **offline).stdout
    for name in ("dev", "server"):
        again = sh(tree, "tools/venv", name, **offline)
        assert (again.returncode, again.stdout) == (0, ""), "what developers have holds what the server needs"
    (tree / "requirements/server.lock").write_text("# changed\n")
    assert "installing requirements/server.lock" in sh(tree, "tools/venv", "server", **offline).stdout
    (tree / ".venv/bin/python").unlink()
    assert "making .venv" in sh(tree, "tools/venv", "server", **offline).stdout, "its interpreter went away"


# ---- run and build


@pytest.fixture
def ready_tree(tree: Path) -> Path:
    """A tree that is set up: the service's code, and the environment of these tests."""
    (tree / "app").symlink_to(ROOT / "app")
    return tree


@contextmanager
def make_run(tree: Path, **env: str) -> Iterator[subprocess.Popen[str]]:
    """Run `make run` in a process group of its own, as a terminal would; nothing of it outlives the block."""
    command = ["make", "--no-print-directory", "-o", "venv-server", f"python={sys.executable}", "run"]
    environment = outside(PYTHONPATH=str(ROOT / "clients")) | env
    with subprocess.Popen(
        command, cwd=tree, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, process_group=0
    ) as make:
        try:
            yield make
        finally:
            if make.poll() is None:
                os.killpg(make.pid, signal.SIGTERM)


def says_where_it_listens(make: subprocess.Popen[str], port: int) -> None:
    assert make.stdout
    seen = ""
    for line in make.stdout:
        seen += line
        if f":{port} " in line:
            return
    pytest.fail(f"it ended without saying that it listens on {port}:\n{seen}")


@pytest.mark.long
@pytest.mark.parametrize("how", ["Ctrl-C", "SIGTERM to make", "SIGTERM to the service"])
def test_make_run_ends_the_service_in_good_order(ready_tree: Path, how: str) -> None:
    """Make's own exit code says that it was interrupted; the service's is 0 in each case."""
    port = free_port()
    with make_run(ready_tree, LACHESIS_PORT=str(port)) as make:
        says_where_it_listens(make, port)
        if how == "Ctrl-C":
            os.killpg(make.pid, signal.SIGINT)  # a terminal sends it to the whole foreground group
        elif how == "SIGTERM to make":
            make.terminate()
        else:
            children = Path(f"/proc/{make.pid}/task/{make.pid}/children").read_text().split()
            assert len(children) == 1, "a shell between make and the service would swallow signals"
            os.kill(int(children[0]), signal.SIGTERM)
        rest, _ = make.communicate(timeout=120)
    assert "Traceback" not in rest
    assert (make.returncode == 0) == (how == "SIGTERM to the service"), rest
    with pytest.raises(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
        pass


@pytest.mark.long
def test_make_run_reads_env_and_the_environment_wins(ready_tree: Path) -> None:
    from_file, from_environment = free_port(), free_port()
    (ready_tree / ".env").write_text(f"LACHESIS_PORT={from_file}\n")
    with make_run(ready_tree) as make:
        says_where_it_listens(make, from_file)
    with make_run(ready_tree, LACHESIS_PORT=str(from_environment)) as make:
        says_where_it_listens(make, from_environment)


def test_the_wheel_holds_the_sdk_and_the_sbom_what_the_server_has(tmp_path: Path) -> None:
    for name in ("Makefile", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    vendor = "app/api/pages/vendor"
    for folder in ("clients", "requirements", "tools", vendor):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    built = sh(tmp_path, "make", "-o", "venv-dev", "build", f"python={sys.executable}")
    assert built.returncode == 0, built.stderr
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "lachesis/__init__.py" in names
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"lachesis"}
    listed = json.loads((tmp_path / "dist" / "lachesis-server.cdx.json").read_text())
    assert listed["bomFormat"] == "CycloneDX"
    python = [part for part in listed["components"] if part["purl"].startswith("pkg:pypi/")]
    pages = [part for part in listed["components"] if part not in python]
    assert {part["name"]: part["version"] for part in python} == requirements("server.lock")
    assert all(part["externalReferences"][0]["hashes"] for part in python)
    assert [part["name"] for part in pages] == ["htm", "swagger-ui-dist", "uplot"]
    files = {file["name"] for part in pages for file in part["components"] if file["hashes"]}
    shipped = [path for path in (ROOT / vendor).glob("*/*") if path.name != "manifest.json"]
    assert {path.name for path in shipped} == files


def test_every_install_checks_hashes() -> None:
    installs = [ROOT / "Dockerfile", ROOT / "tools" / "venv"]
    found = [
        line for path in installs for line in commands(path.read_text()) if re.search(r"-m pip\b.* install\b", line)
    ]
    assert len(found) == len(installs)
    assert all("--require-hashes --only-binary :all:" in line for line in found)


def commands(text: str) -> list[str]:
    """The lines of a script or a Dockerfile, with continued lines joined."""
    return re.sub(r"\\\n\s*", "", text).splitlines()
