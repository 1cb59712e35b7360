"""The wheel of the SDK on the oldest versions that it supports: of Python, where there is one, and of numpy."""

import asyncio
import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from redis.asyncio import Redis

from tests.api.conftest import running_service
from tests.packaging.tree import ROOT

THIS = "{}.{}".format(*sys.version_info)
OLDEST = "3.10"
LAST_WITH_NUMPY_1 = (3, 12)

PACKAGES = ("pytest", "pytest-asyncio", "pytest-timeout", "hypothesis", "safetensors", "ml-dtypes")
TESTS = [
    *(f"tests/clients/test_{name}.py" for name in ("public", "sync")),
    *(f"tests/clients/transport/test_{name}.py" for name in ("portal", "retry", "settings")),
    *(f"tests/clients/wire/test_{name}.py" for name in ("batch_file", "blob", "columns", "sequences")),
    *(f"tests/clients/loader/test_{name}.py" for name in ("nested", "order", "window")),
    "tests/clients/batches/test_views.py",
    "tests/clients/environments/test_outbox.py",
]

pytestmark = [pytest.mark.long, pytest.mark.at_length, pytest.mark.timeout(900)]


def works(python: str | Path, version: str) -> bool:
    """Return whether it is an interpreter of this version that really runs; a shim of pyenv may exist and fail."""
    code = f"import sys, ensurepip, venv; sys.exit('{{}}.{{}}'.format(*sys.version_info) != '{version}')"
    try:
        return subprocess.run([python, "-c", code], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def interpreter(version: str) -> str:
    """Return an interpreter of this version, or skip the test."""
    found = [sys.executable, shutil.which(f"python{version}")]
    if pyenv := shutil.which("pyenv"):
        prefix = subprocess.run([pyenv, "prefix", version], capture_output=True, text=True, check=False)
        found.append(f"{prefix.stdout.strip()}/bin/python")
    for python in found:
        if python is not None and works(python, version):
            return python
    pytest.skip(f"no Python {version} here; `make lint` checks the types of the SDK for it")


@pytest.fixture(params=sorted({OLDEST, THIS}))
def python(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """An interpreter with the wheel of the SDK and numpy 1.26."""
    version: str = request.param
    if tuple(map(int, version.split("."))) > LAST_WITH_NUMPY_1:
        pytest.skip(f"numpy 1.26 has no wheels for Python {version}")
    python, dist = tmp_path / "venv/bin/python", tmp_path / "dist"
    run(interpreter(version), "-m", "venv", tmp_path / "venv")
    run(sys.executable, "-m", "hatchling", "build", "--target", "wheel", "-d", dist)
    install = ("-m", "pip", "install", "--quiet", "--only-binary", ":all:", "--disable-pip-version-check")
    run(python, *install, *dist.glob("*.whl"), "numpy==1.26.*", *PACKAGES)
    return python


def run(*command: str | Path) -> None:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


async def run_in(python: Path, *arguments: str | Path, url: str) -> str:
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("LACHESIS_", "PYTHON"))}
    process = await asyncio.create_subprocess_exec(
        python,
        *arguments,
        cwd=ROOT,
        env=environ | {"LACHESIS_URL": url, "LACHESIS_RUN": "demo", "PYTHONDONTWRITEBYTECODE": "1"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    out = (await process.communicate())[0].decode()
    assert process.returncode == 0, out
    return out


async def test_the_sdk_works_with_numpy_1(python: Path, redis_url: str, redis_client: Redis) -> None:
    """Its own tests, the synchronous classes against a real service, and the examples."""
    async with running_service(redis_url) as client:
        run_here = functools.partial(run_in, python, url=str(client.base_url))
        where = await run_here("-c", "import lachesis, numpy; print(lachesis.__file__, numpy.__version__)")
        assert where.startswith(str(python.parents[1]))
        assert " 1.26." in where
        config = ("--noconftest", "-p", "no:cacheprovider", "-o", "pythonpath=.", "-p", "tests.packaging.live_run")
        said = await run_here("-m", "pytest", "-q", *config, *TESTS)
        assert " passed" in said

        programs = (run_here(f"examples/{name}.py") for name in ("trainer", "environment"))
        trained, made = await asyncio.gather(*programs)
        assert trained.count("mean score") == 5
        assert "{'accepted': 20}" in made
        assert "80 attempts" in await run_here("examples/curriculum.py", "--attempts", "80")
