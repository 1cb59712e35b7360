"""The format of tokens, and whether one is valid.

A token is ``lch_ROLE_ID_SECRET``: a short form of the role, 12 hexadecimal digits, and 32 random bytes in 43 characters
of base64url. Secret scanners find it by its prefix. The service keeps the SHA-256 of the whole text. The secret has 256
random bits, so a slow hash would add nothing.
"""

import base64
import hashlib
import hmac
import math
import re
from dataclasses import dataclass, field, replace
from enum import Enum, auto

from app.core.access.identity import Identity
from lachesis.wire.access import ALL_RUNS, TOKEN_ID, Role
from lachesis.wire.limits import QueueLimitSettings, RateLimitSettings

SECRET_BYTES = 32
ID_BYTES = 6
KEPT_MS = 7 * 24 * 3600 * 1000
"""How long the record of an expired or revoked token is kept, milliseconds. It is less if tokens are very many."""

_SHORT: dict[Role, str] = {
    "environment": "env",
    "trainer": "train",
    "viewer": "view",
    "operator": "ops",
    "metrics": "metrics",
}
_TOKEN = re.compile(rf"lch_(?:{'|'.join(_SHORT.values())})_(?P<id>{TOKEN_ID})_[A-Za-z0-9_-]{{43}}".encode())


@dataclass(frozen=True, slots=True)
class TokenSecret:
    """The digest of a secret, and when it ends (ms since 1970; None with its token)."""

    digest: str
    ends_ms: int | None = None


@dataclass(frozen=True, slots=True)
class TokenRecord:
    """What the service keeps of a token. Times are milliseconds since 1970, by the clock of Redis.

    Attributes:
        token_id: Its id, which is also a part of the token.
        name: A name for people.
        role: Its role.
        runs: The runs that it is for, as in `Identity`.
        environment: The only environment that it may act for; None for any.
        contents: Whether a viewer may read contents of groups.
        created_ms: When it was made.
        expires_ms: When it expires; None for never.
        limits: What it may send per second; None for no limits.
        queue_limits: What it may have in the queue of each run; None for no limits.
        revoked_ms: When it was revoked; None if it was not.
        secrets: The newest secret first.
        stored: The text that it was read from; empty for a record that was not read. `replace` does not copy it.
    """

    token_id: str
    name: str
    role: Role
    runs: tuple[str, ...]
    environment: str | None
    contents: bool
    created_ms: int
    expires_ms: int | None
    secrets: tuple[TokenSecret, ...]
    revoked_ms: int | None = None
    limits: RateLimitSettings | None = None
    queue_limits: QueueLimitSettings | None = None
    stored: str = field(default="", init=False, compare=False, repr=False)

    def identity(self, digest: str) -> Identity:
        """Return the identity of the client that has shown the token of this digest."""
        return Identity(
            name=self.name or self.token_id,
            kind="token",
            role=self.role,
            runs=self.runs or (ALL_RUNS,),
            token_id=self.token_id,
            environment=self.environment,
            contents=self.contents,
            limits=self.limits,
            queue_limits=self.queue_limits,
            expires_at_s=None if self.expires_ms is None else self.expires_ms / 1000,
            digest=digest,
        )

    def rotated(self, digest: str, now_ms: int, overlap_ms: int) -> "TokenRecord":
        """Return the record with a new secret. The present secret ends after ``overlap_ms``, older ones at once."""
        present = replace(self.secrets[0], ends_ms=now_ms + overlap_ms)
        return replace(self, secrets=(TokenSecret(digest), *([present] if overlap_ms else [])))

    @property
    def ends_ms(self) -> int | None:
        """Return when the token ended or will end; None if that is not known."""
        return min((ms for ms in (self.revoked_ms, self.expires_ms) if ms is not None), default=None)

    def has_ended(self, now_ms: float) -> bool:
        """Return whether the token is revoked or has expired."""
        return self.revoked_ms is not None or (self.expires_ms is not None and self.expires_ms <= now_ms)

    def is_over(self, now_ms: float) -> bool:
        """Return whether the record can be forgotten."""
        return self.ends_ms is not None and self.ends_ms + KEPT_MS < now_ms


class TokenState(Enum):
    """What a token turned out to be."""

    VALID = auto()
    UNKNOWN = auto()
    REVOKED = auto()
    EXPIRED = auto()
    ROTATED = auto()  # another secret has replaced this one


def token_text(role: Role, token_id: str, secret: bytes) -> str:
    """Write a token. ``secret`` are 32 random bytes."""
    text = base64.urlsafe_b64encode(secret).rstrip(b"=").decode()
    return f"lch_{_SHORT[role]}_{token_id}_{text}"


def digest_of(token: bytes) -> str:
    """Return the SHA-256 of a token, in hexadecimal."""
    return hashlib.sha256(token).hexdigest()


def token_id_of(token: bytes) -> str | None:
    """Return the id in a token; None if the text is not a token."""
    match = _TOKEN.fullmatch(token)
    return None if match is None else match["id"].decode()


def check_token(record: TokenRecord | None, digest: str, now_ms: float) -> TokenState:
    """Say whether a token is valid. The time that this takes does not depend on the digests.

    Only a sender with a secret of the token learns more than that it is unknown.

    Args:
        record: The record of the id in the token. None means that the id is unknown.
        digest: The SHA-256 of the token.
        now_ms: The clock of Redis, milliseconds since 1970.
    """
    secrets = _NONE if record is None else record.secrets
    equal = [hmac.compare_digest(secret.digest, digest) for secret in secrets]
    if record is None or True not in equal:
        return TokenState.UNKNOWN
    ends_ms = secrets[equal.index(True)].ends_ms
    if record.revoked_ms is not None:
        return TokenState.REVOKED
    if record.expires_ms is not None and now_ms >= record.expires_ms:
        return TokenState.EXPIRED
    return TokenState.ROTATED if ends_ms is not None and now_ms >= ends_ms else TokenState.VALID


def valid_until_ms(record: TokenRecord, digest: str) -> float:
    """Return when a token that is valid now stops being valid, if its record does not change."""
    (secret,) = [one for one in record.secrets if one.digest == digest]
    return min((ms for ms in (record.expires_ms, secret.ends_ms) if ms is not None), default=math.inf)


_NONE = (TokenSecret("0" * 64),)  # an unknown id costs the comparison, too
