"""`repair`: fix the errors that `check` finds, one kind of disagreement at a time.

Each step first only reads. If a step finds errors, one transaction searches again and fixes them,
so that changes by workers in between are respected.
"""

from __future__ import annotations

from typing import Final

import apsw

from windlass.engine.contract import MIN_RECORD_MS, Repaired
from windlass.engine.sqlite.transaction import Transaction
from windlass.engine.sqlite.verbs.check import (
    DISAGREEMENTS,
    Disagreement,
    file_problems,
    wrong_lines,
)

#: The number of disagreements that one transaction fixes.
_BITE: Final = 5_000
#: Indexes of SQLite itself come first, the index of lines last.
_FILE: Final = "file"
STEPS: Final = (_FILE, *DISAGREEMENTS, "lines")


def find(connection: apsw.Connection, step: int) -> Repaired:
    """Report the errors that a step of a repair would fix."""
    wrong = STEPS[step]
    if wrong == _FILE:
        return _of_file(connection)
    if not isinstance(wrong, Disagreement):
        return Repaired(fixed=tuple(f"{text} Corrected." for _, text in wrong_lines(connection)))
    found = connection.execute(wrong.query).fetchall()
    if not wrong.statement:
        return Repaired(left=tuple(map(wrong.kind.describe, found)))
    return Repaired(fixed=tuple(map(wrong.kind.describe_fix, found)))


def apply(tx: Transaction, step: int) -> tuple[Repaired, bool]:
    """Fix the errors that a step finds; return whether there are more."""
    wrong = STEPS[step]
    if wrong == _FILE:
        problems = _of_file(tx.connection)
        if problems.fixed:
            tx.connection.execute("REINDEX")
        return problems, False
    if not isinstance(wrong, Disagreement):
        lines = list(wrong_lines(tx.connection))
        tx.touched.update(line for line, _ in lines)
        for line, _ in lines:
            tx.note_ready(line)
        fixed = tuple(f"{text} Corrected." for _, text in lines)
        return _counted(tx, Repaired(fixed=fixed)), False
    return _apply_fix(tx, wrong)


def _apply_fix(tx: Transaction, wrong: Disagreement) -> tuple[Repaired, bool]:
    """Fix wrong rows of one kind that has a fix; for other kinds, `find` only reports."""
    found = tx.connection.execute(wrong.query).fetchall()
    fixed: list[str] = []
    left: list[str] = []
    for row in found[:_BITE]:
        tx.connection.execute(wrong.statement, _bindings(tx, row))
        if tx.connection.changes():
            fixed.append(wrong.kind.describe_fix(row))
        else:
            left.append(wrong.kind.describe(row))
    has_more = len(found) > _BITE and bool(fixed)
    return _counted(tx, Repaired(fixed=tuple(fixed), left=tuple(left))), has_more


def _bindings(tx: Transaction, row: tuple[object, ...]) -> dict[str, object]:
    return {
        **{f"c{number}": value for number, value in enumerate(row)},
        "now": tx.now_ms,
        "lease": tx.options.lease_ms,
        "keep": max(tx.options.dead_ttl_ms, MIN_RECORD_MS),
    }


def _counted(tx: Transaction, repaired: Repaired) -> Repaired:
    tx.totals["repaired"] += len(repaired.fixed)
    return repaired


def _of_file(connection: apsw.Connection) -> Repaired:
    """Rebuild SQLite's indexes from its tables; other damage to the file cannot be repaired."""
    problems = list(file_problems(connection))
    of_index = tuple(text for text in problems if "index" in text)
    others = tuple(text for text in problems if "index" not in text)
    return Repaired(fixed=tuple(f"{text}: indexes are rebuilt." for text in of_index), left=others)
