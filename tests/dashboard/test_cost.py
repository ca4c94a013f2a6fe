"""No request of the dashboard grows with the backlog: the engine does the same work for each with
ten times as many jobs of each state.

The work is counted, not timed: steps of the virtual machine of SQLite, commands of a Redis server,
rows that a PostgreSQL server reads.
What a request may read at most, with a filter that few jobs match, is lowered for these tests, so
that a small backlog exceeds it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from tests.dashboard.backlog import Backlog, fill, fill_rare, record_runs, start_some, tend_at
from tests.dashboard.page_requests import (
    Worked,
    commands_of_redis,
    count_work,
    page_requests,
    rows_of_postgres,
    steps_of_sqlite,
    vacuum,
)
from tests.docs.pages import PROJECT
from tests.http.client import Client, LoopThread
from tests.http.shop import add_tasks
from tests.postgres_databases import borrow_database
from tests.postgres_server import shared_server as shared_postgres
from tests.redis_server import shared_server as shared_redis
from windlass import Windlass
from windlass.core.ids import new_session
from windlass.engine.contract import pages
from windlass.http import ApiOptions, access, create_api
from windlass.operations import operations

FEW: Final = Backlog(succeeded=200, ready=800, dead=200, scheduled=100, retrying=100, cancelled=100)
MANY: Final = Backlog(*(10 * number for number in FEW))
#: A page of one fingerprint reads up to a page of each of its groups, and a group of the small
#: backlog has fewer jobs. The most steps or commands for it.
BY_GROUP: Final = {"jobs: of a fingerprint": 8_000}
STATIC: Final = PROJECT / "src" / "windlass" / "dashboard" / "static"


#: Removes what the server of an engine removes by itself after a while.
Clean = Callable[[], object]


class Place(NamedTuple):
    """An empty engine, and how to count its work."""

    url: str
    counting: AbstractContextManager[Worked]
    clean: Clean = bool


class Instance:
    """The API on an engine, and the work of that engine."""

    def __init__(self, app: Windlass, client: Client, worked: Worked, clean: Clean) -> None:
        self.app = app
        self.client = client
        self.worked = worked
        self._clean = clean
        self._begun_ms = time.time_ns() // 1_000_000

    def fill(self, backlog: Backlog) -> None:
        """Add jobs, and do the maintenance that workers do."""
        fill(self.app.engine, backlog)
        tend_at(self.app.engine, self._begun_ms)

    def ask(self, path: str) -> Any:
        answer = self.client.get(path)
        assert answer.status_code == 200, f"{path}: {answer.text}"
        return answer.json() if path.startswith("/v1/") else answer.text

    def count_all(self) -> dict[str, int]:
        """The work of each request, while some jobs run."""
        session = new_session("counted", 1)
        start_some(self.app.engine, session)
        self._clean()
        requests = page_requests(self.ask)
        work = {name: self._count(path) for name, path in requests.items()}
        self.app.engine.close(session, (), "counted")
        return work

    def _count(self, path: str) -> int:
        return count_work(self.worked, lambda: self.ask(path))


def _sqlite(folder: Path) -> Place:
    return Place(f"sqlite:///{folder}/jobs.db?durability=normal", steps_of_sqlite())


def _redis(_folder: Path) -> Place:
    server = shared_redis()
    return Place(server.url(), nullcontext(commands_of_redis(server)))


def _postgres(_folder: Path) -> Place:
    server, database = shared_postgres(), borrow_database()
    counting = nullcontext(rows_of_postgres(server, database))
    return Place(server.url(database), counting, partial(vacuum, server, database))


@pytest.fixture(params=[_sqlite, _redis, pytest.param(_postgres, marks=pytest.mark.slow)])
def instance(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Instance]:
    place: Place = request.param(tmp_path)
    loop = LoopThread()
    try:
        with place.counting as worked, Windlass(place.url) as app:
            add_tasks(app)
            api = create_api(app, ApiOptions(rate=1e6, burst=1e6))
            yield Instance(app, Client(api, loop), worked, place.clean)
    finally:
        loop.close()


@pytest.fixture
def small_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "_NO_TOKENS_S", 3600)  # look for access tokens once
    monkeypatch.setattr(pages, "SCAN_BUDGET", 80)
    monkeypatch.setattr(operations, "MAX_PREVIEW", 50)


@pytest.mark.usefixtures("small_looks")
def test_no_request_grows_with_the_backlog(instance: Instance) -> None:
    fill_rare(instance.app.engine)
    record_runs(instance.app.engine, 10)
    instance.fill(FEW)
    few = instance.count_all()
    instance.fill(MANY.minus(FEW))
    many = instance.count_all()
    grown = {
        name: f"{work} became {many[name]}"
        for name, work in few.items()
        if (many[name] > BY_GROUP[name] if name in BY_GROUP else many[name] != work)
    }
    assert grown == {}


def test_the_requests_of_all_pages_are_counted() -> None:
    """A page that asks for something else needs a line in `page_requests`."""
    texts = [path.read_text() for path in sorted(STATIC.rglob("*.js"))]
    calls = [words for text in texts for words in re.findall(r"api\.get\(\[([^\]]+)\]", text)]
    asked = {f"/v1/{_fixed_part(words)}" for words in calls}
    answer = {"cursor": "c", "jobs": [{"id": "i"}], "groups": [{"task": "t", "fingerprint": "f"}]}
    counted = page_requests(lambda _path: answer).values()
    assert len(asked) > 10
    assert not [path for path in asked if not any(one.startswith(path) for one in counted)]


def _fixed_part(words: str) -> str:
    """The names with which a path begins, before an id: `"jobs", job.id` is `jobs`."""
    names = takewhile(lambda word: word.startswith('"'), words.split(", "))
    return "/".join(name.strip('"') for name in names)
