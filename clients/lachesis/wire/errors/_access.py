"""The errors of requests whose sender may not make them, and of tokens."""

from lachesis.wire.errors._base import ServiceError
from lachesis.wire.errors._requests import NotFound


class Unauthorized(ServiceError):
    """The request has no valid credentials. The message says what is wrong with them, and never repeats them."""

    code = "unauthorized"
    status = 401
    remedy = (
        "Send a valid token as `Authorization: Bearer TOKEN`, or as the password in the URL. "
        "`python -m app token create` on the server makes one."
    )


class Forbidden(ServiceError):
    """The service refuses the request because of its origin. Nothing was changed."""

    code = "forbidden"
    status = 403
    remedy = "Send the request from a program, under a host name that the service knows."


class CrossSiteRequest(Forbidden):
    """A web page of another site sent the request."""

    code = "cross_site_request"
    remedy = "Open a page of the service itself, or send the request from a program."


class ForeignHost(Forbidden):
    """The request names a host that the service does not know."""

    code = "foreign_host"
    remedy = "Use a host name that the service knows, or add this one to LACHESIS_ALLOWED_HOSTS of the service."


class PermissionDenied(Forbidden):
    """The credentials are valid, and do not allow this request."""

    code = "permission_denied"
    remedy = "Use a token that allows the request. docs/security.md lists what each role may do."


class ClosedByDefault(Forbidden):
    """The service has no authentication, and the request came in on an address that other machines can reach."""

    code = "closed_by_default"
    remedy = (
        "On the server, create a token with `python -m app token create --role operator`, or set LACHESIS_INSECURE=1."
    )
    _detail_says_all = True


class IssuerUnavailable(ServiceError):
    """The service could not get the keys that verify the token. The token may be valid."""

    code = "issuer_unavailable"
    status = 503
    remedy = "Send the request again. If this lasts, check that the issuer of LACHESIS_JWT_ISSUER answers the service."
    retry_after_s: float | None = 5.0


class TokenNotFound(NotFound):
    """No token has this id."""

    code = "token_not_found"
    remedy = "Check the id with `GET /v1/tokens`. A token is forgotten at most 7 days after it has ended."
