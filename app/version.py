"""Find the version of the service."""

import tomllib
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


@cache  # the version of this process, also after its files were replaced
def lachesis_version() -> str:
    """Return the version in this tree's pyproject.toml, or the installed one, or ``unknown`` if there is neither."""
    try:
        project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    except OSError:  # an image may hold no more than app/
        try:
            return version("lachesis")
        except PackageNotFoundError:
            return "unknown"
    return str(project["version"])
