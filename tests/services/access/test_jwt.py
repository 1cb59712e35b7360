"""JWTs of a real issuer: what is accepted, how keys rotate, and what happens while the issuer is down."""

import asyncio
import base64
import contextlib
import json
import logging
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st

from app.api.http.access.issuer_client import IssuerClient
from app.core.access.claims import ClaimRule, JwtTrust
from app.core.access.identity import OPEN, Identity
from app.services.access import issuer as issuer_keys
from app.services.access import jwt as jwt_source
from app.services.access.credentials import GivenCredentials
from app.services.access.issuer import read_keys
from app.services.access.jwt import MAX_JWT_BYTES, JwtSource
from app.settings import ServiceSettings
from lachesis.wire.errors import IssuerUnavailable, StoreMisconfigured, Unauthorized
from tests.clock import LoopClock
from tests.issuer import AUDIENCE, KEYS, Issuer, jwk_of, now_s, running

RULES = (
    ClaimRule("groups", "rl-operators", "operator", ("*",)),
    ClaimRule("sub", "worker-*", "environment", ("math-*",), "gsm8k"),
)


class Clock:
    """The clocks of a test: that of Redis, and the one of the process."""

    def __init__(self) -> None:
        self.passed_s = 0.0

    def redis_ms(self) -> float:
        return 1000 * (now_s() + self.passed_s)

    def process_s(self) -> float:
        return self.passed_s


class Service:
    """A source of identities for an issuer."""

    def __init__(self, issuer: Issuer, **settings: Any) -> None:
        self.issuer = issuer
        self.clock = Clock()
        trust = JwtTrust(issuer.issuer, AUDIENCE, settings.get("jwt_jwks_url"), RULES)
        client = IssuerClient(ServiceSettings(jwt_issuer=issuer.issuer, **settings))
        self.source = JwtSource(trust, client, self.clock.redis_ms, self.clock.process_s)

    async def identify(self, token: str | bytes) -> Identity | None:
        return await self.source.identify(GivenCredentials(token.encode() if isinstance(token, str) else token))

    async def refusal(self, token: str | bytes) -> str:
        with pytest.raises(Unauthorized) as refused:
            await self.identify(token)
        text = token.encode() if isinstance(token, str) else token
        assert all(part not in str(refused.value).encode() for part in text.split(b".") if len(part) > 8)
        return refused.value.detail

    async def end_fetch(self) -> None:
        """Wait until no fetch is under way."""
        others = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.gather(*(task for task in others if "_fetch_keys" in repr(task.get_coro())))


@pytest.fixture
async def issuer() -> AsyncIterator[Issuer]:
    async with running(Issuer()) as issuer:
        yield issuer


@pytest.fixture
async def service(issuer: Issuer) -> AsyncIterator[Service]:
    service = Service(issuer)
    yield service
    await service.source.stop()


async def test_a_token_is_who_its_claims_say(issuer: Issuer, service: Service) -> None:
    claims = issuer.claims(aud=["other", AUDIENCE])
    assert await service.identify(issuer.sign(claims)) == jwt_source.JwtIdentity(
        name="worker-7",
        kind="jwt",
        role="environment",
        runs=("math-*",),
        environment="gsm8k",
        expires_at_s=claims["exp"] + 30,
        key=service.source._keys._keys["rsa", "RS256"].thumbprint,
    )
    operator = await service.identify(issuer.sign(issuer.claims(sub="someone", groups=["a", "rl-operators"])))
    assert operator is not None
    assert (operator.role, operator.runs) == ("operator", ("*",))


ALGORITHMS = [
    *[("rsa", name) for name in ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")],
    ("p-256", "ES256"),
    ("p-384", "ES384"),
    ("p-521", "ES512"),
    ("ed25519", "EdDSA"),
    ("ed448", "EdDSA"),
]


@pytest.mark.parametrize(("key", "algorithm"), ALGORITHMS)
async def test_each_algorithm_with_a_public_key_works(
    issuer: Issuer, service: Service, key: str, algorithm: str
) -> None:
    issuer.published = {name: {} for name in KEYS}
    assert await service.identify(issuer.sign(None, key, algorithm))
    assert "the signature" in await service.refusal(issuer.sign(None, key, algorithm)[:-8] + "AAAAAAAA")


def unsigned(header: dict[str, Any] | list[Any] | bytes, claims: Any, signature: bytes = b"") -> str:
    parts = [part if isinstance(part, bytes) else json.dumps(part).encode() for part in (header, claims, signature)]
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)


