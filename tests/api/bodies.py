"""Bodies of scored groups for tests, as hypothesis strategies and as JSON."""

import json
import math
from copy import deepcopy
from typing import Any

from hypothesis import strategies as st

FIELDS = (
    "tokens",
    "masks",
    "scores",
    "advantages",
    "ref_logprobs",
    "inference_logprobs",
    "messages",
    "generation_params",
    "overrides",
    "group_overrides",
    "images",
    "env_id",
    "distill_token_ids",
    "distill_logprobs",
)

integers = st.one_of(
    st.integers(-100, 200_000),
    st.sampled_from([2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**63 - 1, -(2**63)]),
    st.integers(-(2**63), 2**63 - 1),
)
floats = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False, width=32),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([0.0, -0.0, 1.0, 5e-324, 1.7976931348623157e308, 3.4028235677973366e38]),
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**40), 10**40) | floats | st.text(max_size=8) | st.just("[\\u005b]"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
json_objects = st.dictionaries(st.text(max_size=5), json_values, max_size=3)
messages = st.builds(
    lambda extra, role, content: extra | {"role": role, "content": content},
    json_objects,
    st.text(max_size=8),
    json_values,
)


def rows(values: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    """Rows of any length, none at all among them."""
    return st.lists(st.lists(values, max_size=4), max_size=3)


@st.composite
def groups(draw: st.DrawFn) -> dict[str, Any]:
    """A valid group with any of the 14 fields, as clients send it."""
    lengths = draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    per_token = {
        name: [draw(st.lists(integers, min_size=length, max_size=length)) for length in lengths]
        for name in ("tokens", "masks")
    }
    optional = {
        "advantages": rows(floats),
        "ref_logprobs": rows(floats),
        "inference_logprobs": st.just([[0.5] * length for length in lengths]) | rows(floats),
        "messages": st.lists(st.lists(messages, max_size=2), max_size=2),
        "generation_params": json_objects,
        "overrides": st.lists(json_objects, max_size=2),
        "group_overrides": json_objects,
        "images": json_values,
        "env_id": st.integers(0, 2**53 - 1),
        "distill_token_ids": st.lists(rows(integers), max_size=3),
        "distill_logprobs": st.lists(rows(floats), max_size=3),
    }
    chosen = draw(st.fixed_dictionaries({}, optional={name: st.none() | own for name, own in optional.items()}))
    scores = draw(st.lists(floats, min_size=len(lengths), max_size=len(lengths)))
    return per_token | {"scores": scores} | chosen


def served(group: dict[str, Any]) -> dict[str, Any]:
    """What a trainer must get for ``group``: all fields, null where absent."""
    return {name: group.get(name) for name in FIELDS}


def exact(value: Any) -> str:
    """Text that is equal for equal values only: it tells 1 from 1.0 and 0.0 from -0.0."""
    return json.dumps(value, sort_keys=True)


ODD_VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 1.0, 1.5, -0.0, math.nan, math.inf, 2**63, -(2**63) - 1, 2**64, 10**30,
    "", "7", " 8 ", "1.0", "nan", "x", "[", [], [[]], [1], [[1]], [[[1]]], ["1"],
    {}, {"role": "user"}, {"role": 1, "content": None}, {"a": [1]},
)  # fmt: skip


@st.composite
def mutated(draw: st.DrawFn) -> dict[str, Any]:
    """A group with one to three values replaced, removed or added, at any depth."""
    group = json.loads(json.dumps(draw(groups())))
    for _ in range(draw(st.integers(1, 3))):
        parent: Any = group
        while True:
            keys = list(parent) if isinstance(parent, dict) else list(range(len(parent)))
            key = draw(st.sampled_from(keys)) if keys else None
            if key is None or not isinstance(parent[key], list | dict) or draw(st.integers(0, 3)) == 0:
                break
            parent = parent[key]
        odd = deepcopy(draw(st.sampled_from(ODD_VALUES)))
        if key is None:
            parent.append(odd) if isinstance(parent, list) else parent.update(odd=odd)
        elif draw(st.integers(0, 5)) == 0:
            del parent[key]
        else:
            parent[key] = odd
    return group  # type: ignore[no-any-return]
