"""Client certificates as a source of identities: rules map the names in them to roles."""

from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from app.core.access.claims import grant_of
from app.core.access.identity import Identity
from app.services.access.credentials import GivenCredentials, PeerCertificate
from app.services.access.reloaded_files import ReloadedFiles
from app.services.access.rule_files import read_rules
from lachesis.wire.errors import Unauthorized

_MOST_SHOWN = 200


@dataclass(frozen=True, slots=True)
class CertificateIdentity(Identity):
    """The identity of a client with a certificate.

    Attributes:
        certificate: The certificate.
    """

    certificate: PeerCertificate = field(default_factory=PeerCertificate)


class CertificateSource:
    """Identifies clients by the names in their certificates (SAN): ``dns`` and ``uri`` in rules.

    A request with an ``Authorization`` header is left to the other sources, also if its connection has a certificate.

    Args:
        rules: The file of rules (``LACHESIS_TLS_RULES``), in the format of ``LACHESIS_JWT_RULES``. It is read again
            when it changes.

    Raises:
        StoreMisconfigured: The file is missing or wrong.
    """

    def __init__(self, rules: Path) -> None:
        self._rules = ReloadedFiles([rules], partial(read_rules, "LACHESIS_TLS_RULES", rules))

    async def start(self) -> None:
        """Do nothing: the rules are read."""

    async def stop(self) -> None:
        """Do nothing."""

    async def identify(self, credentials: GivenCredentials) -> Identity | None:
        """Return who has the certificate of the connection. None means a connection without a certificate.

        Raises:
            Unauthorized: No rule matches its names.
        """
        certificate = credentials.certificate
        if certificate is None or credentials.secret:
            return None
        identity = self._identity(certificate)
        if identity is None:
            shown = ", ".join(certificate.names)[:_MOST_SHOWN] or "no DNS name and no URI"
            raise Unauthorized(f"no rule in LACHESIS_TLS_RULES matches the client certificate, which has: {shown}")
        return identity

    async def is_valid(self, identity: Identity) -> bool | None:
        """Return whether the rules still give this identity, with any limits; None for identities of other sources."""
        if not isinstance(identity, CertificateIdentity):
            return None
        now = self._identity(identity.certificate)
        return now is not None and identity == replace(now, limits=identity.limits, queue_limits=identity.queue_limits)

    def _identity(self, certificate: PeerCertificate) -> CertificateIdentity | None:
        grant = grant_of(self._rules.get(), {"dns": [*certificate.dns], "uri": [*certificate.uris]})
        if grant is None:
            return None
        return CertificateIdentity(
            **grant._asdict(),
            name=certificate.names[0],
            kind="certificate",
            expires_at_s=certificate.expires_at_s,
            certificate=certificate,
        )