def signed_with_the_public_key(issuer: Issuer, encoding: Encoding, form: PublicFormat) -> str:
    """HS256 whose secret is the public key: what a service accepts that lets the token choose."""
    secret = KEYS["rsa"].public_key().public_bytes(encoding, form)
    head = unsigned({"alg": "HS256", "kid": "rsa"}, issuer.claims())[:-1]
    hs256 = jwt.get_algorithm_by_name("HS256")
    signature = hs256.sign(head.encode(), secret)  # type: ignore[arg-type]
    return f"{head}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"


MALFORMED = "the token is not a signed JWT"
ALGORITHM = "the algorithm of the token is not supported: use RS*, PS*, ES* or EdDSA"


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda i: i.sign(i.claims(exp=int(now_s()) - 60)), "the token has expired"),
        (lambda i: i.sign(i.claims(exp=None)), "the token has no claim exp"),
        (lambda i: i.sign(i.claims(nbf=int(now_s()) + 600)), "the token is not valid yet"),
        (lambda i: i.sign(i.claims(aud="other")), "the token is for another audience"),
        (lambda i: i.sign(i.claims(aud=None)), "the token is for another audience"),
        (lambda i: i.sign(i.claims(iss="https://other.example.org")), "the token is of another issuer"),
        (lambda i: i.sign(i.claims(sub="guest")), "no rule in LACHESIS_JWT_RULES matches the claims of the token"),
        (lambda i: unsigned({"alg": "none"}, i.claims()), ALGORITHM),
        (lambda i: unsigned({"alg": "None", "kid": "rsa"}, i.claims()), ALGORITHM),
        (lambda i: unsigned({"alg": "", "kid": "rsa"}, i.claims()), ALGORITHM),
        (lambda i: unsigned({"alg": ["RS256"], "kid": "rsa"}, i.claims()), ALGORITHM),
        (lambda i: unsigned({"kid": "rsa"}, i.claims()), ALGORITHM),
        (
            lambda i: signed_with_the_public_key(i, Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
            ALGORITHM,
        ),
        (lambda i: signed_with_the_public_key(i, Encoding.DER, PublicFormat.PKCS1), ALGORITHM),
        (lambda i: i.sign(None, "p-256", "ES256", kid="rsa"), "the algorithm of the token does not fit its key"),
        (lambda i: i.sign(None, "rsa-2", "RS256", kid="rsa"), "the signature of the token is not valid"),
        (lambda i: i.sign(None, "rsa-2"), "the issuer has no key with the key id (kid) of the token"),
        (lambda i: i.sign(kid="x", jku="https://evil.example.org", jwk=jwk_of(KEYS["rsa-2"])), "the issuer has no key"),
        (lambda i: unsigned({"alg": "RS256", "kid": 7}, i.claims()), "the key id (kid) of the token is not text"),
        (
            lambda i: unsigned({"alg": "RS256", "kid": "k" * 300}, i.claims()),
            "the key id (kid) of the token is not text",
        ),
        (lambda i: i.sign(crit=["exp"], exp=1), "the token has critical header fields (crit)"),
        (lambda i: unsigned({"alg": "RS256", "kid": "rsa", "b64": False}, i.claims()), MALFORMED),
        (lambda i: i.sign()[:-302], "the signature of the token is not valid"),
        (lambda i: i.sign() + "x", MALFORMED),
        (lambda i: i.sign() + ".x", MALFORMED),
        (lambda i: "eyJ", MALFORMED),
        (lambda i: "a.b.c", MALFORMED),
        (lambda i: "..", MALFORMED),
        (lambda i: "eyJ\xff.\x00.\xfe", MALFORMED),
        (lambda i: unsigned(["alg"], i.claims()), MALFORMED),
        (lambda i: unsigned(b"[" * 4000, i.claims()), MALFORMED),
        (lambda i: unsigned(b'{"alg": 1', i.claims()), MALFORMED),
        (lambda i: i.sign(i.claims(padding="x" * MAX_JWT_BYTES)), "the token is over 8192 bytes"),
    ],
)
async def test_a_bad_token_is_refused_with_a_reason(
    issuer: Issuer, service: Service, make: Callable[[Issuer], str], reason: str
) -> None:
    assert reason in await service.refusal(make(issuer).encode("latin-1"))
    assert service.source._verified == {}


