"""The format of tokens, and what makes one valid."""

import re
from dataclasses import replace
from typing import get_args

import pytest

from app.core.access.tokens import (
    KEPT_MS,
    SECRET_BYTES,
    TokenRecord,
    TokenSecret,
    TokenState,
    check_token,
    digest_of,
    token_id_of,
    token_text,
    valid_until_ms,
)
from lachesis.wire.access import Role

ID = "0f3a5c7e9b1d"
RECORD = TokenRecord(ID, "gpu-7", "trainer", ("math-*",), None, False, 1000, 9000, (TokenSecret("a" * 64),))


@pytest.mark.parametrize("role", get_args(Role))
@pytest.mark.parametrize("secret", [bytes(SECRET_BYTES), b"\xff" * SECRET_BYTES, bytes(range(32))])
def test_a_token_names_its_role_and_its_id(role: Role, secret: bytes) -> None:
    text = token_text(role, ID, secret)
    assert re.fullmatch(rf"lch_[a-z]+_{ID}_[A-Za-z0-9_-]{{43}}", text)
    assert token_id_of(text.encode()) == ID


@pytest.mark.parametrize(
    "text",
    [b"", b"lch_env_", b"lch_env_0f3a5c7e9b1d_" + b"a" * 42, b"lch_root_0f3a5c7e9b1d_" + b"a" * 43, b"\xff" * 64],
)
def test_other_text_is_no_token(text: bytes) -> None:
    assert token_id_of(text) is None


def test_a_token_is_followed_by_nothing() -> None:
    text = token_text("viewer", ID, bytes(SECRET_BYTES)).encode()
    assert token_id_of(text + b"\n") is None
    assert token_id_of(text + b"a") is None


def test_a_digest_of_another_secret_is_unknown_even_of_an_ended_token() -> None:
    """Who has no secret learns nothing about the token."""
    for record in (None, RECORD, replace(RECORD, revoked_ms=1), replace(RECORD, expires_ms=1)):
        assert check_token(record, "b" * 64, 5000) is TokenState.UNKNOWN


def test_a_token_is_valid_until_it_expires_or_is_revoked() -> None:
    assert check_token(RECORD, "a" * 64, 8999) is TokenState.VALID
    assert check_token(RECORD, "a" * 64, 9000) is TokenState.EXPIRED
    assert check_token(replace(RECORD, revoked_ms=2000), "a" * 64, 2000) is TokenState.REVOKED


def test_after_a_rotation_two_secrets_are_valid_until_the_old_one_ends() -> None:
    rotated = RECORD.rotated("b" * 64, 2000, 500)
    assert check_token(rotated, "b" * 64, 2400) is TokenState.VALID
    assert check_token(rotated, "a" * 64, 2499) is TokenState.VALID
    assert check_token(rotated, "a" * 64, 2500) is TokenState.ROTATED
    again = rotated.rotated("c" * 64, 2100, 500)
    assert check_token(again, "a" * 64, 2200) is TokenState.UNKNOWN
    assert [check_token(again, one * 64, 2200) for one in "bc"] == [TokenState.VALID, TokenState.VALID]


def test_a_rotation_without_overlap_ends_the_old_secret_at_once() -> None:
    assert check_token(RECORD.rotated("b" * 64, 2000, 0), "a" * 64, 2000) is TokenState.UNKNOWN


@pytest.mark.parametrize("expires_ms", [None, 2300, 9000])
def test_what_is_valid_now_stays_valid_until_the_time_that_is_said(expires_ms: int | None) -> None:
    rotated = replace(RECORD, expires_ms=expires_ms).rotated("b" * 64, 2000, 500)
    for digest in ("a" * 64, "b" * 64):
        until_ms = valid_until_ms(rotated, digest)
        for now_ms in range(2000, 10_000, 100):
            assert (check_token(rotated, digest, now_ms) is TokenState.VALID) == (now_ms < until_ms)


def test_a_record_is_forgotten_some_time_after_its_end() -> None:
    assert not RECORD.is_over(9000 + KEPT_MS)
    assert RECORD.is_over(9001 + KEPT_MS)
    assert replace(RECORD, revoked_ms=2000).is_over(2001 + KEPT_MS)
    assert not replace(RECORD, expires_ms=None).is_over(1e15)


def test_the_digest_is_sha256() -> None:
    assert digest_of(b"abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
