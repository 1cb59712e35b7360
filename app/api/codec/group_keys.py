"""Read the keys of a group of the native API (`lachesis.wire.groups.GROUP_KEYS`): id, environment and others."""

import uuid
from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from app.api.codec.json_reader import OBJECTS, Path, check_known, check_structure, described, minified, parse_json
from app.api.codec.policy_versions import oldest_version
from lachesis.wire.body import MAX_INTEGER
from lachesis.wire.columns import Ragged, place_of
from lachesis.wire.errors import InvalidField, MalformedBody
from lachesis.wire.groups import GROUP_ID, GROUP_KEYS, MAX_COST, MAX_ITEM

_METADATA = "metadata"


class GroupKeys(BaseModel):
    """A group's keys, read from JSON values or from a blob's strings.

    Attributes:
        metadata: The text of a JSON object.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    id: Annotated[str, Field(pattern=f"^{GROUP_ID}$")] | None = None
    environment: Annotated[int, Field(ge=0, le=MAX_INTEGER)] | None = None
    policy_version: Annotated[int, Field(ge=0, le=MAX_INTEGER)] | None = None
    item: Annotated[str, Field(min_length=1, max_length=MAX_ITEM)] | None = None
    cost: Annotated[float, Field(ge=0, le=MAX_COST)] | None = None
    metadata: str | None = None

    def as_strings(self) -> dict[str, str]:
        """Return the keys that are set as a blob's metadata."""
        return {name: str(value) for name, value in self if value is not None}


def read_keys(values: Mapping[str, Any], versions: Ragged | None, path: Path, *, in_rows: bool) -> GroupKeys:
    """Check a group's keys, create a missing id, and find the oldest policy version.

    Args:
        values: The given keys, JSON values or strings.
        versions: The policy version that sampled each token, if the group has it.
        path: Where the group is in the body.
        in_rows: Whether the body has its columns in rows, as JSON has. A blob has each in one flat tensor.

    Raises:
        InvalidField: A key is wrong or unknown.
    """
    check_known(values, GROUP_KEYS, path)
    given = {name: value for name, value in values.items() if value is not None}
    if "id" not in given:
        given["id"] = str(uuid.uuid4())
    if _METADATA in given:
        given[_METADATA] = _object_text(given[_METADATA], (*path, _METADATA))
    for name, value in given.items():
        if isinstance(value, bool):  # Python would accept them as 1 and 0
            raise InvalidField(f"should be a number or a text, not {described(value)}", (*path, name))
    if versions is not None:
        where = (*path, "policy_versions")
        in_row = partial(place_of, versions)
        oldest = oldest_version(versions.values, where, in_row) if in_rows else oldest_version(versions.values, where)
        if str(given.setdefault("policy_version", oldest)) != str(oldest):
            raise InvalidField(f"is not {oldest}, the oldest of policy_versions", (*path, "policy_version"))
    try:
        return GroupKeys.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = str(first["loc"][0])
        raise InvalidField(f"{first['msg']}, not {described(given[name])}", (*path, name)) from None


def parse_object(text: bytes, path: Path) -> Any:
    """Parse the text of a JSON object inside a body.

    Raises:
        InvalidField: It is not a JSON object, or JSON that readers understand differently.
    """
    try:
        value = parse_json(text)
        check_structure(value, path)
    except MalformedBody as error:
        raise InvalidField(error.detail, path) from error
    if not isinstance(value, OBJECTS):
        raise InvalidField(f"should be a JSON object, not {described(value)}", path)
    return value


def _object_text(value: Any, path: Path) -> str:
    if isinstance(value, str):
        value = parse_object(value.encode(), path)
    if not isinstance(value, OBJECTS):
        raise InvalidField(f"should be a JSON object, not {described(value)}", path)
    return minified(value).decode()
