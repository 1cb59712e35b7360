"""How to verify the service over TLS, and which certificate to show."""

import ssl

import httpx

from lachesis._transport.settings import Settings


def tls_context(settings: Settings) -> ssl.SSLContext:
    """Return what httpx verifies with.

    Raises:
        ValueError: A file cannot be used; the message names its setting or variable.
    """
    trust = settings.ca_file
    try:
        context = ssl.create_default_context(cafile=trust) if trust else httpx.create_ssl_context()
    except OSError as error:  # SSLError is one, too
        files = f"ca_file: cannot use {trust!r}" if trust else "cannot use the CAs of SSL_CERT_FILE or SSL_CERT_DIR"
        raise ValueError(f"{files}: {error.strerror or error}") from None
    if settings.client_cert is not None:
        try:
            context.load_cert_chain(settings.client_cert, settings.client_key, password=lambda: "")
        except OSError as error:
            files = " with ".join(repr(file) for file in (settings.client_cert, settings.client_key) if file)
            raise ValueError(f"client_cert: cannot use {files}: {error.strerror or error}") from None
    return context
