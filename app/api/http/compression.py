"""Compress replies."""

from app.api.http.negotiation import weights

try:
    from isal import igzip as gzip
except ImportError:  # no wheel for this Python
    import gzip  # type: ignore[no-redef]

_MIN_BYTES = 1000  # the limit of Atropos; compressing less costs more than it saves
_LEVEL = 2  # of igzip; on digits all levels take the same time


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
    if not _accepts_gzip(accept_encoding or ""):
        return body, headers
    return gzip.compress(body, _LEVEL), headers | {"Content-Encoding": "gzip"}


def _accepts_gzip(accept_encoding: str) -> bool:
    """Return whether gzip is accepted (RFC 9110, 12.5.3): named or covered by ``*``, and not with q=0."""
    named = weights(accept_encoding)
    return named.get("gzip", named.get("x-gzip", named.get("*", 0.0))) > 0
