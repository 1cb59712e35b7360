"""Ask who sends each request, and whether the route allows it.

`AccessControl` identifies the sender before the request is routed. `permit` then compares the permission of the route
with the identity: routes call it themselves (`app.api.http.routing`).
"""

import base64
import binascii
from collections.abc import Callable, Collection
from typing import Annotated, Self

from fastapi import Depends, Request
from starlette.types import ASGIApp, Receive, Scope, Send

from app.api.deps import Services
from app.api.http.caller import IDENTITY
from app.api.http.connection.certificates import PEER_CERTIFICATE
from app.api.http.connection.client_connection import end, end_of_waiting
from app.api.http.connection.connections import OPEN_CONNECTION, OpenConnection, count_connection
from app.api.http.headers import headers_of
from app.core.access.identity import OPEN, Identity
from app.core.access.loopback import TWO_WAYS, is_loopback
from app.core.access.permissions import AccessDecision, Permission, decide, holders
from app.services.access.authentication import NO_CREDENTIALS
from app.services.access.credentials import GivenCredentials, PeerCertificate
from lachesis.wire.errors import (
    ClosedByDefault,
    HeadersTooLarge,
    PermissionDenied,
    RunNotFound,
    ServiceError,
    Unauthorized,
)
from lachesis.wire.runs import DEFAULT_RUN

MAX_CREDENTIALS_BYTES = 16 * 1024


class AccessControl:
    """ASGI middleware that identifies the sender of each request.

    While the service has no authentication, it answers only on addresses that other machines cannot reach.

    Args:
        app: The application.
        open_paths: Paths that need no identity.
        outage_paths: Paths that are answered also while Redis does not answer (`Authenticator.identify_in_outage`).
        is_page: Whether a request is for a page without data. It needs no identity where others need credentials.
        published_on: The address under which a container's port is published; None outside of containers.
    """

    def __init__(
        self,
        app: ASGIApp,
        open_paths: Collection[str],
        outage_paths: Collection[str],
        is_page: Callable[[Scope], bool],
        published_on: str | None,
    ) -> None:
        self._app = app
        self._open_paths = frozenset(open_paths)
        self._outage_paths = frozenset(outage_paths)
        self._is_page = is_page
        self._is_published_here = published_on is not None and is_loopback(published_on)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in self._open_paths:
            services: Services = scope["state"]["services"]
            authenticator = services.access.authenticator
            credentials, is_page, required = None, self._is_page(scope), authenticator.required
            if required and not is_page:
                credentials = credentials_of(scope)
                if credentials is None:  # required stays required: refuse without asking Redis
                    raise Unauthorized(NO_CREDENTIALS)
            identify = authenticator.identify
            if required and scope["path"] in self._outage_paths:
                identify = authenticator.identify_in_outage
            else:
                await authenticator.refresh()
            if authenticator.required:
                if not is_page:
                    identity = scope[IDENTITY] = await identify(credentials or credentials_of(scope))
                    count_connection(scope, identity.account)
            else:
                if not (authenticator.insecure or self._is_published_here):
                    _check_address(scope)
                scope[IDENTITY] = OPEN
        await self._app(scope, receive, send)


def credentials_of(scope: Scope) -> GivenCredentials | None:
    """Read the credentials of a request: a bearer token, the password of Basic authentication, a client certificate.

    A header that is the same as that of the request before, on the same connection, is not read again.

    Raises:
        Unauthorized: There are two, or they are in another form. The message does not repeat them.
        HeadersTooLarge: They are too long to be any.
    """
    given = headers_of(scope, b"authorization")
    if len(given) > 1:
        raise Unauthorized("the request has more than one Authorization header")
    certificate = scope.get(PEER_CERTIFICATE)
    if not given:
        return None if certificate is None else GivenCredentials(certificate=certificate)
    found = given[0]
    connection: OpenConnection | None = scope.get(OPEN_CONNECTION)
    if connection is None:
        return _read(found, certificate)
    if connection.credentials is None or connection.credentials[0] != found:
        connection.credentials = found, _read(found, certificate)
    return connection.credentials[1]


