"""How to verify the service over TLS, and which certificate to show."""

import ssl

import httpx

from lachesis._transport.settings import Settings


def tls_context(settings: Settings) -> ssl.SSLContext | bool:
    """Return what httpx verifies with; True for its own choice.

    Raises:
        ValueError: A file cannot be used; the message names its setting.
    """
    if settings.ca_file is None and settings.client_cert is None:
        return True
    try:
        trust = settings.ca_file
        context = ssl.create_default_context(cafile=trust) if trust else httpx.create_ssl_context()
    except OSError as error:  # SSLError is one, too
        raise ValueError(f"ca_file: cannot use {settings.ca_file!r}: {error.strerror or error}") from None
    if settings.client_cert is not None:
        try:
            context.load_cert_chain(settings.client_cert, settings.client_key, password=lambda: "")
        except OSError as error:
            files = " with ".join(repr(file) for file in (settings.client_cert, settings.client_key) if file)
            raise ValueError(f"client_cert: cannot use {files}: {error.strerror or error}") from None
    return context
