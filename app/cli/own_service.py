"""The service of this machine: its settings, its URL, and how to verify it."""

import os
import re
import socket
import ssl
import sys
from ipaddress import ip_address
from pathlib import Path

import typer

from app.settings import InvalidSettings, ServiceSettings, load_settings

_ANY_PORT = 9
_CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)


class NotOfThisMachine(ValueError):
    """LACHESIS_HOST is not an address of this machine."""


class ServiceOfThisMachine:
    """The service that commands ask if their user names no other one. Its settings are read when they are needed."""

    @property
    def url(self) -> str:
        """Where this machine reaches it.

        Raises:
            NotOfThisMachine: It is elsewhere.
        """
        return own_url(usable_settings())

    def is_at(self, url: str) -> bool:
        """Return whether this URL leads to it. With wrong settings, or a file that cannot be read, none does."""
        try:
            return own_url(ServiceSettings()) == url
        except (OSError, ValueError):
            return False

    def tls(self) -> ssl.SSLContext:
        """Return how to verify it.

        Raises:
            OSError: A file cannot be used.
        """
        return tls_context(usable_settings())


def usable_settings() -> ServiceSettings:
    """Return the settings of the service. Exit if one is wrong."""
    try:
        return load_settings()
    except InvalidSettings as error:
        for line in str(error).splitlines():
            typer.echo(f"lachesis: {line}", err=True)
        sys.exit(1)


def own_url(settings: ServiceSettings) -> str:
    """Return the URL under which this machine reaches a service with these settings.

    Raises:
        NotOfThisMachine: The service cannot listen here. A ``.env`` file of others could name any host.
    """
    address = _own_address(settings.host)
    if settings.tls_cert is None:
        return f"http://{_in_url(address)}:{settings.port}"
    is_name = any(letter.isalpha() for letter in settings.host) and ":" not in settings.host
    return f"https://{settings.host if is_name else _in_url(address)}:{settings.port}"  # a CA certifies names


def _in_url(address: str) -> str:
    return f"[{address}]" if ":" in address else address


def _own_address(host: str) -> str:
    """Return the address on which `listen` listens for this host; of all addresses, the loopback address."""
    try:
        found = socket.getaddrinfo(host, _ANY_PORT, type=socket.SOCK_DGRAM, flags=socket.AI_PASSIVE)
        family, _, _, _, place = min(found, key=lambda one: one[0] != socket.AF_INET)
        address = ip_address(place[0])
        if address.is_unspecified:
            return "::1" if family == socket.AF_INET6 else "127.0.0.1"
        if address.is_loopback:
            return str(place[0])
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(place)  # sends nothing; to an own address, the system sends from this address
            if probe.getsockname()[0] == place[0]:
                return str(place[0])
    except (OSError, ValueError):  # such as an unknown name
        pass
    raise NotOfThisMachine(f"LACHESIS_HOST={host} is not an address of this machine; --url asks another service")


def tls_context(settings: ServiceSettings) -> ssl.SSLContext:
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
