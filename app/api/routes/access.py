"""Who sends a request; the tokens: created, listed, revoked, rotated."""

from typing import Annotated

from fastapi import APIRouter, Path, Response

from app.api.deps import ServicesDep, SmallBody, parse
from app.api.http.access.control import IdentityDep
from app.api.http.openapi import body_responses, json_body, read_responses, write_responses
from app.api.http.replies import model_reply
from app.api.http.routing import NativeRoute, requires
from app.api.wire.access import created_token, scope_of, shown_token
from app.core.access.identity import account_of_token
from app.core.access.permissions import Permission, allowed
from lachesis.wire import errors
from lachesis.wire.access import TOKEN_ID, OwnIdentity, TokenCreate, TokenCreated, TokenRotate, Tokens

_SECRET = {"Cache-Control": "no-store"}

router = APIRouter(prefix="/v1", tags=["tokens"], route_class=NativeRoute)

TokenId = Annotated[str, Path(pattern=f"^{TOKEN_ID}$", description="The token's id.")]


@router.get("/identity", summary="Who am I?", response_model=OwnIdentity, responses=read_responses())
@requires(Permission.DESCRIBE)
async def get_identity(identity: IdentityDep) -> Response:
    """Return who sends the request, as the service has verified it, and what it may do."""
    return model_reply(
        OwnIdentity(
            name=identity.name,
            kind=identity.kind,
            role=identity.role,
            runs=identity.runs,
            environment=identity.environment,
            permissions=[permission.name.lower() for permission in allowed(identity)],
        )
    )


@router.post(
    "/tokens",
    summary="Create a token",
    status_code=201,
    response_model=TokenCreated,
    responses=body_responses(errors.Conflict),
    openapi_extra=json_body(TokenCreate),
)
@requires(Permission.TOKENS)
async def create_token(services: ServicesDep, body: SmallBody) -> Response:
    """Create a token. Only this answer has it: the service keeps its SHA-256.

    From the first token on, every request needs credentials.
    """
    asked = parse(TokenCreate, body)
    facts, text = await services.access.tokens.create(scope_of(asked), asked.expires_s)
    return model_reply(created_token(facts, text), 201, _SECRET)


@router.get("/tokens", summary="List tokens", response_model=Tokens, responses=read_responses())
@requires(Permission.TOKENS)
async def list_tokens(services: ServicesDep) -> Response:
    """List all tokens by id, without secrets.

    Tokens that have ended are listed for 7 days, or until 10,000 tokens exist.
    """
    found, of_account = await services.access.tokens.list(), services.connections.of_account
    return model_reply(
        Tokens(tokens=[shown_token(facts, of_account(account_of_token(facts.record.token_id))) for facts in found])
    )


@router.delete(
    "/tokens/{token}", summary="Revoke a token", status_code=204, responses=write_responses(errors.TokenNotFound)
)
@requires(Permission.TOKENS)
async def revoke_token(token: TokenId, services: ServicesDep) -> Response:
    """Revoke a token. All processes refuse it within 5 s, and requests that wait end. May be repeated."""
    await services.access.tokens.revoke(token)
    return Response(status_code=204)


@router.post(
    "/tokens/{token}/rotate",
    summary="Rotate a token",
    response_model=TokenCreated,
    responses=body_responses(errors.TokenNotFound, errors.Conflict),
    openapi_extra=json_body(TokenRotate, required=False),
)
@requires(Permission.TOKENS)
async def rotate_token(token: TokenId, services: ServicesDep, body: SmallBody) -> Response:
    """Give a token a new secret. The present one stays valid for `overlap_s`; one before it ends at once."""
    asked = parse(TokenRotate, body) if body else TokenRotate()
    facts, text = await services.access.tokens.rotate(token, asked.overlap_s)
    return model_reply(created_token(facts, text), headers=_SECRET)
