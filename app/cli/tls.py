"""How commands verify the service over TLS."""

import os
import ssl

from app.settings import Settings


def tls_context(settings: Settings | None) -> ssl.SSLContext:
    """Return the context for a request to the service.

    ``LACHESIS_CA_FILE``, ``LACHESIS_CLIENT_CERT`` and ``LACHESIS_CLIENT_KEY`` are those of the SDK.

    Args:
        settings: Those of the service if it is the one of this machine. It must then show the certificate of its
            settings, whose names need not include this address. None for any other service.

    Raises:
        OSError: A file cannot be used.
    """
    ca_file, own = os.environ.get("LACHESIS_CA_FILE"), settings.tls_cert if settings else None
    context = ssl.create_default_context(cafile=ca_file or own)
    if own is not None and not ca_file:
        context.check_hostname = False
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # the certificate itself is the anchor
    if cert := os.environ.get("LACHESIS_CLIENT_CERT"):
        context.load_cert_chain(cert, os.environ.get("LACHESIS_CLIENT_KEY") or None, password=lambda: "")
    return context
