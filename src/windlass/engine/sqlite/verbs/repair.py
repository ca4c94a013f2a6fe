"""`repair`: fix what `check` finds, one kind of disagreement at a time.

Each step first only reads. If it finds something, one transaction searches again and fixes it, so
that changes of workers in between are respected.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import apsw

from windlass.engine.contract import MIN_RECORD_MS, EngineOptions, Repaired
from windlass.engine.sqlite.transaction import Transaction, unpack_settings
from windlass.engine.sqlite.verbs.check import (
    BEYOND_SEQUENCE,
    BODY_WITHOUT_SCHEDULE,
    COUNTERS,
    DISAGREEMENTS,
    DUE_TIME,
    FAILURE_WITHOUT_JOB,
    HELD_ELSEWHERE,
    KEEP_TIME,
    LOST_UNIQUE_KEY,
    NO_PAYLOAD,
    PAYLOAD_WITHOUT_JOB,
    SCHEDULE_WITHOUT_BODY,
    UNKNOWN_SESSION,
    WRONG_UNIQUE_KEY,
    file_problems,
    wrong_lines,
)

#: The number of disagreements that one transaction fixes.
_BITE: Final = 5_000


class _Fix(NamedTuple):
    """The fix of a disagreement: its description, and a statement that takes the columns of the
    query and `:now`, `:lease` and `:keep`."""

    words: str
    statement: str


#: sentence of a disagreement -> its fix; disagreements without a fix are only reported
_FIXES: Final = {
    NO_PAYLOAD: _Fix(
        "it gets an empty one, with which it becomes a dead letter when it is run",
        "INSERT INTO payloads (job, body) SELECT row, x'' FROM jobs WHERE id = :c0",
    ),
    PAYLOAD_WITHOUT_JOB: _Fix("it is removed", "DELETE FROM payloads WHERE job = :c0"),
    FAILURE_WITHOUT_JOB: _Fix("it is removed", "DELETE FROM failures WHERE job = :c0"),
    UNKNOWN_SESSION: _Fix(
        "the session gets a lease, and beats or loses the job",
        "INSERT INTO sessions (session, expires_ms) "
        "SELECT :c1, :now + :lease WHERE :c1 IS NOT NULL "
        "ON CONFLICT (session) DO UPDATE SET gone = min(gone, 1)",
    ),
    COUNTERS: _Fix(
        "corrected",
        "INSERT INTO counters (queue, state, number) VALUES (:c0, :c1, :c3) "
        "ON CONFLICT (queue, state) DO UPDATE SET number = :c3",
    ),
    BEYOND_SEQUENCE: _Fix(
        "the sequence continues after it",
        "UPDATE meta SET sequence = max(sequence, "
        "(SELECT max(place, row) FROM jobs WHERE id = :c0))",
    ),
    HELD_ELSEWHERE: _Fix("the hold ends", "UPDATE jobs SET hold = 'none' WHERE id = :c0"),
    KEEP_TIME: _Fix(
        "corrected",
        "UPDATE jobs SET keep_until_ms = CASE WHEN state IN ('succeeded', 'dead', 'cancelled') "
        "THEN coalesce(finished_ms, :now) + :keep END, "
        "finished_ms = CASE WHEN state IN ('succeeded', 'dead', 'cancelled') "
        "THEN coalesce(finished_ms, :now) ELSE finished_ms END WHERE id = :c0",
    ),
    DUE_TIME: _Fix(
        "corrected",
        "UPDATE jobs SET due_ms = CASE WHEN state IN ('scheduled', 'retrying') "
        "OR hold = 'unroutable' THEN coalesce(due_ms, :now) END WHERE id = :c0",
    ),
    WRONG_UNIQUE_KEY: _Fix(
        "it leads nowhere", "DELETE FROM unique_keys WHERE task = :c0 AND key = :c1"
    ),
    LOST_UNIQUE_KEY: _Fix(
        "it leads to it",
        "INSERT INTO unique_keys (task, key, id) SELECT task, unique_key, id FROM jobs "
        "WHERE id = :c0 ON CONFLICT (task, key) DO NOTHING",
    ),
    SCHEDULE_WITHOUT_BODY: _Fix(
        "what is left of it is removed; the app declares it again",
        "DELETE FROM schedules WHERE name = :c0",
    ),
    BODY_WITHOUT_SCHEDULE: _Fix(
        "it is removed", "DELETE FROM schedule_bodies WHERE schedule = :c0"
    ),
}
#: The indexes of the file itself come first, the index of lines last.
_FILE, _LINES = "file", "lines"
STEPS: Final = (_FILE, *DISAGREEMENTS, _LINES)


def find(connection: apsw.Connection, step: int) -> Repaired:
    """Report what a step of a repair would fix."""
    kind = STEPS[step]
    if kind == _FILE:
        problems = tuple(file_problems(connection))
        return _of_file(problems)
    if kind == _LINES:
        return Repaired(fixed=tuple(f"{text} Corrected." for _, text in _lines(connection)))
    said = [kind.format(*row) for row in connection.execute(DISAGREEMENTS[kind]).fetchall()]
    fix = _FIXES.get(kind)
    if fix is None:
        return Repaired(left=tuple(said))
    return Repaired(fixed=tuple(_sentence(text, fix) for text in said))


def apply(tx: Transaction, step: int) -> tuple[Repaired, bool]:
    """Fix what a step finds, and return whether there is more."""
    kind = STEPS[step]
    if kind == _FILE:
        problems = _of_file(tuple(file_problems(tx.connection)))
        if problems.fixed:
            tx.connection.execute("REINDEX")
        return problems, False
    if kind == _LINES:
        wrong = list(_lines(tx.connection))
        tx.touched.update(line for line, _ in wrong)
        for line, _ in wrong:
            tx.note_ready(line)
        fixed = tuple(f"{text} Corrected." for _, text in wrong)
        return _counted(tx, Repaired(fixed=fixed)), False
    return _apply_fix(tx, kind)


def _apply_fix(tx: Transaction, kind: str) -> tuple[Repaired, bool]:
    fix = _FIXES.get(kind)
    found = tx.connection.execute(DISAGREEMENTS[kind]).fetchall()
    if fix is None:
        return Repaired(left=tuple(kind.format(*row) for row in found)), False
    fixed: list[str] = []
    left: list[str] = []
    for row in found[:_BITE]:
        tx.connection.execute(fix.statement, _bindings(tx, row))
        if tx.connection.changes():
            fixed.append(_sentence(kind.format(*row), fix))
        else:
            left.append(kind.format(*row))
    has_more = len(found) > _BITE and bool(fixed)
    return _counted(tx, Repaired(fixed=tuple(fixed), left=tuple(left))), has_more


def _bindings(tx: Transaction, row: tuple[object, ...]) -> dict[str, object]:
    options: EngineOptions = tx.options
    return {
        **{f"c{number}": value for number, value in enumerate(row)},
        "now": tx.now_ms,
        "lease": options.lease_ms,
        "keep": max(options.dead_ttl_ms, MIN_RECORD_MS),
    }


def _counted(tx: Transaction, repaired: Repaired) -> Repaired:
    tx.totals["repaired"] += len(repaired.fixed)
    return repaired


def _sentence(text: str, fix: _Fix) -> str:
    return f"{text.removesuffix('.')}: {fix.words}."


def _of_file(problems: tuple[str, ...]) -> Repaired:
    """Rebuild indexes of the file from its tables; other damage cannot be repaired."""
    of_index = tuple(text for text in problems if "index" in text)
    others = tuple(text for text in problems if "index" not in text)
    return Repaired(fixed=tuple(f"{text}: indexes are rebuilt." for text in of_index), left=others)


def _lines(connection: apsw.Connection) -> list[tuple[str, str]]:
    stored = connection.execute("SELECT queues FROM meta").fetchall()[0][0]
    return list(wrong_lines(connection, unpack_settings(stored)))
