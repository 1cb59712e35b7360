"""Fetch the documents of the issuer of JWTs: the only requests that the service sends to others."""

import asyncio
import ssl
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from app.core.access.loopback import is_loopback
from app.services.access.fetching import IssuerFetchFailed
from app.settings import ServiceSettings
from lachesis.wire.errors import StoreMisconfigured

if TYPE_CHECKING:
    import httpx

_MOST_BYTES = 512 * 1024
_PATIENCE_S = 5.0


class IssuerClient:
    """Gets documents by GET, without redirects and proxies, with a limit on size and time.

    The certificates and the bearer token are read from their files for each request, because both change. Only the host
    of ``LACHESIS_JWT_JWKS_URL``, or of the issuer without this setting, gets the bearer token.

    Raises:
        StoreMisconfigured: A URL in the settings is not `https`, or a file is missing or wrong.
    """

    def __init__(self, settings: ServiceSettings) -> None:
        for name, url in (("ISSUER", settings.jwt_issuer), ("JWKS_URL", settings.jwt_jwks_url)):
            if url is not None and (problem := _problem(url)):
                raise StoreMisconfigured(f"LACHESIS_JWT_{name}={url}: {problem}")
        self._ca = settings.jwt_ca
        self._token_file = settings.jwt_jwks_token_file
        self._trusted = _origin(settings.jwt_jwks_url or settings.jwt_issuer or "")
        try:
            if self._ca is not None:
                _tls(self._ca)
        except OSError as error:
            raise StoreMisconfigured(f"LACHESIS_JWT_CA={self._ca}: {error.strerror or error}") from error
        try:
            self._bearer()
        except (OSError, ValueError) as error:
            raise StoreMisconfigured(f"LACHESIS_JWT_JWKS_TOKEN_FILE={self._token_file}: {error}") from error

    async def __call__(self, url: str) -> bytes:
        """Return the document at a URL.

        Raises:
            IssuerFetchFailed: The fetch failed. The message says why.
        """
        import httpx  # late: it takes 7 MiB and 300 ms, and most services trust no issuer

        if problem := _problem(url):
            raise IssuerFetchFailed(f"{url}: {problem}")
        try:
            async with asyncio.timeout(_PATIENCE_S):
                # Without TLS there is nothing to verify, and redirects are not followed.
                verify = await asyncio.to_thread(_tls, self._ca) if url.startswith("https:") else False
                async with httpx.AsyncClient(
                    verify=verify, trust_env=False, follow_redirects=False, timeout=_PATIENCE_S
                ) as client:
                    return await self._get(client, url)
        except TimeoutError:
            raise IssuerFetchFailed(f"{url}: no answer within {_PATIENCE_S:g} s") from None
        except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
            raise IssuerFetchFailed(f"{url}: {type(error).__name__}: {error}") from error

    async def _get(self, client: "httpx.AsyncClient", url: str) -> bytes:
        headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
        if _origin(url) == self._trusted:
            headers |= self._bearer()
        async with client.stream("GET", url, headers=headers) as reply:
            if reply.status_code != HTTPStatus.OK:
                raise IssuerFetchFailed(f"{url}: status {reply.status_code}")
            body = bytearray()
            async for part in reply.aiter_raw():
                body += part
                if len(body) > _MOST_BYTES:
                    raise IssuerFetchFailed(f"{url}: over {_MOST_BYTES} bytes")
            return bytes(body)

    def _bearer(self) -> dict[str, str]:
        if self._token_file is None:
            return {}
        token = self._token_file.read_bytes().strip()
        if not token.isascii() or len(token.split()) != 1:
            raise ValueError("it needs one line with a token")
        return {"Authorization": f"Bearer {token.decode()}"}


def _tls(ca: Path | None) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=ca)


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port


def _problem(url: str) -> str | None:
    """Say why the service fetches nothing from a URL; None if it does."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        return "it is not a URL"
    if parts.username is not None or not host or parts.fragment:
        return "it needs the form https://HOST/PATH"
    if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(host)):
        return "it needs https, because who can change the answer can make any token"
    return None
