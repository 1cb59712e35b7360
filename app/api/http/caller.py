"""Name the sender of a request, and describe it for the log."""

from functools import partial

from starlette.types import Scope

from app.core.access.addresses import sender_of_address
from app.core.access.identity import Identity
from app.events import caller
from lachesis.wire.access import masked

IDENTITY = "lachesis.identity"
"""The key of a scope for the identity of the sender (`app.api.http.access.control`)."""

UNIX_SOCKET = "unix socket"
MOST_SHOWN = 200
"""The most characters of a path or a name that a sender chose, in the log and in messages."""

_SHOWN = {b"user-agent": "agent", b"x-forwarded-for": "forwarded_for"}


def note_caller(scope: Scope) -> None:
    """Add the sender of this request to its events. The headers are read only if there is an event."""
    caller.set(partial(described_caller, scope))


def described_caller(scope: Scope) -> dict[str, str]:
    """Describe who sent a request.

    Returns:
        ``caller`` (the address), what is known of the identity, and the request's own claims:
        ``agent`` (its software) and ``forwarded_for`` (the client behind a proxy).
    """
    said = {_SHOWN[name]: value.decode("latin-1") for name, value in scope["headers"] if name in _SHOWN}
    return {"caller": address_of(scope)} | _described_identity(scope.get(IDENTITY)) | said


def _described_identity(identity: Identity | None) -> dict[str, str]:
    if identity is None or identity.kind == "open":
        return {}
    described = {"identity": identity.name, "identified_by": identity.kind, "role": identity.role}
    return described | ({"token": identity.token_id} if identity.token_id else {})


def shown_path(scope: Scope) -> str:
    """Return the path of a request for the log: cut, and without tokens."""
    return masked(scope["path"])[:MOST_SHOWN]


def account_of(scope: Scope) -> str | None:
    """Return the identified sender of a request, the same for all its addresses; None without an identity."""
    identity: Identity | None = scope.get(IDENTITY)
    return None if identity is None else identity.account


def counted_sender(scope: Scope) -> str:
    """Return who a request counts for: its account, or its address without an identity."""
    return account_of(scope) or sender_of(scope)


def address_of(scope: Scope) -> str:
    """Return the address of the sender, for the log."""
    client = scope.get("client")
    return client[0] if client else UNIX_SOCKET


def sender_of(scope: Scope) -> str:
    """Return the sender for limits, by its address (`sender_of_address`)."""
    return sender_of_address(address_of(scope))
