"""The OpenAPI document and the table of roles: what they say is so."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

import httpx
import pytest

from tests.http.client import Client
from tests.http.conftest import Caller
from tests.http.document_run import run_document
from tests.http.server_process import ServerProcess
from windlass import Windlass
from windlass.access_tokens import Role
from windlass.http.openapi import build_document
from windlass.http.routes import OPERATORS, Route
from windlass.http.table import ROUTES

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
NO_TOKEN = "no token"


# --------------------------------------------------------------------------------- random requests


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"sqlite:///{tmp_path_factory.mktemp('document')}/jobs.db?durability=normal"


@pytest.fixture(scope="module")
def tokens(url: str) -> dict[str, str]:
    with Windlass(url) as app:
        return {role: app.access_tokens.create(name=role, role=role)[1] for role in Role}


@pytest.fixture(scope="module")
def server(
    url: str, tokens: Mapping[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    log = tmp_path_factory.mktemp("document-log") / "log"
    options = ("--rate-limit", "100000", "--url", url)
    server = ServerProcess("tests.http.shop_app:app", log, *options)
    yield server
    assert server.stop() == 0, server.log()


@pytest.mark.parametrize(
    ("role", "examples"),
    [
        pytest.param(Role.ADMIN, 4),
        pytest.param(NO_TOKEN, 1),
        *(pytest.param(role, 30, marks=pytest.mark.slow) for role in [NO_TOKEN, *Role]),
    ],
)
@pytest.mark.timeout(600)
def test_random_requests_get_documented_answers(
    server: ServerProcess, tokens: Mapping[str, str], role: str, examples: int
) -> None:
    operations = list(run_document(server.url, tokens.get(role), examples))
    assert len(operations) == sum(not route.is_stream for route in ROUTES)
    assert "Traceback" not in server.log()


# ------------------------------------------------------------------------------------------- roles


@pytest.fixture(scope="module")
def answers(server: ServerProcess, tokens: Mapping[str, str]) -> dict[tuple[str, str, str], int]:
    """The status of every path, method and role."""
    found = {}
    paths = sorted({route.path for route in ROUTES if not route.is_stream})
    with httpx.Client(base_url=server.url, timeout=30) as client:
        for path, method, role in product(paths, METHODS, [NO_TOKEN, *Role]):
            headers = {"Authorization": f"Bearer {tokens[role]}"} if role in tokens else {}
            target = re.sub(r"{\w+}", "nope", path)
            response = client.request(method, target, headers=headers, content=b"!")
            found[path, method, role] = response.status_code
    return found


@pytest.mark.parametrize("role", [NO_TOKEN, *Role])
def test_roles_may_do_what_the_table_says(
    answers: Mapping[tuple[str, str, str], int], role: str
) -> None:
    table = {(route.path, route.method): route for route in ROUTES if not route.is_stream}
    for (path, method, who), status in answers.items():
        if who == role:
            route = table.get((path, method))
            assert status in expected(route, role), (method, path, role, status)


def expected(route: Route | None, role: str) -> set[int]:
    """The statuses of a request that is invalid, if it comes that far."""
    if route is None:
        return {405}
    if not route.roles:
        return {200}
    if role == NO_TOKEN:
        return {401, 429}  # after many of them, guessing is slowed down
    if role not in route.roles:
        return {403}
    return {200, 204, 400, 404, 409, 410, 415, 422}


def test_every_change_is_audited_or_names_its_caller() -> None:
    for route in ROUTES:
        if route.changes:
            is_of_jobs = Role.PRODUCER in route.roles or Role.WORKER in route.roles
            assert route.is_audited or is_of_jobs, route.name
            assert not route.is_audited or route.roles <= OPERATORS


def test_a_viewer_reads_what_an_operator_reads_and_changes_nothing() -> None:
    for route in ROUTES:
        is_read = not route.changes and Role.OPERATOR in route.roles
        assert (Role.VIEWER in route.roles) is is_read, route.name


def test_reading_changes_nothing_by_its_method() -> None:
    assert {route.method for route in ROUTES if not route.changes} == {"GET"}


# ---------------------------------------------------------------------------------------- document


def test_the_document_is_complete(client: Client) -> None:
    document = client.get("/openapi.json").json()
    assert document["openapi"] == "3.1.0"
    described = {
        (path, method.upper()) for path, own in document["paths"].items() for method in own
    }
    assert described == {(route.path, route.method) for route in ROUTES}
    names = [own["operationId"] for path in document["paths"].values() for own in path.values()]
    assert len(names) == len(set(names))


def test_every_reference_is_defined() -> None:
    document = build_document(ROUTES)
    defined = document["components"]["schemas"]
    for reference in references(document):
        assert reference.removeprefix("#/components/schemas/") in defined


def references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        for value in node.values():
            yield from references(value)
    elif isinstance(node, list):
        for value in node:
            yield from references(value)


def test_a_caller_is_told_which_role_it_needs(caller: Caller) -> None:
    response = caller("worker").post("/v1/queues/mail/pause")
    assert response.status_code == 403
    assert response.json()["detail"].endswith("needs admin or operator.")
