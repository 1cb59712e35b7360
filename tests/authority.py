"""A certificate authority for tests, and a TLS socket that can half-close."""

import datetime
import ipaddress
import ssl
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_DAY = datetime.timedelta(days=1)
_CRITICAL = (x509.BasicConstraints, x509.KeyUsage)


class Authority:
    """Signs certificates. Its files are in ``folder``. Another may have signed its own certificate."""

    def __init__(self, folder: Path, name: str = "ca", by: "Authority | None" = None) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named(f"test authority {name}")
        self._serial = 0
        extensions = (
            x509.BasicConstraints(ca=True, path_length=None),
            _signs_certificates(),
            x509.SubjectKeyIdentifier.from_public_key(self._public),
            x509.AuthorityKeyIdentifier.from_issuer_public_key((by or self)._public),
        )
        cert = (by or self)._signed(self._name, self._public, extensions)
        self.file = folder / f"{name}.pem"
        self.file.write_bytes(cert.public_bytes(serialization.Encoding.PEM))

    @property
    def _public(self) -> ec.EllipticCurvePublicKey:
        return self._key.public_key()

    def issue(self, file_name: str, *names: str, days: float = 1.0) -> tuple[Path, Path]:
        """Write a certificate for addresses, DNS names and URIs. Return its file and that of its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        extensions = (
            x509.SubjectAlternativeName([_san(name) for name in names]),
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]),
            x509.AuthorityKeyIdentifier.from_issuer_public_key(self._public),
        )
        cert = self._signed(_named(file_name), key.public_key(), extensions, days)
        paths = self._folder / f"{file_name}.crt", self._folder / f"{file_name}.key"
        paths[0].write_bytes(cert.public_bytes(serialization.Encoding.PEM))
        paths[1].write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return paths

    def client_context(self, cert: tuple[Path, Path] | None = None) -> ssl.SSLContext:
        """Return the context of a client that trusts this authority, with a certificate or without."""
        context = ssl.create_default_context(cafile=self.file)
        if cert is not None:
            context.load_cert_chain(*cert)
        return context

    def _signed(self, subject: x509.Name, public: Any, extensions: Any, days: float = 1.0) -> x509.Certificate:
        self._serial += 1
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(public)
            .serial_number(self._serial)
            .not_valid_before(now - 2 * _DAY)
            .not_valid_after(now + days * _DAY)
        )
        for extension in extensions:
            builder = builder.add_extension(extension, critical=isinstance(extension, _CRITICAL))
        return builder.sign(self._key, hashes.SHA256())


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _signs_certificates() -> x509.KeyUsage:
    """Return the key usage without which Python 3.13 and later trust no authority."""
    return x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )


def _san(name: str) -> x509.GeneralName:
    if "://" in name:
        return x509.UniformResourceIdentifier(name)
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


class TlsSocket:
    """TLS over a socket. Unlike `ssl.SSLSocket` it can stop sending and still read."""

    def __init__(self, connection: Any, context: ssl.SSLContext, name: str) -> None:
        self._connection = connection
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._in, self._out, server_hostname=name)
        while True:
            try:
                self.tls.do_handshake()
            except ssl.SSLWantReadError:
                self._flush()
                self._receive()
            else:
                break
        self._flush()

    def send(self, data: bytes) -> int:
        self.sendall(data)
        return len(data)

    def sendall(self, data: bytes) -> None:
        self.tls.write(data)
        self._flush()

    def recv(self, size: int, flags: int = 0) -> bytes:
        """Read what has come; ``b""`` is the end. With flags, read what is encrypted."""
        if flags:
            received: bytes = self._connection.recv(size, flags)
            return received
        found = b""
        while len(found) < size:
            try:
                piece = self.tls.read(size - len(found))
                found += piece
                if not piece:
                    break
            except ssl.SSLWantReadError:
                if found:
                    break
                self._receive()
            except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
                break
        return found

    def shutdown(self, how: int) -> None:
        """Say in TLS that nothing follows, and half-close the connection."""
        with suppress(ssl.SSLWantReadError):
            self.tls.unwrap()
        self._flush()
        self._connection.shutdown(how)

    def settimeout(self, seconds: float) -> None:
        self._connection.settimeout(seconds)

    def close(self) -> None:
        """Close the connection without saying so in TLS, as a process that ends."""
        self._connection.close()

    def _flush(self) -> None:
        if self._out.pending:
            self._connection.sendall(self._out.read())

    def _receive(self) -> None:
        data = self._connection.recv(1 << 16)
        if data:
            self._in.write(data)
        else:
            self._in.write_eof()

    def __enter__(self) -> "TlsSocket":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
