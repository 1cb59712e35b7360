"""Read the keys of a fragment (`lachesis.wire.fragments.FRAGMENT_KEYS`): worker, number and others."""

import json
from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from app.api.codec.json_reader import Path, check_known, check_structure, described, minified, parse_in_python
from app.api.codec.policy_versions import oldest_version
from app.core.replay.buffer import Versions
from app.store.groups.encoded_group import Payload
from app.store.replay.entries import EncodedFragment
from lachesis.wire.body import MAX_INTEGER
from lachesis.wire.errors import InvalidField, MalformedBody
from lachesis.wire.fragments import FRAGMENT_KEYS, POLICY_VERSIONS, EpisodeIds, FragmentFacts, Number
from lachesis.wire.groups import MAX_COST
from lachesis.wire.replay import Priority, Session, Worker

_TEXT = "worker"  # plain text in a blob's metadata; the others are JSON there
_FACTS = set(FragmentFacts.model_fields)


class FragmentKeys(BaseModel):
    """A fragment's keys, read from JSON values."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    worker: Worker
    number: Number
    session: Session = 0
    policy_version: Annotated[int, Field(ge=0, le=MAX_INTEGER)]
    episodes: EpisodeIds | None = None
    reward: float | None = None
    cost: Annotated[float, Field(ge=0, le=MAX_COST)] | None = None
    priority: Priority | None = None
    metadata: dict[str, Any] | None = None


def values_of(metadata: Mapping[str, str], path: Path) -> dict[str, Any]:
    """Read the strings of a blob's metadata as JSON values.

    Raises:
        InvalidField: One is not JSON, or unknown.
    """
    values: dict[str, Any] = {}
    check_known(metadata, FRAGMENT_KEYS, path)
    for name, text in metadata.items():
        try:
            values[name] = text if name == _TEXT else parse_in_python(text.encode())
        except MalformedBody as error:
            raise InvalidField(str(error), (*path, name)) from error
    return values


def encoded(values: Mapping[str, Any], payload: Payload, versions: NDArray[Any] | None, path: Path) -> EncodedFragment:
    """Check a fragment's keys and build what is stored.

    Args:
        values: Its keys as JSON values, null if absent.
        payload: Its blob.
        versions: The policy version that sampled each step, integers, if the fragment has it.
        path: Where the fragment is in the body.

    Raises:
        InvalidField: A key is wrong, unknown, or missing.
    """
    given = {name: value for name, value in values.items() if value is not None}
    check_structure(given, path)
    if versions is not None:
        oldest = oldest_version(versions, (*path, POLICY_VERSIONS))
        if given.setdefault("policy_version", oldest) != oldest:
            raise InvalidField(f"is not {oldest}, the oldest of {POLICY_VERSIONS}", (*path, "policy_version"))
    try:
        keys = FragmentKeys.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        shown = "" if first["type"] == "missing" else f", not {described(first['input'])}"
        raise InvalidField(f"{first['msg']}{shown}", (*path, *first["loc"])) from None
    return EncodedFragment(
        worker=keys.worker,
        session=keys.session,
        number=keys.number,
        versions=_versions(keys.policy_version, versions),
        payload=payload,
        priority=keys.priority,
        facts=minified(keys.model_dump(include=_FACTS, exclude_none=True)).decode(),
    )


def as_strings(values: Mapping[str, Any]) -> dict[str, str]:
    """Return keys as the strings of a blob's metadata."""
    return {
        name: value if name == _TEXT else json.dumps(value, ensure_ascii=False)
        for name, value in values.items()
        if value is not None
    }


def _versions(oldest: int, versions: NDArray[Any] | None) -> Versions:
    if versions is None:
        return Versions(oldest, float(oldest), oldest)
    return Versions(oldest, float(versions.mean(dtype=np.float64)), int(versions.max()), len(versions))