async def test_each_character_of_a_token_counts(issuer: Issuer, service: Service) -> None:
    token = issuer.sign()
    assert await service.identify(token)
    for place, present in enumerate(token):
        for other in {"A", "B", "w", "_", ".", "=", "\n"} - {present}:
            with contextlib.suppress(Unauthorized):
                assert await service.identify(f"{token[:place]}{other}{token[place + 1 :]}") is None
    assert len(service.source._verified) == 1


@pytest.mark.parametrize("payload", [b"[1]", b"7", b"{", b"[" * 3000])
async def test_a_signed_text_without_claims_is_malformed(issuer: Issuer, service: Service, payload: bytes) -> None:
    token = jwt.PyJWS().encode(payload, KEYS["rsa"], "RS256", {"kid": "rsa"})
    assert await service.refusal(token) == MALFORMED


async def test_a_short_key_is_refused(issuer: Issuer, service: Service) -> None:
    issuer.published = {"rsa-1024": {}}
    with pytest.warns(jwt.InsecureKeyLengthWarning):
        token = issuer.sign(None, "rsa-1024")
    assert await service.refusal(token) == "the key of the token is too short"


async def test_other_credentials_are_left_to_other_sources(service: Service) -> None:
    for text in ("lch_env_0f3a5c7e9b1d_" + "a" * 43, "a" * 32, "", "a.b"):
        assert await service.identify(text) is None
    assert await service.source.is_valid(OPEN) is None
    assert service.issuer.requests == []


async def test_a_key_without_an_id_is_found_if_it_is_the_only_one(issuer: Issuer, service: Service) -> None:
    issuer.published = {"rsa": {"kid": None}, "p-256": {}}
    assert await service.identify(issuer.sign(kid=None))
    assert await service.identify(issuer.sign(None, "p-256", "ES256", kid=None))
    issuer.published = {"rsa": {}, "rsa-2": {}}
    service.clock.passed_s += 5
    assert await service.identify(issuer.sign(None, "rsa-2"))
    assert "none or several keys" in await service.refusal(issuer.sign(issuer.claims(jti="2"), kid=None))


async def test_keys_of_another_purpose_are_not_used(issuer: Issuer, service: Service) -> None:
    issuer.published = {"rsa": {"use": "enc"}, "rsa-2": {"alg": "PS256"}}
    assert "does not fit" in await service.refusal(issuer.sign(None, "rsa-2"))
    assert await service.identify(issuer.sign(None, "rsa-2", "PS256"))
    service.clock.passed_s += 1
    assert "no key" in await service.refusal(issuer.sign())


# Rotation


async def test_an_unknown_key_is_fetched_once_however_many_ask(issuer: Issuer, service: Service) -> None:
    await service.identify(issuer.sign())
    assert issuer.fetches == 1
    issuer.published = {"rsa": {}, "rsa-2": {}}
    service.clock.passed_s += 5
    new = [issuer.sign(issuer.claims(jti=str(number)), "rsa-2") for number in range(20)]
    assert all(await asyncio.gather(*(service.identify(token) for token in new)))
    assert issuer.fetches == 2


