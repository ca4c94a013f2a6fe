"""`python -m benchmarks.peers.sqlite_recorder`: the rate of a bare loop on SQLite.

It enqueues with windlass, records all statements with their values, runs them again in a new file
on plain connections, and prints the rates as JSON.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import apsw

from windlass import State, Windlass


class Statement(NamedTuple):
    """A recorded statement."""

    connection: int
    sql: str
    values: Any


RECORDED: Final[list[Statement]] = []
_opened: Final[list[apsw.Connection]] = []


def record(connection: apsw.Connection) -> None:
    """Trace a new connection."""
    number = len(_opened)
    _opened.append(connection)

    def trace(_cursor: apsw.Cursor, sql: str, values: Any) -> bool:
        RECORDED.append(Statement(number, sql, values))
        return True

    connection.exec_trace = trace


def main(durability: str, single: int, bulk: int) -> None:
    with tempfile.TemporaryDirectory(prefix="peers-limit-") as folder:
        apsw.connection_hooks.append(record)
        first, second = _enqueue(
            f"sqlite:///{folder}/recorded.db?durability={durability}", single, bulk
        )
        apsw.connection_hooks.remove(record)
        path = f"{folder}/replayed.db"
        cursors = {one.connection: apsw.Connection(path) for one in RECORDED}
        replay(cursors, RECORDED[:first])
        rates = {
            "limit-enqueue": single / replay(cursors, RECORDED[first:second]),
            "limit-bulk": bulk / replay(cursors, RECORDED[second:]),
        }
        _check(f"sqlite:///{path}", 1 + single + bulk)
    print(json.dumps(rates))


def _enqueue(url: str, single: int, bulk: int) -> tuple[int, int]:
    """How many statements there were before the single and before the bulk calls."""
    app = Windlass(url)

    @app.task(name="noop")
    def noop(number: int) -> None: ...

    noop.enqueue(0)
    first = len(RECORDED)
    for number in range(single):
        noop.enqueue(number)
    second = len(RECORDED)
    noop.enqueue_many((number,) for number in range(bulk))
    return first, second


def replay(cursors: dict[int, apsw.Connection], statements: Sequence[Statement]) -> float:
    prepared = [(cursors[one.connection].execute, one.sql, one.values) for one in statements]
    began = time.perf_counter()
    for execute, sql, values in prepared:
        for _ in execute(sql, values):
            pass
    return time.perf_counter() - began


def _check(url: str, count: int) -> None:
    with Windlass(url) as app:
        found = app.stats().jobs.get(State.READY, 0)
    if found != count:
        raise RuntimeError(f"the bare loop left {found} jobs ready, expected {count}")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
