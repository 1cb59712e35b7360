"""Build the use cases of access."""

from collections.abc import Callable
from dataclasses import dataclass

from app.core.access.claims import JwtTrust
from app.services.access.admin_token import AdminTokenFile
from app.services.access.audit import AuditTrail
from app.services.access.authentication import Authenticator, IdentitySource
from app.services.access.certificates import CertificateSource
from app.services.access.fetching import Fetch
from app.services.access.rate_limits import RequestLimiter
from app.services.access.rule_files import read_rules
from app.services.access.token_source import TokenSource
from app.services.access.tokens import TokenAdministration
from app.settings import ServiceSettings
from app.store.access.audit import AuditStore
from app.store.access.rate_limits import LimitStore
from app.store.access.store import AccessStore
from lachesis.wire.errors import StoreMisconfigured


@dataclass(frozen=True, slots=True)
class AccessServices:
    """The use cases of access."""

    authenticator: Authenticator
    tokens: TokenAdministration
    audit: AuditTrail
    rate_limits: RequestLimiter

    @classmethod
    def create(
        cls, store: AccessStore, audit: AuditStore, limits: LimitStore, settings: ServiceSettings, fetch: Fetch
    ) -> "AccessServices":
        """Build them. `configured_sources` has the arguments.

        Raises:
            StoreMisconfigured: A file that the settings name is missing or wrong.
        """
        tokens = TokenSource(store)
        others = configured_sources(settings, fetch, tokens.now_ms)
        return cls(
            Authenticator(tokens, others, insecure=settings.insecure),
            TokenAdministration(store, limits),
            AuditTrail(audit, settings.audit_entries),
            RequestLimiter(limits),
        )


def configured_sources(settings: ServiceSettings, fetch: Fetch, now_ms: Callable[[], float]) -> list[IdentitySource]:
    """Return the sources that settings name. A new kind of credentials is added here.

    Args:
        settings: The settings.
        fetch: Gets documents of the issuer of JWTs.
        now_ms: The clock of Redis, milliseconds since 1970.

    Raises:
        StoreMisconfigured: A setting is missing, or a file that the settings name is missing or wrong.
    """
    sources: list[IdentitySource] = []
    if settings.admin_token_file is not None:
        sources.append(AdminTokenFile(settings.admin_token_file))
    trust = _trust_of(settings)
    if trust is not None:
        from app.services.access.jwt import JwtSource  # late: PyJWT takes 9 MiB and 30 ms

        sources.append(JwtSource(trust, fetch, now_ms))
    if settings.tls_rules is not None:
        sources.append(CertificateSource(settings.tls_rules))
    return sources


def _trust_of(settings: ServiceSettings) -> JwtTrust | None:
    issuer, audience, rules = settings.jwt_issuer, settings.jwt_audience, settings.jwt_rules
    if not any((issuer, audience, rules, settings.jwt_jwks_url, settings.jwt_ca, settings.jwt_jwks_token_file)):
        return None
    if issuer is None or audience is None or rules is None:
        raise StoreMisconfigured(
            "JWTs need LACHESIS_JWT_ISSUER, LACHESIS_JWT_AUDIENCE and LACHESIS_JWT_RULES: set all three, "
            "or no LACHESIS_JWT_* setting"
        )
    return JwtTrust(issuer, audience, settings.jwt_jwks_url, read_rules("LACHESIS_JWT_RULES", rules))
