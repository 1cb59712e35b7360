"""Who sent a request, for the log."""

from functools import partial

from starlette.types import Scope

from app.events import caller

_SHOWN = {b"user-agent": "agent", b"x-forwarded-for": "forwarded_for"}


def note_caller(scope: Scope) -> None:
    """Let events that this request causes name who sent it. What is said of them is read only if there are any."""
    caller.set(partial(described, scope))


def described(scope: Scope) -> dict[str, str]:
    """Describe who sent a request.

    Returns:
        ``caller``, the address, and what the request says of itself, true or not: ``agent`` (its software) and
        ``forwarded_for`` (the client behind a proxy).
    """
    client = scope.get("client")
    said = {_SHOWN[name]: value.decode("latin-1") for name, value in scope["headers"] if name in _SHOWN}
    return {"caller": client[0] if client else "unix socket"} | said
