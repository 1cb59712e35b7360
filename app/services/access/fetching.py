"""How the documents of an issuer of JWTs are fetched."""

from collections.abc import Awaitable, Callable

Fetch = Callable[[str], Awaitable[bytes]]
"""Gets the document at a URL. It limits size and time, and raises `IssuerFetchFailed`."""


class IssuerFetchFailed(Exception):
    """A document of the issuer could not be fetched. The message says which, and why."""
