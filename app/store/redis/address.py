"""The URL of Redis, with the files of TLS."""

import re
import ssl
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from redis import ConnectionPool
from redis.exceptions import RedisError

from app.settings import ServiceSettings
from lachesis.wire.errors import StoreMisconfigured


def store_url(settings: ServiceSettings) -> str:
    """Return the URL of Redis that the settings name; empty for the embedded one.

    redis-py reads the files of TLS from options of the URL. An option that the URL has already stays.

    Raises:
        StoreMisconfigured: The URL is wrong or not one of TLS, or a file is missing or wrong.
    """
    url = settings.redis_url.get_secret_value() if settings.redis_url else ""
    if not _is_readable(url):
        raise StoreMisconfigured(
            "LACHESIS_REDIS_URL is not a Redis URL",
            remedy="Check its port, and that its database is a number. In its user, password and options write / as "
            "%2F, ? as %3F, # as %23, @ as %40 and % as %25.",
        )
    if url:
        _refuse_unusable(url)
    files = {
        "ssl_ca_certs": ("LACHESIS_REDIS_CA", settings.redis_ca),
        "ssl_certfile": ("LACHESIS_REDIS_CERT", settings.redis_cert),
        "ssl_keyfile": ("LACHESIS_REDIS_KEY", settings.redis_key),
    }
    given = {option: str(path) for option, (_, path) in files.items() if path is not None}
    if not given:
        return url
    first = files[next(iter(given))][0]
    if not url.startswith("rediss://"):
        raise StoreMisconfigured(f"{first} needs LACHESIS_REDIS_URL=rediss://…: other URLs have no TLS")
    if settings.redis_key is not None and settings.redis_cert is None:
        raise StoreMisconfigured("LACHESIS_REDIS_KEY needs LACHESIS_REDIS_CERT, the certificate of the key")
    _check(settings.redis_ca, settings.redis_cert, settings.redis_key)
    parts = urlsplit(url)
    return urlunsplit(parts._replace(query=urlencode(given | dict(parse_qsl(parts.query)))))


def _is_readable(url: str) -> bool:
    """Return whether the host of a URL comes after its user and password, and its database is a number.

    Otherwise the host is a part of the password.
    """
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:  # its text has a part of the password, too
        return False
    if parts.scheme in ("redis", "rediss") and not re.fullmatch(r"/?[0-9]*", parts.path):
        return False  # redis-py would use database 0
    return not parts.netloc or "@" not in parts.path + parts.query + parts.fragment


def _refuse_unusable(url: str) -> None:
    try:
        ConnectionPool.from_url(url).make_connection()  # which reads the options
    except TypeError as error:
        raise StoreMisconfigured(
            f"LACHESIS_REDIS_URL has the unknown option {str(error).rpartition(' ')[2]}",
            remedy="Remove it from the URL.",
        ) from error
    except (ValueError, RedisError) as error:
        raise StoreMisconfigured(
            f"LACHESIS_REDIS_URL is not a Redis URL: {error}",
            remedy="Use redis://HOST:PORT, rediss://HOST:PORT for TLS, or unix://PATH.",
        ) from error


def _check(ca: Path | None, cert: Path | None, key: Path | None) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        named = f"LACHESIS_REDIS_CA={ca}"
        if ca is not None:
            context.load_verify_locations(ca)
        named = f"LACHESIS_REDIS_CERT={cert} with LACHESIS_REDIS_KEY={key or ''}"
        if cert is not None:
            context.load_cert_chain(cert, key, password=lambda: "")
    except OSError as error:  # SSLError is one
        raise StoreMisconfigured(f"{named}: {error.strerror or error}") from error
