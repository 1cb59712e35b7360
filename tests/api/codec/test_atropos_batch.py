"""Columns into JSON, and replies compressed for those who ask."""

import gzip
import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.api.codec.atropos_batch import batch_json, group_json
from app.api.codec.scored_data import decode_group
from app.api.http.compression import compress_if_accepted
from lachesis.wire.columns import DETAIL_FIELDS, Ragged, pack
from tests.api.bodies import FIELDS, exact, groups, served

DETAILS = json.dumps(dict.fromkeys(DETAIL_FIELDS)).encode()


@given(batch=st.lists(groups(), max_size=4))
def test_a_batch_holds_its_groups_in_order_each_with_all_keys(batch: list[dict[str, Any]]) -> None:
    text = b"".join(batch_json([decode_group(json.dumps(group).encode()).payload for group in batch]))
    assert exact(json.loads(text)) == exact({"batch": [served(group) for group in batch]})


def test_an_empty_batch_is_an_empty_list() -> None:
    assert b"".join(batch_json([])) == b'{"batch":[]}'


def test_a_group_has_each_key_once() -> None:
    payload = decode_group(b'{"tokens":[[1]],"masks":[[1]],"scores":[1],"unknown":5}').payload
    keys = [key for key, _ in json.loads(group_json(payload), object_pairs_hook=list)]
    assert sorted(keys) == sorted(FIELDS)


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1))
def test_floats_stored_in_half_the_bytes_are_written_as_the_doubles_they_were(values: list[float]) -> None:
    one = Ragged(np.ones(1, np.int64), (np.ones(1, np.int64),))
    columns = {"tokens": one, "masks": one, "scores": Ragged(np.array(values, np.float32))}
    written = json.loads(group_json(pack(columns, DETAILS)))["scores"]
    assert written == values
    assert [math.copysign(1, value) for value in written] == [math.copysign(1, value) for value in values]


@pytest.mark.parametrize(
    ("accepted", "compressed"),
    [
        ("gzip", True),
        ("GZIP", True),
        ("x-gzip", True),
        ("deflate, gzip;q=0.5", True),
        ("br;q=1.0, gzip; q=0.2", True),
        ("*", True),
        ("identity, *;q=0.1", True),
        ("gzip;q=0", False),
        ("gzip;q=0.0, *", False),
        ("*;q=0", False),
        ("gzip;q=x", False),
        ("identity", False),
        ("br, deflate", False),
        ("", False),
        (None, False),
    ],
)
def test_a_reply_is_compressed_for_those_who_accept_it(accepted: str | None, compressed: bool) -> None:
    body = b"lachesis " * 200
    sent, headers = compress_if_accepted(body, accepted)
    assert headers["Vary"] == "Accept-Encoding"
    assert ("Content-Encoding" in headers) == compressed
    assert (gzip.decompress(sent) if compressed else sent) == body
    assert compressed == (len(sent) < len(body))


def test_a_reply_of_less_than_1000_bytes_is_sent_as_it_is() -> None:
    assert compress_if_accepted(b"x" * 999, "gzip") == (b"x" * 999, {})
    assert compress_if_accepted(b"x" * 1000, "gzip")[1]["Content-Encoding"] == "gzip"
