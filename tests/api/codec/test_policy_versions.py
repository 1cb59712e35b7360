"""Policy versions of groups and fragments are bounded alike, and errors say which version is wrong."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from app.api.codec.fragments import decode_fragments, decode_fragments_json
from app.api.codec.group_blob import decode_blobs
from app.api.codec.group_json import decode_native_json
from lachesis.wire.errors import InvalidField
from tests.api import native_groups
from tests.api.replay.calls import in_binary

VERSIONS = "policy_versions"
Decode = Callable[[list[int]], Any]


def group(versions: list[int]) -> dict[str, Any]:
    return {"tokens": [[1, 2]], "masks": [[1, 2]], "scores": [1.0], VERSIONS: [versions]}


def fragment(versions: list[int]) -> dict[str, Any]:
    return {"worker": "w", "number": 0, "tensors": {VERSIONS: np.array(versions)}}


DECODERS: dict[str, tuple[Decode, tuple[str | int, ...]]] = {
    "group in JSON": (lambda given: decode_native_json(json.dumps(group(given)).encode()), (VERSIONS, 0)),
    "group in binary": (lambda given: decode_blobs(native_groups.in_binary(group(given))), (VERSIONS,)),
    "fragment in JSON": (
        lambda given: decode_fragments_json(json.dumps(native_groups.in_json(fragment(given))).encode()),
        (VERSIONS,),
    ),
    "fragment in binary": (
        lambda given: decode_fragments(in_binary(0, tensors=fragment(given)["tensors"], policy_version=None)),
        (VERSIONS,),
    ),
}


@pytest.mark.parametrize("versions", [[3, 2**53], [2**62, 3], [3, -1]])
@pytest.mark.parametrize("decoder", DECODERS)
def test_a_policy_version_out_of_range_is_refused_by_its_place(decoder: str, versions: list[int]) -> None:
    decode, path = DECODERS[decoder]
    wrong = next(position for position, version in enumerate(versions) if not 0 <= version < 2**53)
    with pytest.raises(InvalidField, match=r"is negative|is above") as refused:
        decode(versions)
    assert refused.value.location == (*path, wrong)


@pytest.mark.parametrize("decoder", DECODERS)
def test_the_largest_policy_version_is_accepted(decoder: str) -> None:
    decode, _ = DECODERS[decoder]
    (decoded,) = decode([3, 2**53 - 1])
    assert decoded.versions.highest == 2**53 - 1
