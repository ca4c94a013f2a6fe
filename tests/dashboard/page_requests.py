"""The requests of the dashboard's pages, and the work that an engine does for each of them.

1. `page_requests` lists them by page: what a page asks first, with its filters, and further pages
   of lists.
2. `steps_of_sqlite` counts the steps of the virtual machine of SQLite, which are about ten for each
   row, `commands_of_redis` the commands of a server, also those inside scripts, and
   `rows_of_postgres` the rows and index entries that a server reads.
3. `count_work` takes the least of some tries: other threads of an instance use the engine too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import apsw

from tests.dashboard.backlog import RARE_TASK
from tests.postgres_server import PostgresServer
from tests.redis_server import RedisServer

#: Answers a request of the API with the decoded JSON.
Ask = Callable[[str], Any]

#: The number of jobs on a page of the dashboard.
_LIMIT: Final = 50
#: The states by which the page of jobs filters.
_STATES: Final = ("running", "ready", "scheduled", "retrying", "dead", "cancelled", "succeeded")
_FILTERS: Final = {
    "of a queue": "queue=media",
    "of a task": "task=shop.charge",
    "of a rare task": f"task={RARE_TASK}",
    "of an unknown task": "task=shop.unknown",
    "ready, of a queue": "state=ready&queue=payments",
    "ready, of a task": "state=ready&task=shop.encode",
    "succeeded, of a rare task": f"state=succeeded&task={RARE_TASK}",
    "with a unique key": "task=shop.sync&key=7",
    "of a time before all": "until=2020-01-01T00:00:00Z",
    "of a time after all": "since=2090-01-01T00:00:00Z",
    "of queue, task, state and time": (
        "queue=mail&task=shop.mail.send&state=succeeded"
        "&since=2020-01-01T00:00:00Z&until=2090-01-01T00:00:00Z"
    ),
}


def page_requests(ask: Ask) -> dict[str, str]:
    """The requests of all pages by name, with the ids and cursors of this engine."""
    return {
        "every page: who am I": "/v1/me",
        "every page: counts": "/v1/stats",
        "overview: scale": "/v1/scale",
        "overview: workers": "/v1/workers?limit=200",
        "overview: alerts": "/v1/alerts",
        "overview: 1 hour": "/v1/history?since_s=3600&step=minute&limit=5000",
        "overview: 24 hours": "/v1/history?since_s=86400&step=hour&limit=5000",
        "overview: 30 days": "/v1/history?since_s=2592000&step=hour&limit=5000",
        "queues": "/v1/queues",
        "jobs: tasks": "/v1/tasks",
        **_job_lists(ask),
        "jobs: count of all": "/v1/jobs/count",
        "jobs: count of a queue": "/v1/jobs/count?queue=mail",
        "jobs: of a fingerprint": f"/v1/jobs?limit={_LIMIT}&fingerprint={_fingerprint(ask)}",
        **_single_jobs(ask),
        "dead: groups": "/v1/dead/groups",
        "dead: groups of a task": "/v1/dead/groups?task=shop.charge",
        "dead: count of all": "/v1/dead/count",
        "dead: count of a group": _count_of_group(ask),
        "schedules": "/v1/schedules?limit=100",
        "workers": "/v1/workers",
        "workers: lost": "/v1/workers/lost",
        "operations": "/v1/operations",
        "audit": "/v1/audit",
        "footer": "/v1/server",
        "status": "/status",
    }


def _job_lists(ask: Ask) -> dict[str, str]:
    jobs = f"/v1/jobs?limit={_LIMIT}"
    lists = {"jobs: all": jobs}
    lists |= {f"jobs: {state}": f"{jobs}&state={state}" for state in _STATES}
    lists |= {f"jobs: {name}": f"{jobs}&{query}" for name, query in _FILTERS.items()}
    for state in ("ready", "dead", "succeeded"):
        first = ask(f"{jobs}&state={state}")
        second = ask(f"{jobs}&state={state}&cursor={first['cursor']}")
        lists[f"jobs: {state}, third page"] = f"{jobs}&state={state}&cursor={second['cursor']}"
    return lists


def _single_jobs(ask: Ask) -> dict[str, str]:
    found = {state: _find_one(ask, state) for state in _STATES}
    one = {f"job: {state}": f"/v1/jobs/{id}" for state, id in found.items()}
    why = {f"job: why, {state}": f"/v1/jobs/{id}/why" for state, id in found.items()}
    return {**one, **why, "job: result": f"/v1/jobs/{found['succeeded']}/result"}


def _find_one(ask: Ask, state: str) -> str:
    """The id of a job. Retrying and scheduled ones are in one list, which may take some pages."""
    first = f"/v1/jobs?limit=1&state={state}"
    page = ask(first)
    while not page["jobs"]:
        page = ask(f"{first}&cursor={page['cursor']}")
    return str(page["jobs"][0]["id"])


def _fingerprint(ask: Ask) -> str:
    return str(ask("/v1/dead/groups")["groups"][0]["fingerprint"])


def _count_of_group(ask: Ask) -> str:
    group = ask("/v1/dead/groups")["groups"][0]
    return f"/v1/dead/count?task={group['task']}&fingerprint={group['fingerprint']}"


# ---------------------------------------------------------------------------------------- counting

#: How much work an engine has done so far.
Worked = Callable[[], int]


@contextmanager
def steps_of_sqlite() -> Iterator[Worked]:
    """Count the steps of all connections that are opened in the block."""
    steps = 0

    def add(event: dict[str, Any]) -> None:
        nonlocal steps
        steps += event["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"]

    def watch(connection: apsw.Connection) -> None:
        connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, add, id=add)

    apsw.connection_hooks.append(watch)
    try:
        yield lambda: steps
    finally:
        apsw.connection_hooks.remove(watch)


def commands_of_redis(server: RedisServer) -> Worked:
    def commands() -> int:
        told = server.tell("INFO", "commandstats")
        return sum(map(int, re.findall(rb"calls=(\d+)", told)))

    return commands


_ROWS: Final = """
SELECT (SELECT coalesce(sum(seq_tup_read), 0) FROM pg_stat_user_tables)
     + (SELECT coalesce(sum(idx_tup_read), 0) FROM pg_stat_user_indexes)
"""


def rows_of_postgres(server: PostgresServer, database: str) -> Worked:
    """Count the rows of tables and the entries of indexes. A process of the server reports what it
    has read at its end, so each count ends the connections of engines, which make new ones."""

    def rows() -> int:
        with server.connect(database) as connection:
            server.terminate_others(connection)
            [(number,)] = connection.execute(_ROWS).fetchall()
            return int(number)

    return rows


def vacuum(server: PostgresServer, database: str) -> None:
    """Remove the index entries of dead rows, which would be counted, as autovacuum does."""
    with server.connect(database) as connection:
        connection.execute("VACUUM (ANALYZE)")


def count_work(worked: Worked, work: Callable[[], object], tries: int = 3) -> int:
    """The work of the engine for one call of `work`."""
    taken = []
    for _ in range(tries):
        before = worked()
        work()
        taken.append(worked() - before)
    return min(taken)
