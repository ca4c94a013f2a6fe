"""Every statement finds its rows by an index, whatever the server knew of the tables when it made
the plan: a connection keeps a plan, also when a table has grown since.

1. The server makes plans at four moments: for new tables, for tables that it knows to be empty, for
   filled ones without statistics, and for analyzed ones.
2. No plan reads a whole table or index, leaves a key to a filter, or sorts much.
3. Claims and ends read few rows, also by plans that are older than the rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, Final, NamedTuple

import pytest

from tests.docs.pages import PROJECT
from tests.postgres_server import OWNER, Connection, PostgresServer, shared_server
from windlass.engine.contract import EngineOptions
from windlass.engine.postgres.connections import PLANNER
from windlass.engine.postgres.statements import statements_for
from windlass.engine.postgres.verbs.claim import BEHIND_ALL
from windlass.engine.url import open_engine

FOLDER: Final = PROJECT / "src" / "windlass" / "engine" / "postgres" / "sql"
SQL: Final = {name: text.decode() for name, text in statements_for("windlass").items()}
MOMENTS: Final = ("new", "emptied", "filled", "analyzed")
Node = dict[str, Any]

#: Statements that read a whole small table, and why it is small.
WHOLE: Final = {
    **dict.fromkeys(
        ("count_waiting", "fold_deltas", "list_counters", "list_enqueued", "list_first_counters"),
        "deltas: maintenance adds them up",
    ),
    "list_totals": "deltas: maintenance adds them up",
    **dict.fromkeys(("list_growth", "list_pairs", "note_growth"), "enqueued: has few pairs"),
    "list_unused_pairs": "enqueued: has few pairs",
    "forget_empty_counters": "counters: a row for each line and state",
    **dict.fromkeys(("note_sample", "note_seen", "begin", "write_queues"), "meta: one row"),
    **dict.fromkeys(
        ("forget_waiters", "list_waiters", "read_plans", "tell_waiters"), "a row for each process"
    ),
    **dict.fromkeys(("list_sessions", "list_silent_sessions"), "a row for each process"),
    "forget_watches": "a row for each caller that waits for a result",
    **dict.fromkeys(
        ("count_slot", "forget_failures_of_slot", "forget_keys_of_slot", "forget_steps_of_slot"),
        "a partition before it is emptied",
    ),
}
#: Statements that sort, and why they sort few rows.
SORTING: Final = {
    **dict.fromkeys(("claim_line", "find_ended"), "at most the limit, twice"),
    "claim_lines": "lines, and at most the limit of each",
    **dict.fromkeys(("lock_holders", "lock_waiting_holders"), "a job for each key of a put"),
    **dict.fromkeys(("load_held", "load_held_under", "load_unknown_nonces"), "jobs of a session"),
    "list_cancel_requests": "jobs of a session",
    "find_running": "running jobs",
    "load_ended_job": "records with one id",
    "read_plans": "plans of waiting processes",
    **{name: why for name, why in WHOLE.items() if name.startswith(("list_", "count_"))},
}
#: Statements that compare a key of a row which another key has found.
COMPARING: Final = {"forget_unique_key", "purge_ended", "find_measures", "forget_keys_of_slot"}
_KEYS: Final = r'\b(?<!\.)"?(row|id|session|key|number|job|reporter|fingerprint|name)"? = '
#: Not planned.
_COMMANDS: Final = ("BEGIN", "COMMIT", "LOCK", "TRUNCATE")

_FILL: Final = """
INSERT INTO windlass.jobs (row, place, created_ms, rank, state, id, task, queue, call)
SELECT n, n, 1, 0, 'ready', 'job-' || n, 'task', 'default', 'x'::bytea
FROM generate_series(1, {ready}) AS n;
INSERT INTO windlass.ended (row, created_ms, finished_ms, keep_until_ms, result_until_ms, last_end,
    priority, attempt, starts, crashes, losses, interruptions, snoozes, strays, slot, id, task,
    queue, call)
SELECT -n, 1, 1, n, n, 1, 0, 1, 1, 0, 0, 0, 0, 0, n % 8, 'done-' || n, 'task',
    'default', 'x'::bytea
