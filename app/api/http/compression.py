"""Compress replies, for clients that ask for it."""

from app.api.http.negotiation import weights

try:
    from isal import igzip as gzip
except ImportError:  # no wheel for this Python
    import gzip  # type: ignore[no-redef]

_MIN_BYTES = 1000  # below it, packing costs more than the bytes it saves (Atropos has the same limit)
_LEVEL = 2  # of igzip, whose levels take the same time on digits


def compress_if_accepted(body: bytes, accept_encoding: str | None) -> tuple[bytes, dict[str, str]]:
    """Compress a reply with gzip if it is worth it and the client accepts it.

    Args:
        body: The reply.
        accept_encoding: The request's ``Accept-Encoding``, or None where it has none.

    Returns:
        The body to send, and the headers that go with it: ``Vary`` wherever the answer depends on what the client
        accepts, ``Content-Encoding`` where it was compressed.
    """
    if len(body) < _MIN_BYTES:
        return body, {}
    headers = {"Vary": "Accept-Encoding"}
    if not _accepts_gzip(accept_encoding or ""):
        return body, headers
    return gzip.compress(body, _LEVEL), headers | {"Content-Encoding": "gzip"}


def _accepts_gzip(accept_encoding: str) -> bool:
    """Whether gzip is among the accepted codings (RFC 9110, 12.5.3): named, or covered by ``*``, and not at q=0."""
    named = weights(accept_encoding)
    return named.get("gzip", named.get("x-gzip", named.get("*", 0.0))) > 0
