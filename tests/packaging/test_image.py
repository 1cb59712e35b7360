"""The Dockerfile, as far as it can be tried where there is no Docker: its lines are carried out in a directory.

Not covered: that the base image exists under its tag, Docker's own build, and the user it runs as.
"""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.packaging.conftest import SERVICES
from tests.packaging.tree import BIN, ROOT, check
from tests.ports import free_port


def instructions() -> list[tuple[str, str]]:
    """The Dockerfile as (instruction, arguments), comments gone and continued lines joined."""
    text = re.sub(r"^#.*\n", "", (ROOT / "Dockerfile").read_text(), flags=re.M)
    joined = re.sub(r"\\\n\s*", "", text)
    return [(line.split(" ", 1)[0], line.split(" ", 1)[1].strip()) for line in joined.splitlines() if line.strip()]


def test_hadolint_finds_nothing_in_the_dockerfile() -> None:
    check(BIN / "hadolint", "Dockerfile")


def test_shellcheck_finds_nothing_in_the_scripts() -> None:
    check(BIN / "shellcheck", ".ci/run", "tools/venv", "tools/chromium")


def test_the_image_runs_without_root_and_has_a_health_check() -> None:
    last = dict(instructions())
    assert last["USER"] == "10001:10001"
    assert last["EXPOSE"] == "8000"
    assert last["CMD"] == '["python", "-m", "app", "serve"]'
    assert f"--start-period={SERVICES['redis']['healthcheck']['start_period']}" in last["HEALTHCHECK"].split()
    assert last["HEALTHCHECK"].endswith('CMD ["python", "-m", "app.process.health_check"]')
    assert re.fullmatch(r"PYTHON_IMAGE=python:3\.\d+\.\d+-slim-\w+", last["ARG"]), "a moving tag"
    assert {arguments.split(" AS ")[0] for name, arguments in instructions() if name == "FROM"} == {"${PYTHON_IMAGE}"}


def test_dockerignore_lets_through_what_the_image_copies_only() -> None:
    patterns = (ROOT / ".dockerignore").read_text().splitlines()
    copied = {a.split()[0] for name, a in instructions() if name == "COPY" and not a.startswith("--from")}
    assert {pattern[1:] for pattern in patterns if pattern.startswith("!")} == copied
    assert "*" in patterns


@dataclass
class Image:
    """The Dockerfile carried out in a directory of the host instead of a container."""

    root: Path
    cwd: Path = Path("/")
    env: dict[str, str] = field(default_factory=lambda: {"PATH": f"{BIN}:{os.defpath}"})
    health: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)

    def here(self, text: str) -> str:
        """Map the image's paths into ``root``, and its user to who we are."""
        mapped = re.sub(r"(?<![\w./])/(?=(?:opt/venv|srv/lachesis|build|data)\b)", f"{self.root}/", text)
        return mapped.replace("10001", str(os.getuid()))

    def carry_out(self, name: str, arguments: str) -> None:
        match name:
            case "WORKDIR":
                self.cwd = Path(self.here(arguments))
                self.cwd.mkdir(parents=True)
            case "COPY" if not arguments.startswith("--from"):
                source, target = arguments.split()
                self.copy(ROOT / source, self.cwd / self.here(target))
            case "RUN":
                subprocess.run(["/bin/sh", "-ec", self.here(arguments)], cwd=self.cwd, env=self.env, check=True)
            case "ENV":
                pairs = dict(pair.split("=", 1) for pair in shlex.split(self.here(arguments)))
                self.env |= {key: value.replace("$PATH", self.env["PATH"]) for key, value in pairs.items()}
            case "HEALTHCHECK":
                self.health = json.loads(self.here(arguments[arguments.index("CMD ") + 4 :]))
            case "CMD":
                self.command = json.loads(arguments)

    def copy(self, source: Path, target: Path) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target)

    def files(self) -> set[Path]:
        """All but what is in the volume."""
        return {path for path in self.root.rglob("*") if (self.root / "data") not in path.parents}

    def healthy(self) -> bool:
        return subprocess.run(self.health, env=self.env, capture_output=True, check=False).returncode == 0


@pytest.fixture(scope="module")
def image() -> Iterator[Image]:
    # Not tmp_path: the socket of the embedded server lies in /data, and a socket's path may not be long.
    with tempfile.TemporaryDirectory(prefix="lachesis-image-") as root:
        image = Image(Path(root).resolve())
        for name, arguments in instructions():
            image.carry_out(name, arguments)
        yield image


@pytest.mark.long
def test_each_run_line_of_the_dockerfile_works(image: Image) -> None:
    where = "import app.main, lachesis, numpy; print(app.__file__, lachesis.__file__, numpy.__file__)"
    result = subprocess.run(
        ["python", "-c", where], cwd=image.cwd, env=image.env, check=True, capture_output=True, text=True
    )
    assert all(path.startswith(str(image.root)) for path in result.stdout.split())
    assert list((image.cwd / "app").rglob("*.pyc")), "bytecode must be in the image: the container cannot write it"
    assert not list((image.root / "opt/venv").glob("**/site-packages/pip")), "nothing installs into a running container"


@pytest.mark.long
def test_the_image_serves_and_writes_to_its_volume_only(image: Image) -> None:
    """Its CMD, ENV and HEALTHCHECK as processes of this machine; the port and the address are a test's."""
    image.env |= {"LACHESIS_HOST": "127.0.0.1", "LACHESIS_PORT": str(free_port())}
    before = image.files()
    assert not image.healthy(), "healthy before it serves"
    with subprocess.Popen(image.command, cwd=image.cwd, env=image.env) as service:
        try:
            deadline = time.monotonic() + 30
            while not image.healthy():
                assert service.poll() is None, "it ended"
                assert time.monotonic() < deadline, "it never became healthy"
            url = f"http://127.0.0.1:{image.env['LACHESIS_PORT']}/"
            assert json.load(urllib.request.urlopen(url)) == {"message": "AtroposLib API"}
        finally:
            service.send_signal(signal.SIGTERM)
        assert service.wait(40) == 0
    assert not image.healthy()
    assert image.files() == before
    assert any((image.root / "data").iterdir())
