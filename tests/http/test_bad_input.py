"""Malformed requests get a problem document each, and store nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import psutil
import pytest

from tests.http.bad_requests import BadRequest, bad_requests, send
from tests.http.server_process import ServerProcess
from windlass import Windlass
from windlass.http.problems import ProblemDocument

NUMBER = 400


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"sqlite:///{tmp_path_factory.mktemp('bad-input')}/jobs.db?durability=normal"


@pytest.fixture(scope="module")
def token(url: str) -> str:
    with Windlass(url) as app:
        return app.access_tokens.create(name="admin", role="admin")[1]


@pytest.fixture(scope="module")
def server(
    url: str, token: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    log: Path = tmp_path_factory.mktemp("bad-input-log") / "log"
    server = ServerProcess("tests.http.shop_app:app", log, "--rate-limit", "100000", "--url", url)
    yield server
    assert server.stop() == 0, server.log()


def test_each_gets_a_problem_document_and_nothing_is_stored(
    server: ServerProcess, url: str, token: str
) -> None:
    requests = list(bad_requests(NUMBER, token))
    for request in requests[:50]:
        send(server.port, request)
    process = psutil.Process(server.pid)
    before = process.memory_info().rss
    for request in requests:
        check(server.port, request)
    assert process.memory_info().rss - before < 30e6
    with Windlass(url) as app:
        assert app.stats().totals.get("enqueued", 0) == 0
    assert "Traceback" not in server.log()


def check(port: int, request: BadRequest) -> None:
    """Send one, and check its answer."""
    answer = send(port, request)
    assert 400 <= answer.status < 500, (request.what, answer)
    assert answer.kind == "application/problem+json", (request.what, answer)
    document = msgspec.json.decode(answer.body, type=ProblemDocument)
    assert document.status == answer.status
    assert document.detail, request.what


def test_the_server_answers_good_requests_afterwards(server: ServerProcess, token: str) -> None:
    good = (
        "GET /v1/stats HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        f"Authorization: Bearer {token}\r\n\r\n"
    )
    assert send(server.port, BadRequest("none", good.encode())).status == 200
