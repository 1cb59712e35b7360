"""Compress replies."""

from collections.abc import Iterable, Iterator

from app.api.http.gzip_library import GZIP, zlib
from app.api.http.negotiation import weights
from lachesis.wire.blob import Buffer

_MIN_BYTES = 1000  # the limit of Atropos; compressing less costs more than it saves
_LEVEL = 2  # of isal; on digits all levels take the same time


def compress_if_accepted(body: bytes, accept_encoding: str | None) -> tuple[bytes, dict[str, str]]:
    """Compress a reply with gzip if it is large enough and the client accepts gzip.

    Args:
        body: The reply.
        accept_encoding: The request's ``Accept-Encoding``, or None where it has none.

    Returns:
        The body to send, and its headers: ``Vary`` if the reply depends on what the client accepts,
        ``Content-Encoding`` if it was compressed.
    """
    if len(body) < _MIN_BYTES:
        return body, {}
    headers = {"Vary": "Accept-Encoding"}
    if not accepts_gzip(accept_encoding or ""):
        return body, headers
    return b"".join(gzipped([body])), headers | {"Content-Encoding": "gzip"}


def gzipped(parts: Iterable[Buffer]) -> Iterator[bytes]:
    """Compress a body part by part."""
    compressor = zlib.compressobj(_LEVEL, zlib.DEFLATED, GZIP)
    for part in parts:
        yield compressor.compress(part)
    yield compressor.flush()


def accepts_gzip(accept_encoding: str) -> bool:
    """Return whether gzip is accepted (RFC 9110, 12.5.3): named or covered by ``*``, and not with q=0."""
    named = weights(accept_encoding)
    return named.get("gzip", named.get("x-gzip", named.get("*", 0.0))) > 0
