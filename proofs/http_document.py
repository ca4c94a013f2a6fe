"""The HTTP API does what its document says, and malformed requests do no harm.

1. schemathesis makes requests from the document, without a token and with one of each role.
2. 2,000 malformed requests get a problem document each; nothing is stored, and memory stays flat.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec
import psutil

from proofs.everywhere import on_every_engine
from tests.contract.variants import fresh_url
from tests.http.bad_requests import bad_requests, send
from tests.http.document_run import run_document
from tests.http.server_process import ServerProcess
from windlass import Windlass
from windlass.access_tokens import Role
from windlass.http.problems import ProblemDocument

APP: Final = "tests.http.shop_app:app"
#: Each takes some minutes. PostgreSQL refuses texts that the others store.
DOCUMENT_ENGINES: Final = ("sqlite-file", "postgres")
EXAMPLES: Final = 50
BAD_REQUESTS: Final = 2_000
MOST_GROWTH_MB: Final = 20.0


def prove_document(folder: Path) -> Iterator[str]:
    for engine in DOCUMENT_ENGINES:
        own = folder / engine
        own.mkdir()
        for line in _prove_document(own, fresh_url(engine, own)):
            yield f"{engine}: {line}"


def _prove_document(folder: Path, url: str) -> Iterator[str]:
    with _serve(folder, url) as (server, tokens):
        for role in [None, *Role]:
            operations = list(run_document(server.url, tokens.get(role or ""), EXAMPLES))
            assert "Traceback" not in server.log()
            who = role or "no token"
            yield f"{who}: {len(operations)} operations x {EXAMPLES} requests, as documented"


@on_every_engine
def prove_bad_input(folder: Path, url: str) -> Iterator[str]:
    with _serve(folder, url) as (server, tokens):
        requests = list(bad_requests(BAD_REQUESTS, tokens[Role.ADMIN]))
        for request in requests[:200]:
            send(server.port, request)
        process = psutil.Process(server.pid)
        before = process.memory_info().rss
        statuses: Counter[int] = Counter()
        for request in requests:
            answer = send(server.port, request)
            statuses[answer.status] += 1
            assert 400 <= answer.status < 500, (request.what, answer)
            document = msgspec.json.decode(answer.body, type=ProblemDocument)
            assert document.status == answer.status, request.what
        growth_mb = (process.memory_info().rss - before) / 1e6
        with Windlass(url) as app:
            stored = app.stats().totals.get("enqueued", 0)
        counted = ", ".join(f"{number} x {status}" for status, number in sorted(statuses.items()))
        yield f"{BAD_REQUESTS} malformed requests: {counted}"
        yield f"jobs stored: {stored}; memory grew by {growth_mb:.1f} MB"
        assert not stored
        assert growth_mb < MOST_GROWTH_MB
        assert "Traceback" not in server.log()


@contextmanager
def _serve(folder: Path, url: str) -> Iterator[tuple[ServerProcess, dict[str, str]]]:
    with Windlass(url) as app:
        tokens = {str(role): app.access_tokens.create(name=role, role=role)[1] for role in Role}
    options = ("--url", url, "--rate-limit", "100000")
    server = ServerProcess(APP, folder / "log", *options)
    try:
        yield server, tokens
        assert server.stop() == 0, server.log()
    finally:
        server.kill()
