"""The version of the SDK."""

from functools import cache
from importlib.metadata import PackageNotFoundError, version

UNKNOWN = "unknown"
"""The version in a clone, where the SDK may not be installed."""


@cache
def sdk_version() -> str:
    """Return the version of the SDK that is installed, or `UNKNOWN`."""
    try:
        return version("lachesis")
    except PackageNotFoundError:
        return UNKNOWN