async def test_invented_key_ids_neither_hammer_the_issuer_nor_shut_out_a_new_key(
    issuer: Issuer, service: Service, loop_clock: LoopClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(issuer_keys, "_PAUSE_S", 1000.0)
    assert "no key" in await service.refusal(issuer.sign(kid="invented"))
    assert issuer.fetches == 1
    issuer.published = {"rsa": {}, "rsa-2": {}}
    invented = [asyncio.create_task(service.refusal(issuer.sign(kid=f"invented-{number}"))) for number in range(50)]
    new = asyncio.create_task(service.identify(issuer.sign(None, "rsa-2")))
    for passed_s in (0, 500):  # first they begin to wait
        await loop_clock.advance(passed_s)
        assert issuer.fetches == 1
    await loop_clock.advance(500)
    assert await new
    assert all("no key" in refusal for refusal in await asyncio.gather(*invented))
    assert issuer.fetches == 2


async def test_a_key_that_the_issuer_withdraws_ends_its_tokens(issuer: Issuer, service: Service) -> None:
    token = issuer.sign()
    identity = await service.identify(token)
    assert identity is not None
    issuer.published = {"rsa-2": {}}
    service.clock.passed_s += 299
    assert await service.identify(token) is identity
    service.clock.passed_s += 1
    assert await service.source.is_valid(identity), "the known keys serve while new ones are fetched"
    await service.end_fetch()
    assert await service.source.is_valid(identity) is False
    assert "no key" in await service.refusal(token)


async def test_a_new_key_under_an_old_id_replaces_it(issuer: Issuer, service: Service) -> None:
    token = issuer.sign()
    await service.identify(token)
    issuer.published = {"rsa-2": {"kid": "rsa"}}
    service.clock.passed_s += 300
    await service.identify(token)
    await service.end_fetch()
    assert "the signature" in await service.refusal(token)
    assert await service.identify(issuer.sign(None, "rsa-2", kid="rsa"))


# Downtime


async def test_known_keys_serve_while_the_issuer_is_down(
    service: Service, issuer: Issuer, caplog: pytest.LogCaptureFixture
) -> None:
    old = issuer.sign()
    await service.identify(old)
    issuer.override = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            service.clock.passed_s += 300
            assert await service.identify(issuer.sign(issuer.claims(jti="2")))
            await service.end_fetch()
            assert await service.identify(old)
    assert [record.message for record in caplog.records] == [
        "no keys from the issuer of tokens, so the known keys stay (1): "
        f"{issuer.url}/.well-known/openid-configuration: status 503"
    ], "a log line for each change, not for each attempt"
    service.clock.passed_s += 5
    with pytest.raises(IssuerUnavailable):
        await service.identify(issuer.sign(None, "rsa-2"))
    issuer.override, issuer.published = None, {"rsa": {}, "rsa-2": {}}
    service.clock.passed_s += 5
    assert await service.identify(issuer.sign(None, "rsa-2"))


async def test_an_issuer_that_was_never_up_is_no_fault_of_the_token() -> None:
    async with running(Issuer()) as issuer:
        token = issuer.sign()
    service = Service(issuer)
    await service.source.start()
    with pytest.raises(IssuerUnavailable):
        await service.identify(token)
    port = int(issuer.url.rsplit(":", 1)[1])
    async with running(issuer, port):
        with pytest.raises(IssuerUnavailable):
            await service.identify(token)
        service.clock.passed_s += 5
        assert await service.identify(token)


async def test_a_service_that_stops_breaks_off_its_fetch(issuer: Issuer, service: Service) -> None:
    await service.source.start()
    await service.source.stop()
    await service.end_fetch()
    assert service.source._keys._thumbprints == frozenset()


OK = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"


@pytest.mark.parametrize(
    ("override", "reason"),
    [
        (b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1/keys\r\nContent-Length: 0\r\n\r\n", "status 302"),
        (OK + b"{", "it is not JSON"),
        (OK + b"[" * 5000, "it is not JSON"),
        (OK + b"[]", "it is not a JSON object"),
        (OK + b" " * 600_000, "over 524288 bytes"),
        (OK + b"{}", "it has no jwks_uri"),
        (OK + b'{"jwks_uri": "http://keys.example.org/"}', "it needs https"),
        (OK + b'{"jwks_uri": "file:///etc/passwd"}', "it needs the form https://HOST/PATH"),
        (b"", "RemoteProtocolError"),
    ],
)
async def test_a_bad_answer_of_the_issuer_is_named_in_the_log(
    issuer: Issuer, service: Service, override: bytes, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    issuer.override = override.replace(b"{", b'{"issuer": "%s", ' % issuer.url.encode()).replace(b", }", b"}")
    with pytest.raises(IssuerUnavailable):
        await service.identify(issuer.sign())
    assert reason in caplog.text


@pytest.mark.parametrize(
    "keys", [None, [], [{}], [7], [{"kty": "oct", "k": "eHh4"}], [{"kty": "RSA", "n": 1, "e": []}]]
)
async def test_a_key_set_without_keys_leaves_the_known_ones(issuer: Issuer, service: Service, keys: Any) -> None:
    await service.identify(issuer.sign())
    body = json.dumps({"issuer": issuer.url, "jwks_uri": issuer.url, "keys": keys}).encode()
    issuer.override = OK + body
    service.clock.passed_s += 300
    await service.identify(issuer.sign(issuer.claims(jti="2")))
    await service.end_fetch()
    assert await service.identify(issuer.sign(issuer.claims(jti="3")))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4) | st.just("AQAB"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=4,
)
FIELDS = dict.fromkeys(("kid", "alg", "use", "key_ops", "n", "e", "x", "y"), JSON)
JWKS = st.fixed_dictionaries(
    {"kty": st.sampled_from(["RSA", "EC", "OKP", "oct"]) | JSON, "crv": st.sampled_from(["P-256", "Ed25519"]) | JSON},
    optional=FIELDS,
)


@given(st.lists(JWKS, max_size=4))
def test_a_wrong_key_leaves_the_others(wrong: list[dict[str, Any]]) -> None:
    right = jwk_of(KEYS["p-521"]) | {"kid": "right"}
    assert read_keys({"keys": [*wrong, right]})["right", "ES512"].algorithm == "ES512"


async def test_a_configuration_of_another_issuer_is_not_believed(issuer: Issuer, service: Service) -> None:
    issuer.configuration = {"issuer": "https://other.example.org"}
    with pytest.raises(IssuerUnavailable):
        await service.identify(issuer.sign())


# Verified tokens


async def test_a_verified_token_is_not_verified_again(issuer: Issuer, service: Service) -> None:
    token = issuer.sign()
    assert await service.identify(token) is await service.identify(token)
    service.clock.passed_s += 3600 + 29
    assert await service.identify(token)
    service.clock.passed_s += 2
    assert await service.refusal(token) == "the token has expired"
    assert service.source._verified == {}


async def test_verified_tokens_are_remembered_up_to_a_limit(
    issuer: Issuer, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jwt_source, "_MOST_REMEMBERED", 3)
    tokens = [issuer.sign(issuer.claims(jti=str(number))) for number in range(5)]
    first, *_, last = [await service.identify(token) for token in tokens]
    assert len(service.source._verified) == 3
    assert await service.identify(tokens[-1]) is last
    again = await service.identify(tokens[0])
    assert again == first
    assert again is not first
    assert not any(token.encode() in repr(service.source.__dict__).encode() for token in tokens)


# The client


async def test_the_bearer_token_goes_to_the_host_in_the_settings_alone(issuer: Issuer, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("first\n")
    async with running(Issuer()) as other:
        issuer.configuration = {"jwks_uri": f"{other.url}/keys"}
        service = Service(issuer, jwt_jwks_token_file=file)
        assert await service.identify(issuer.sign())
        assert [headers.get("authorization") for _, headers in issuer.requests] == ["Bearer first"]
        assert [headers.get("authorization") for _, headers in other.requests] == [None]
        file.write_text("second\n")
        service = Service(issuer, jwt_jwks_token_file=file, jwt_jwks_url=f"{other.url}/keys")
        assert await service.identify(issuer.sign())
        assert other.requests[-1][1]["authorization"] == "Bearer second"
    assert len(issuer.requests) == 1, "with the address of the keys, nothing is looked up"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"jwt_issuer": "http://issuer.example.org"}, "LACHESIS_JWT_ISSUER=http://issuer.example.org: it needs https"),
        ({"jwt_jwks_url": "https://a@b.example.org/"}, "LACHESIS_JWT_JWKS_URL=.*: it needs the form"),
        ({"jwt_jwks_url": "https://[/"}, "LACHESIS_JWT_JWKS_URL=.*: it is not a URL"),
        ({"jwt_ca": Path("missing.pem")}, "LACHESIS_JWT_CA=missing.pem: No such file"),
        ({"jwt_ca": Path("pyproject.toml")}, "LACHESIS_JWT_CA=pyproject.toml: "),
        ({"jwt_jwks_token_file": Path("missing")}, "LACHESIS_JWT_JWKS_TOKEN_FILE=missing: .*No such file"),
        ({"jwt_jwks_token_file": Path("pyproject.toml")}, "needs one line with a token"),
    ],
)
def test_wrong_settings_are_named(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(StoreMisconfigured, match=message):
        IssuerClient(ServiceSettings(**settings))
