"""The route table: the one source for validation, access, the OpenAPI document and the tests.

1. `@route` describes a handler: method, path, roles, status and problems. The types of
   the parameters `path`, `query` and `body`, and of the answer, are those of its annotations.
2. `routes_in` collects the routes of modules.
3. `ApiRequest` is what a handler gets. A `Reply` is an answer with another status than usual.
"""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import ModuleType, UnionType
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from windlass.access_tokens import RIGHTS, Right, Role
from windlass.http.problems import ProblemType

if TYPE_CHECKING:
    from windlass.http.access import Principal
    from windlass.http.gateway import Gateway

Handler = TypeVar("Handler", bound=Callable[..., Awaitable[Any]])

#: The roles that may call a route. Every caller may call a route without roles.
EVERYONE: Final[frozenset[Role]] = frozenset()
IDENTIFIED: Final = frozenset(Role)
PRODUCERS: Final = RIGHTS[Right.ENQUEUE]
WORKERS: Final = RIGHTS[Right.WORK]
VIEWERS: Final = RIGHTS[Right.LIST_JOBS]
JOB_READERS: Final = RIGHTS[Right.READ_JOBS]
OPERATORS: Final = RIGHTS[Right.CHANGE_JOBS]
ADMINS: Final = RIGHTS[Right.MANAGE_TOKENS]

#: The most bytes of a body.
MAX_BODY: Final = 8 * 1024 * 1024
#: The most values of a body.
MAX_VALUES: Final = 200_000
#: Problems that every route with an access check can answer.
COMMON: Final = (
    ProblemType.BAD_REQUEST,
    ProblemType.CROSS_SITE,
    ProblemType.WRONG_HOST,
    ProblemType.TOO_MANY,
    ProblemType.INTERNAL,
    ProblemType.ENGINE_AWAY,
    ProblemType.OVERLOADED,
)


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the table."""

    method: str
    path: str  # such as /v1/jobs/{id}
    name: str  # the operation id of the OpenAPI document
    summary: str
    description: str
    roles: frozenset[Role]
    handler: Callable[..., Awaitable[Any]]
    path_type: type[Any] | None
    query_type: type[Any] | None
    body_type: type[Any] | None
    answer_type: Any  # None for an empty answer
    status: int
    problems: tuple[ProblemType, ...]
    is_stream: bool = False
    takes_idempotency_key: bool = False
    media_types: tuple[str, ...] = ()  # of an answer that is no JSON
    #: Call the handler as `access.PUBLIC` while the engine cannot authenticate the caller. Its
    #: answer must tell nothing more.
    answers_outage: bool = False
    other_answers: Mapping[int, Any] = {}  # further statuses of success with their types

    @property
    def changes(self) -> bool:
        """Whether the route may change anything."""
        return self.method not in ("GET", "HEAD")

    @property
    def is_audited(self) -> bool:
        """Whether a call is added to the audit trail. Jobs that producers enqueue name their caller
        themselves, and claims name the session of their worker."""
        return self.changes and bool(self.roles) and self.roles <= OPERATORS

    @property
    def tag(self) -> str:
        """The group of the route in the document: the first part after /v1."""
        parts = [part for part in self.path.split("/") if part and part != "v1"]
        return parts[0] if parts and self.path.startswith("/v1/") else "server"


class ApiRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request after all checks."""

    route: Route
    gateway: Gateway
    principal: Principal
    headers: Mapping[str, str]
    is_gone: Callable[[], Awaitable[None]]  # returns when the client has left
    #: Whether the caller would be admitted again: its token may have been revoked meanwhile.
    is_admitted: Callable[[], Awaitable[bool]]


class Reply(msgspec.Struct, frozen=True):
    """An answer with one of the `other_answers` of its route."""

    status: int
    answer: Any


def route(
    method: str,
    path: str,
    *,
    roles: frozenset[Role],
    status: int = 200,
    problems: Sequence[ProblemType] = (),
    is_stream: bool = False,
    takes_idempotency_key: bool = False,
    media_types: Sequence[str] = (),
    answers_outage: bool = False,
    other_answers: Mapping[int, Any] | None = None,
) -> Callable[[Handler], Handler]:
    """Describe a handler. Its docstring is the summary, and after an empty line the description."""

    def describe(handler: Handler) -> Handler:
        vars(handler)["windlass_route"] = {
            "method": method,
            "path": path,
            "roles": roles,
            "status": status,
            "problems": tuple(problems),
            "is_stream": is_stream,
            "takes_idempotency_key": takes_idempotency_key,
            "media_types": tuple(media_types),
            "answers_outage": answers_outage,
            "other_answers": dict(other_answers or {}),
        }
        return handler

    return describe


def routes_in(*modules: ModuleType) -> list[Route]:
    """Collect the routes of modules, in the order in which they stand there."""
    found = []
    for module in modules:
        for value in vars(module).values():
            described = getattr(value, "windlass_route", None)
            if described is not None and value.__module__ == module.__name__:
                found.append(_route_of(value, described))
    return found


def _route_of(handler: Callable[..., Awaitable[Any]], described: Mapping[str, Any]) -> Route:
    hints = typing.get_type_hints(handler)
    summary, _, description = inspect.cleandoc(handler.__doc__ or "").partition("\n\n")
    answer = _without_reply(hints["return"])
    problems = [*COMMON, *described["problems"]]
    if described["roles"]:
        problems += [ProblemType.UNAUTHENTICATED, ProblemType.FORBIDDEN]
    if "path" in hints or "query" in hints or "body" in hints:
        problems.append(ProblemType.INVALID)
    if "body" in hints:
        problems += [ProblemType.TOO_LARGE, ProblemType.UNSUPPORTED_MEDIA, ProblemType.TIMED_OUT]
    if "path" in hints:
        problems.append(ProblemType.NOT_FOUND)
    _check_path(described["path"], hints.get("path"))
    return Route(
        method=described["method"],
        path=described["path"],
        name=handler.__name__,
        summary=_one_line(summary).removesuffix("."),
        description=_one_line(description),
        roles=described["roles"],
        handler=handler,
        path_type=hints.get("path"),
        query_type=hints.get("query"),
        body_type=hints.get("body"),
        answer_type=None if answer is type(None) else answer,
        status=described["status"],
        problems=tuple(dict.fromkeys(problems)),
        is_stream=described["is_stream"],
        takes_idempotency_key=described["takes_idempotency_key"],
        media_types=described["media_types"],
        answers_outage=described["answers_outage"],
        other_answers=described["other_answers"],
    )


def _without_reply(answer: Any) -> Any:
    """The type of the usual answer: a handler that may `Reply` returns a union."""
    others = [kind for kind in typing.get_args(answer) if kind is not Reply]
    is_union = isinstance(answer, UnionType) and len(others) < len(typing.get_args(answer))
    return others[0] if is_union else answer


def _one_line(text: str) -> str:
    return re.sub(r"[ \t]*\n[ \t]*(?!\n)", " ", text).strip()


def _check_path(path: str, path_type: type[Any] | None) -> None:
    names = set(re.findall(r"{(\w+)}", path))
    fields = set(() if path_type is None else path_type.__struct_fields__)
    if names != fields:
        raise TypeError(f"The path {path} and the fields of its struct differ: {names ^ fields}")
