"""Which algorithms fit a public key of an issuer (RFC 7517, 7518, 8037)."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

_RSA = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_BY_TYPE: dict[tuple[str, str | None], tuple[str, ...]] = {
    ("RSA", None): _RSA,
    ("EC", "P-256"): ("ES256",),
    ("EC", "P-384"): ("ES384",),
    ("EC", "P-521"): ("ES512",),
    ("OKP", "Ed25519"): ("EdDSA",),
    ("OKP", "Ed448"): ("EdDSA",),
}
ALGORITHMS = frozenset(algorithm for fitting in _BY_TYPE.values() for algorithm in fitting)
"""The algorithms that the service accepts: those with a public key. Neither `none` nor any with a shared secret."""

_PUBLIC = ("kty", "crv", "n", "e", "x", "y")


def algorithms_of(jwk: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the algorithms with which a key may verify tokens; none for secrets and for keys with other purposes."""
    purposes = jwk.get("key_ops", ["verify"])
    if jwk.get("use", "sig") != "sig" or not isinstance(purposes, list) or "verify" not in purposes:
        return ()
    kind = str(jwk.get("kty"))
    fitting = _BY_TYPE.get((kind, None if kind == "RSA" else str(jwk.get("crv"))), ())
    return tuple(algorithm for algorithm in fitting if jwk.get("alg", algorithm) == algorithm)


def public_part(jwk: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a key that verify. A private part that an issuer published by mistake is left out."""
    return {name: jwk[name] for name in _PUBLIC if name in jwk}


def thumbprint(jwk: Mapping[str, Any]) -> str:
    """Return a digest that differs between different keys."""
    return hashlib.sha256(json.dumps(public_part(jwk), sort_keys=True).encode()).hexdigest()
