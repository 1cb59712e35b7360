"""Check the policy versions of a group's tokens or a fragment's steps."""

from collections.abc import Callable
from typing import Any

from numpy.typing import NDArray

from app.api.codec.json_reader import Path
from lachesis.wire.body import MAX_INTEGER
from lachesis.wire.errors import InvalidField


def oldest_version(
    versions: NDArray[Any], path: Path, place: Callable[[int], Path] = lambda position: (position,)
) -> int:
    """Return the oldest version, if all are from 0 to `MAX_INTEGER`.

    Args:
        versions: Integers, in one dimension.
        path: Where they are in the body.
        place: Returns where the version of a position is below ``path``.

    Raises:
        InvalidField: There is none, or one is out of range.
    """
    if not versions.size:
        raise InvalidField("is empty", path)
    first, last = int(versions.argmin()), int(versions.argmax())
    oldest, newest = int(versions[first]), int(versions[last])
    if oldest < 0:
        raise InvalidField(f"is negative: {oldest}", (*path, *place(first)))
    if newest > MAX_INTEGER:
        raise InvalidField(f"is above {MAX_INTEGER}: {newest}", (*path, *place(last)))
    return oldest