FROM generate_series(1, {finished}) AS n;
INSERT INTO windlass.sessions (session, expires_ms) VALUES ('s', 9999);
UPDATE windlass.meta SET last_seen_ms = 1000;
"""


class Planned(NamedTuple):
    """The plans of each moment, and how many rows of jobs they read from full tables."""

    plans: dict[str, dict[str, Node]]
    reads: dict[str, dict[str, int]]


@pytest.fixture(
    scope="module",
    params=[
        pytest.param((100_000, 100_000), id="100k"),
        pytest.param(
            (1_000_000, 10_000_000), id="10m", marks=[pytest.mark.slow, pytest.mark.timeout(1_200)]
        ),
    ],
)
def planned(request: pytest.FixtureRequest) -> Iterator[Planned]:
    ready, finished = request.param
    server = shared_server()
    database = server.new_database()
    engine = open_engine(server.url(database, user=OWNER), EngineOptions())
    engine.stats()
    engine.shutdown()
    try:
        yield plan_and_read(server, database, _FILL.format(ready=ready, finished=finished))
    finally:
        server.drop_database(database)


def plan_and_read(server: PostgresServer, database: str, fill: str) -> Planned:
    """Make plans at each moment on a connection of its own. Older plans are used before the tables
    are analyzed, because then the server makes them again."""
    planned = Planned({}, {})
    prepare = {"emptied": "VACUUM ANALYZE", "filled": fill, "analyzed": "ANALYZE"}
    with ExitStack() as stack:
        connections = {moment: stack.enter_context(server.connect(database)) for moment in MOMENTS}
        for moment, connection in connections.items():
            if moment == "analyzed":
                for older in MOMENTS[:-1]:
                    planned.reads[older] = dict(read_all(connections[older]))
            if moment in prepare:
                connection.execute(prepare[moment].encode())
            for name in PLANNER:
                connection.execute(f"SET {name} = off".encode())
            connection.execute("SET plan_cache_mode = force_generic_plan")
            planned.plans[moment] = dict(plan_all(connection))
        planned.reads["analyzed"] = dict(read_all(connections["analyzed"]))
    return planned


def plan_all(connection: Connection) -> Iterator[tuple[str, Node]]:
    for name, text in SQL.items():
        if not text.startswith(_COMMANDS):
            connection.execute(f"PREPARE {name} AS {text}".encode())
            most = max(map(int, re.findall(r"\$(\d+)", text)), default=0)
            yield name, explain(connection, name, ["NULL"] * most)


def explain(
    connection: Connection, name: str, arguments: list[str], options: str = "FORMAT JSON"
) -> Node:
    given = f"({', '.join(arguments)})" if arguments else ""
    cursor = connection.execute(f"EXPLAIN ({options}) EXECUTE {name}{given}".encode())
    [([found],)] = cursor.fetchall()
    return dict(found["Plan"])


def walk(node: Node, parent: Node | None = None) -> Iterator[tuple[Node, Node | None]]:
    yield node, parent
    for child in node.get("Plans", []):
        yield from walk(child, node)


@pytest.mark.parametrize("moment", MOMENTS)
def test_no_statement_reads_a_whole_table(planned: Planned, moment: str) -> None:
    found = {
        name: node
        for name, plan in planned.plans[moment].items()
        for node, parent in walk(plan)
        if name not in WHOLE and is_whole(node, parent)
    }
    assert found == {}


def is_whole(node: Node, parent: Node | None) -> bool:
    if node["Node Type"] not in ("Seq Scan", "Index Scan", "Index Only Scan", "Bitmap Heap Scan"):
        return False
    if "Index Cond" in node:
        return False
    # The first row of an index is found at once.
    is_first = node.get("Parent Relationship") in ("InitPlan", "SubPlan") or (
        parent is not None and parent["Node Type"] == "Limit"
    )
    return "Index Name" not in node or "Filter" in node or not is_first


@pytest.mark.parametrize("moment", MOMENTS)
def test_no_statement_compares_a_key_with_many_rows(planned: Planned, moment: str) -> None:
    found = {
        (name, node.get(kind))
        for name, plan in planned.plans[moment].items()
        for node, _ in walk(plan)
        for kind in ("Filter", "Join Filter")
        if name not in WHOLE and name not in COMPARING and re.search(_KEYS, node.get(kind, ""))
    }
    assert found == set()


@pytest.mark.parametrize("moment", MOMENTS)
def test_no_statement_sorts_many_rows(planned: Planned, moment: str) -> None:
    found = {
        name
        for name, plan in planned.plans[moment].items()
        for node, _ in walk(plan)
        if name not in SORTING and node["Node Type"] in ("Sort", "Incremental Sort")
    }
    assert found == set()


# ------------------------------------------------------------------------------- rows that are read

#: How many jobs a claim asks for.
LIMIT: Final = 100
#: How many rows of jobs each statement may read; a reading of other rows is in the list of reads.
MOST_READ: Final = {
    "claim_line": 2 * LIMIT,
    "claim_line with scheduled jobs": 2 * LIMIT + 1,
    "claim_lines of all": 7 * LIMIT,  # 3 lines with jobs, twice the limit of jobs to take
    "claim_lines of known ones": 7 * LIMIT,
    "claim_lines of some": 2 * LIMIT,
    "list_candidates": LIMIT,
    "take_jobs": 2 * LIMIT,
    "list_claims": LIMIT,
    "load_held": LIMIT,
    "succeed_jobs": LIMIT,
    "drop_repeated": 0,
    "put_jobs": 0,
    "find_known": LIMIT,
    "find_holders": LIMIT,
    "find_keys": 0,
    "find_replaced_puts": 0,
    "lock_holders": LIMIT,
    "lock_waiting_holders": LIMIT,
    "delete_repeated": LIMIT,
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_claims_and_ends_read_few_rows(planned: Planned, moment: str) -> None:
    found = planned.reads[moment]
    assert set(found) == set(MOST_READ)
    assert {name: number for name, number in found.items() if number > MOST_READ[name]} == {}
    for name in (name for name in found if name.startswith("claim_line")):
        assert found[name] > LIMIT, f"{name} has claimed nothing"


def read_all(connection: Connection) -> Iterator[tuple[str, int]]:
    """Execute statements by the plans of a connection: how many rows of jobs each has read."""
    numbers = range(1, LIMIT + 1)
    ids = "'{" + ",".join(f"job-{number}" for number in numbers) + "}'"
    rows = "'{" + ",".join(map(str, numbers)) + "}'"
    tokens, ends, results = (
        f"array_fill({value}, ARRAY[{LIMIT}])" for value in ("'n'::text", "1::bigint", "''::bytea")
    )
    claim = ["'=1000'", "''", "'s'", "'n'", "'default'", str(LIMIT), "1000000", "30000", "5000"]
    claim += ["true", "-1", "0"]  # all jobs have the rank 0
    finish = ["'=1000'", ids, tokens, ends, ends, results, "99999999", "600000", "1", "1", "8"]

    def read(name: str, *arguments: str) -> int:
        plan = explain(connection, name, [*arguments], "ANALYZE, TIMING OFF, FORMAT JSON")
        return sum(
            (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]
            for node, _ in walk(plan)
            if node.get("Relation Name") == "jobs" and node["Node Type"].endswith("Scan")
        )

    with connection.transaction(force_rollback=True):
        yield "claim_line", read("claim_line", *claim)
        yield "succeed_jobs", read("succeed_jobs", *finish)
    for lines in ("all", "some", "known ones"):
        with connection.transaction(force_rollback=True):
            connection.execute(
                "UPDATE windlass.jobs SET queue = 'queue-' || row % 3 WHERE row <= 1000"
            )
            given = "'{none,queue-1,default}'" if lines == "some" else "'{}'"
            several = [*claim[:4], given, *claim[5:9], "'{queue-2}'"]
            several += (
                ["'{default,queue-0,some}'", "'{0,0,0}'", "'{2000,4,1}'"]
                if lines == "known ones"
                else ["'{}'", "'{}'", "'{}'"]
            )
            several += [f"'{BEHIND_ALL}'", "true"]
            yield f"claim_lines of {lines}", read("claim_lines", *several)
    with connection.transaction(force_rollback=True):
        yield "list_candidates", read("list_candidates", "ARRAY['default']", "0", str(LIMIT))
        yield "take_jobs", read("take_jobs", "'s'", "'n'", "1000", rows)
        yield "list_claims", read("list_claims", "'s'", "'n'")
        yield "load_held", read("load_held", "'s'", "-1")
    with connection.transaction(force_rollback=True):
        yield "drop_repeated", read("drop_repeated", ids)
        yield "delete_repeated", read("delete_repeated", rows)
    with connection.transaction(force_rollback=True):
        connection.execute(
            "INSERT INTO windlass.unique_keys (task, key, id)"
            " SELECT 'task', 'job-' || n, 'job-' || n FROM generate_series(1, 100) AS n"
        )
        tasks = f"array_fill('task'::text, ARRAY[{LIMIT}])"
        yield "find_known", read("find_known", ids)
        yield "find_keys", read("find_keys", tasks, ids)
        for name in ("find_holders", "lock_holders", "lock_waiting_holders"):
            yield name, read(name, tasks, ids)
        yield "find_replaced_puts", read("find_replaced_puts", ids)
        new = [f"'{{{','.join(f'new-{number}' for number in numbers)}}}'", tasks, tasks]
        calls = f"array_fill('x'::bytea, ARRAY[{LIMIT}])"
        connection.execute("SELECT setval('windlass.numbers', 1000000000)")
        new += [f"array_fill(0, ARRAY[{LIMIT}])::text", calls, *["'{}'"] * 8]
        yield "put_jobs", read("put_jobs", "'=1000'", "NULL", *new)
    with connection.transaction(force_rollback=True):
        connection.execute(
            "UPDATE windlass.jobs SET due_ms = 2000, hold = 'paused' WHERE row > 90000"
        )
        yield "claim_line with scheduled jobs", read("claim_line", *claim)


def test_every_statement_says_what_it_is_for() -> None:
    for file in FOLDER.glob("*.sql"):
        text = file.read_text()
        assert text.startswith("-- ")
        assert text.count("-- name: ") == len(
            re.findall(r"^-- name: \w+\n-- \w", text, re.MULTILINE)
        )
