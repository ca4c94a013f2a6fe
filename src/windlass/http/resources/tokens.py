"""Access tokens, for administrators."""

from __future__ import annotations

import logging
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from windlass.access_tokens import AccessToken, Role
from windlass.core.durations import MAX_DURATION_MS
from windlass.errors import WindlassError
from windlass.http.problems import Problem, ProblemType, invalid
from windlass.http.resources.fields import Instant
from windlass.http.resources.scope import require_all_queues
from windlass.http.routes import ADMINS, ApiRequest, route

_WHAT = "To manage access tokens"

log: Final = logging.getLogger("windlass.http")


class TokenBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An access token to create."""

    name: Annotated[
        str,
        Meta(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.@:+-]{0,63}$(?!\n)"),
    ]
    role: Role
    #: Names or patterns such as `mail*`; every queue when empty.
    queues: Annotated[
        tuple[Annotated[str, Meta(pattern=r"^[A-Za-z0-9*][A-Za-z0-9_.*-]{0,63}$(?!\n)")], ...],
        Meta(max_length=100),
    ] = ()
    expires_in_s: Annotated[float, Meta(gt=0, le=MAX_DURATION_MS / 1000)] | None = None


class TokenPath(msgspec.Struct, frozen=True, kw_only=True):
    id: Annotated[str, Meta(pattern=r"^[0-9a-z]{12}$(?!\n)")]


class TokenAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """An access token, without its secret."""

    id: str
    name: str
    role: Role
    queues: tuple[str, ...]
    created_at: Instant
    expires_at: Instant | None
    ends_with: str  # the last characters of its text, to recognise it


class NewToken(msgspec.Struct, frozen=True, kw_only=True):
    """A new access token with its text, which is shown only here."""

    token: TokenAnswer
    text: str


class TokenList(msgspec.Struct, frozen=True, kw_only=True):
    """All access tokens, the oldest first."""

    tokens: tuple[TokenAnswer, ...]


@route("GET", "/v1/tokens", roles=ADMINS)
async def list_tokens(call: ApiRequest) -> TokenList:
    """List access tokens, also expired ones."""
    require_all_queues(call.principal, _WHAT)
    found = await call.gateway.call(call.gateway.app.access_tokens.list)
    return TokenList(tokens=tuple(map(_describe, found)))


@route("POST", "/v1/tokens", roles=ADMINS, status=201, problems=[ProblemType.CONFLICT])
async def create_token(call: ApiRequest, body: TokenBody) -> NewToken:
    """Create an access token.

    The answer has its text, which is not stored: keep it. The first token closes the API to
    callers without one."""
    require_all_queues(call.principal, _WHAT)
    try:
        token, text = await call.gateway.call(
            call.gateway.app.access_tokens.create,
            name=body.name,
            role=body.role,
            queues=body.queues,
            expires=body.expires_in_s,
        )
    except ValueError as error:
        raise invalid("body", str(error)) from None
    await _audit_done(call, "create_token", token)
    return NewToken(token=_describe(token), text=text)


@route("DELETE", "/v1/tokens/{id}", roles=ADMINS, status=204)
async def revoke_token(call: ApiRequest, path: TokenPath) -> None:
    """Revoke an access token.

    It stops working within two seconds at every instance."""
    require_all_queues(call.principal, _WHAT)
    tokens = await call.gateway.call(call.gateway.app.access_tokens.list)
    found = next((token for token in tokens if token.id == path.id), None)
    if found is None:
        raise Problem(ProblemType.NOT_FOUND, f"There is no access token with the id {path.id}.")
    await call.gateway.call(call.gateway.app.access_tokens.revoke, path.id)
    await _audit_done(call, "revoke_token", found)


async def _audit_done(call: ApiRequest, name: str, token: AccessToken) -> None:
    """Add an entry with the id and the name of a token: the entry before the change lacks one of
    them. The change is done, so the request does not fail without this entry."""
    try:
        await call.gateway.call(
            call.gateway.app.audit.add,
            actor=call.principal.name,
            action=f"http.{name}",
            subject=token.id,
            details={"name": token.name},
        )
    except WindlassError as error:
        log.error("%s of token %s has no audit entry: %s", name, token.id, error)


def _describe(token: AccessToken) -> TokenAnswer:
    return TokenAnswer(
        id=token.id,
        name=token.name,
        role=token.role,
        queues=token.queues,
        created_at=token.created_at,
        expires_at=token.expires_at,
        ends_with=token.ends_with,
    )
