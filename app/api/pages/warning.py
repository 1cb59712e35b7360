"""The warning of a service without access control, at the top of every page."""

from lachesis.wire.access import AccessMode

_INSECURE = (
    '<p class="insecure" role="alert">LACHESIS_INSECURE is set: anyone who reaches this service may do everything.</p>'
)


def warning(access: AccessMode) -> str:
    """Return the paragraph with its line break; nothing if the service has access control, or is on loopback."""
    return f"{_INSECURE}\n" if access == "insecure" else ""
