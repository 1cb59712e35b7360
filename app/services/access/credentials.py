"""What a request shows to say who sends it."""

from dataclasses import dataclass, field
from functools import cached_property

from app.core.access.tokens import digest_of


@dataclass(frozen=True, slots=True)
class PeerCertificate:
    """A client certificate that a trusted CA has signed.

    Attributes:
        uris: Its URIs (SAN), such as a SPIFFE ID.
        dns: Its DNS names (SAN).
        expires_at_s: The end of its validity, seconds since 1970.
    """

    uris: tuple[str, ...] = ()
    dns: tuple[str, ...] = ()
    expires_at_s: float = 0.0

    @property
    def names(self) -> tuple[str, ...]:
        """All of its names."""
        return self.uris + self.dns


@dataclass(frozen=True)
class GivenCredentials:
    """The credentials of a request. Their text never shows the secret.

    Attributes:
        secret: The bearer token, or the password of Basic authentication; empty for none.
        certificate: The certificate of the connection; None for none.
    """

    secret: bytes = field(default=b"", repr=False)
    certificate: PeerCertificate | None = None

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of the secret, in hexadecimal. Every source that needs it shares it."""
        return digest_of(self.secret)
