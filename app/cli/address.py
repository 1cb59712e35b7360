"""The URL of the service of this machine."""

from app.settings import Settings


def own_url(settings: Settings) -> str:
    """Return the URL under which this machine reaches a service with these settings."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.host, settings.host)  # noqa: S104 - nothing is bound here
    scheme = "https" if settings.tls_cert else "http"
    return f"{scheme}://[{host}]:{settings.port}" if ":" in host else f"{scheme}://{host}:{settings.port}"
