"""The service of this machine: its settings, its URL, and how to verify it."""

import os
import re
import ssl
import sys
from pathlib import Path

import typer
from pydantic import ValidationError

from app.settings import InvalidSettings, Settings, load_settings

_CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)


class ServiceOfThisMachine:
    """The service that commands ask if their user names no other one. Its settings are read when they are needed."""

    @property
    def url(self) -> str:
        """Where this machine reaches it."""
        return own_url(usable_settings())

    def is_at(self, url: str) -> bool:
        """Whether this URL leads to it. With wrong settings none does."""
        try:
            return own_url(Settings()) == url
        except ValidationError:
            return False

    def tls(self) -> ssl.SSLContext:
        """Return how to verify it.

        Raises:
            OSError: A file cannot be used.
        """
        return tls_context(usable_settings())


def usable_settings() -> Settings:
    """Return the settings of the service. Exit if one is wrong."""
    try:
        return load_settings()
    except InvalidSettings as error:
        for line in str(error).splitlines():
            typer.echo(f"lachesis: {line}", err=True)
        sys.exit(1)


def own_url(settings: Settings) -> str:
    """Return the URL under which this machine reaches a service with these settings."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.host, settings.host)  # noqa: S104 - nothing is bound here
    scheme = "https" if settings.tls_cert else "http"
    return f"{scheme}://[{host}]:{settings.port}" if ":" in host else f"{scheme}://{host}:{settings.port}"


def tls_context(settings: Settings) -> ssl.SSLContext:
    """Return the context for a request to the service of this machine.

    It must show the certificate of its settings, whose names need not include this address. That is the first one of
    ``LACHESIS_TLS_CERT``; the certificates after it also sign those of others. ``LACHESIS_CA_FILE``,
    ``LACHESIS_CLIENT_CERT`` and ``LACHESIS_CLIENT_KEY`` are those of the SDK.

    Raises:
        OSError: A file cannot be used.
    """
    ca_file, own = os.environ.get("LACHESIS_CA_FILE"), settings.tls_cert
    if own is not None and not ca_file:
        context = ssl.create_default_context(cadata=_first_certificate(own))
        context.check_hostname = False
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # the certificate itself is the anchor
    else:
        context = ssl.create_default_context(cafile=ca_file)
    if cert := os.environ.get("LACHESIS_CLIENT_CERT"):
        context.load_cert_chain(cert, os.environ.get("LACHESIS_CLIENT_KEY") or None, password=lambda: "")
    return context


def _first_certificate(file: Path) -> str:
    found = _CERTIFICATE.search(file.read_bytes())
    if found is None:
        raise OSError(f"LACHESIS_TLS_CERT={file}: it has no certificate")
    return found[0].decode("ascii", "replace")
