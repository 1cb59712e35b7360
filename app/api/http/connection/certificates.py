"""The certificates of the service, and the CA of its clients."""

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from app.services.access.credentials import PeerCertificate
from app.services.access.reloaded_files import ReloadedFiles
from app.settings import ServiceSettings
from lachesis.wire.errors import StoreMisconfigured

PEER_CERTIFICATE = "lachesis.certificate"
"""The key of a scope for the client's certificate."""

_NAMES = ("URI", "DNS")


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """The files of TLS.

    Attributes:
        cert: The certificate of the service, and the certificates between it and its CA.
        key: The private key; None if it is in the same file.
        client_ca: Certificates of the CAs that sign certificates of clients; None for no client certificates.
    """

    cert: Path
    key: Path | None
    client_ca: Path | None

    @classmethod
    def of(cls, settings: ServiceSettings) -> "TlsFiles | None":
        """Return the files that the settings name; None for a service without TLS.

        Raises:
            StoreMisconfigured: The settings do not fit together.
        """
        given = {
            "LACHESIS_TLS_KEY": settings.tls_key,
            "LACHESIS_TLS_CLIENT_CA": settings.tls_client_ca,
            "LACHESIS_TLS_RULES": settings.tls_rules,
        }
        if settings.tls_cert is None:
            if alone := [name for name, path in given.items() if path is not None]:
                raise StoreMisconfigured(f"{alone[0]} needs LACHESIS_TLS_CERT, the certificate of the service")
            return None
        if (settings.tls_client_ca is None) != (settings.tls_rules is None):
            raise StoreMisconfigured(
                "LACHESIS_TLS_CLIENT_CA and LACHESIS_TLS_RULES need each other: the CA says which client certificates "
                "are genuine, and the rules say what their names may do"
            )
        return cls(settings.tls_cert, settings.tls_key, settings.tls_client_ca)


class TlsContexts:
    """Makes the TLS context of new connections. When a file changes, new connections use the new one.

    Each change makes a new context. OpenSSL can add a CA to a context, and cannot remove one.

    Raises:
        StoreMisconfigured: A file is missing or wrong.
    """

    def __init__(self, files: TlsFiles) -> None:
        self._files = files
        paths = [path for path in (files.cert, files.key, files.client_ca) if path is not None]
        self._context = ReloadedFiles(paths, lambda: _context(files))

    def __reduce__(self) -> "tuple[type[TlsContexts], tuple[TlsFiles]]":
        return TlsContexts, (self._files,)  # uvicorn sends it to workers by pickle, which no context survives

    def current(self) -> ssl.SSLContext:
        """Return the context for a new connection."""
        return self._context.get()


def _context(files: TlsFiles) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # A resumed session would skip the check of the client's certificate. TLS 1.3 resumes by tickets alone, TLS 1.2 also
    # by session ids, which nothing here can turn off.
    context.minimum_version = ssl.TLSVersion.TLSv1_2 if files.client_ca is None else ssl.TLSVersion.TLSv1_3
    context.num_tickets = 0
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_TICKET | ssl.OP_CIPHER_SERVER_PREFERENCE
    context.set_alpn_protocols(["http/1.1"])
    _check_readable("LACHESIS_TLS_CERT", files.cert)
    if files.key is not None:
        _check_readable("LACHESIS_TLS_KEY", files.key)
    try:
        context.load_cert_chain(files.cert, files.key, password=_refuse_password)
    except ssl.SSLError as error:
        key = f"LACHESIS_TLS_KEY={files.key}" if files.key is not None else "its key (LACHESIS_TLS_KEY is not set)"
        why = "the key is not that of the certificate" if error.reason == "KEY_VALUES_MISMATCH" else _reason(error)
        raise StoreMisconfigured(f"LACHESIS_TLS_CERT={files.cert} with {key}: {why}; both must be PEM files") from error
    if files.client_ca is not None:
        _check_readable("LACHESIS_TLS_CLIENT_CA", files.client_ca)
        try:
            context.load_verify_locations(files.client_ca)
        except ssl.SSLError as error:
            raise StoreMisconfigured(
                f"LACHESIS_TLS_CLIENT_CA={files.client_ca}: no certificates in PEM: {_reason(error)}"
            ) from error
        context.verify_mode = ssl.CERT_OPTIONAL  # a client without one may have a token
    return context


def _check_readable(setting: str, path: Path) -> None:
    try:
        path.open("rb").close()
    except OSError as error:
        raise StoreMisconfigured(f"{setting}={path}: {error.strerror or error}") from error


def _refuse_password() -> NoReturn:
    raise StoreMisconfigured("the key of LACHESIS_TLS_CERT has a password: give a key without one")


def _reason(error: ssl.SSLError) -> str:
    return (error.reason or str(error)).replace("_", " ").lower()


def peer_certificate(connection: ssl.SSLObject) -> PeerCertificate | None:
    """Return the client's certificate, which OpenSSL has verified; None if the client sent none."""
    found = connection.getpeercert()
    if not found:
        return None
    uris, dns = ([str(name[1]) for name in found.get("subjectAltName", ()) if name[0] == kind] for kind in _NAMES)
    return PeerCertificate(tuple(uris), tuple(dns), float(ssl.cert_time_to_seconds(str(found["notAfter"]))))