def _read(header: bytes, certificate: PeerCertificate | None) -> GivenCredentials:
    if len(header) > MAX_CREDENTIALS_BYTES:
        raise HeadersTooLarge(f"the Authorization header is over {MAX_CREDENTIALS_BYTES} bytes")
    scheme, _, said = header.strip().partition(b" ")
    match scheme.lower():
        case b"bearer":
            secret = said.strip()
        case b"basic":
            secret = _password(said.strip())
        case _:
            raise Unauthorized("the Authorization header is neither Bearer nor Basic")
    if not secret:
        raise Unauthorized("the Authorization header has no token")
    return GivenCredentials(secret, certificate)


def _password(said: bytes) -> bytes:
    """Return the password of Basic authentication, or its user name if there is no password."""
    try:
        user, _, password = base64.b64decode(said, validate=True).partition(b":")
    except binascii.Error:
        raise Unauthorized("the Basic credentials are not base64") from None
    return password or user


def _check_address(scope: Scope) -> None:
    """Refuse a request that came in on an address that other machines can reach.

    Raises:
        ClosedByDefault: It did.
    """
    server = scope.get("server")
    if server is not None and server[1] is not None and not is_loopback(server[0]):
        raise ClosedByDefault(f"the service has no authentication and listens on {server[0]}; {TWO_WAYS}")


def identity_of(scope: Scope) -> Identity:
    """Return who sends a request. Routes that are open have no identity."""
    identity: Identity = scope[IDENTITY]
    return identity


async def _identity(request: Request) -> Identity:
    return identity_of(request.scope)


IdentityDep = Annotated[Identity, Depends(_identity)]
"""Who sends the request, as a parameter of a route."""


class Waiting:
    """A request that waits. It ends when its client leaves, the server ends, or its credentials end.

    Used as a context. A refusal in the block becomes `Unauthorized` if the credentials have ended.

    Attributes:
        ended: Done when the request should stop waiting.
    """

    def __init__(self, request: Request) -> None:
        services: Services = request.scope["state"]["services"]
        self.ended = end_of_waiting(request.scope)
        self._watching = services.access.authenticator.watching(identity_of(request.scope), self._revoke)
        self._revoked = False

    def _revoke(self) -> None:
        self._revoked = True
        end(self.ended)

    def __enter__(self) -> Self:
        self._watching.__enter__()
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        self._watching.__exit__(None, None, None)
        if isinstance(error, ServiceError):
            self.check()

    def check(self) -> None:
        """Call this before an answer that has nothing of what the request waited for.

        Raises:
            Unauthorized: The credentials have ended in the meantime.
        """
        if self._revoked:
            raise Unauthorized("the credentials were revoked or have expired while the request was waiting")


def permit(scope: Scope, permission: Permission, *, of_run: bool) -> None:
    """Check that the sender of a request may use its route.

    Args:
        scope: The scope of the request, with the parameters of its path.
        permission: What the route needs.
        of_run: Whether that is a permission in a run (`in_a_run`).

    Raises:
        RunNotFound: There is no such run for this identity. The answer is that for a run that does not exist.
        PermissionDenied: The role does not allow it.
    """
    if permission is Permission.OPEN:
        return
    run = scope["path_params"].get("run", DEFAULT_RUN) if of_run else None
    check(identity_of(scope), permission, run)


def check(identity: Identity, permission: Permission, run: str | None) -> None:
    """Check that an identity has a permission, in a run or for the service (None).

    Raises:
        RunNotFound: There is no such run for this identity.
        PermissionDenied: The role does not allow it.
    """
    match decide(identity, permission, run):
        case AccessDecision.UNKNOWN_RUN:
            assert run is not None, "permissions of the service name no run"  # noqa: S101
            raise RunNotFound.named(run)
        case AccessDecision.FORBIDDEN:
            raise PermissionDenied(f"role {identity.role} does not allow this request. It needs {holders(permission)}")
