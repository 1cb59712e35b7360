"""Describe the sender of a request, for the log."""

from functools import partial

from starlette.types import Scope

from app.events import caller

_SHOWN = {b"user-agent": "agent", b"x-forwarded-for": "forwarded_for"}


def note_caller(scope: Scope) -> None:
    """Add the sender of this request to its events. The headers are read only if there is an event."""
    caller.set(partial(described, scope))


def described(scope: Scope) -> dict[str, str]:
    """Describe who sent a request.

    Returns:
        ``caller`` (the address), and the request's own claims: ``agent`` (its software) and ``forwarded_for`` (the
        client behind a proxy).
    """
    client = scope.get("client")
    said = {_SHOWN[name]: value.decode("latin-1") for name, value in scope["headers"] if name in _SHOWN}
    return {"caller": client[0] if client else "unix socket"} | said
