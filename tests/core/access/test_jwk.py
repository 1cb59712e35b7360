"""Algorithms and keys, held against PyJWT, which refuses keys that do not fit."""

import base64
from typing import Any

import jwt
import pytest

from app.core.access.jwk import ALGORITHMS, algorithms_of, public_part, thumbprint
from tests.issuer import KEYS, jwk_of

SECRET = {"kty": "oct", "k": base64.urlsafe_b64encode(b"s" * 64).decode()}
EVERY_ALGORITHM = set(jwt.PyJWS().get_algorithms()) - {"ES521"}  # an old name for ES512


def can_sign(key: Any, algorithm: str) -> bool:
    try:
        return bool(jwt.encode({}, key, algorithm))
    except (jwt.PyJWTError, TypeError, ValueError, AttributeError):
        return False


@pytest.mark.parametrize("name", [name for name in KEYS if name not in ("rsa-1024", "secp256k1")])
def test_a_key_has_the_algorithms_that_can_use_it(name: str) -> None:
    able = {algorithm for algorithm in EVERY_ALGORITHM if can_sign(KEYS[name], algorithm)}
    assert able
    assert set(algorithms_of(jwk_of(KEYS[name]))) == able


def test_no_algorithm_works_with_a_secret() -> None:
    assert not any(algorithm.startswith("HS") or algorithm == "none" for algorithm in ALGORITHMS)
    assert EVERY_ALGORITHM >= ALGORITHMS
    for jwk in (SECRET, SECRET | {"alg": "RS256"}, {}, {"kty": None}, {"kty": ["RSA"]}, {"kty": "EC", "crv": {}}):
        assert algorithms_of(jwk) == ()


@pytest.mark.parametrize(
    ("more", "algorithms"),
    [
        ({"alg": "PS256"}, ("PS256",)),
        ({"alg": "ES256"}, ()),
        ({"alg": "HS256"}, ()),
        ({"use": "enc"}, ()),
        ({"key_ops": ["encrypt"]}, ()),
        ({"key_ops": 7}, ()),
        ({"use": "sig", "key_ops": ["verify"], "alg": "RS256"}, ("RS256",)),
    ],
)
def test_a_key_serves_its_purpose_alone(more: dict[str, Any], algorithms: tuple[str, ...]) -> None:
    assert algorithms_of(jwk_of(KEYS["rsa"]) | more) == algorithms


def test_a_private_part_is_left_out() -> None:
    jwk = jwk_of(KEYS["rsa"])
    assert public_part(jwk | {"d": "secret", "k": "secret"}) == {name: jwk[name] for name in ("kty", "n", "e")}


def test_different_keys_have_different_thumbprints() -> None:
    jwk = jwk_of(KEYS["rsa"])
    assert thumbprint(jwk | {"kid": "a"}) == thumbprint(jwk | {"alg": "PS256"})
    assert len({thumbprint(jwk_of(key)) for key in KEYS.values()}) == len(KEYS)
