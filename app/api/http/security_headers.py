"""The security headers of every answer. Pages and JSON have the same ones, so they are one constant."""

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)

HEADERS: tuple[tuple[bytes, bytes], ...] = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"content-security-policy", CONTENT_SECURITY_POLICY.encode()),
)
NOT_STORED = (*HEADERS, (b"cache-control", b"no-store"))


def with_security_headers(own: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Add the security headers to those of an answer. No cache keeps an answer that does not say that it may."""
    return [*own, *(HEADERS if b"cache-control" in dict(own) else NOT_STORED)]
