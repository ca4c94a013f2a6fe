"""`repair`: fix what `check` finds, one stretch of one table at a time.

Each batch first only reads. If errors are found, one transaction searches again and fixes them. A
lock keeps two repairs from correcting the same counter. Workers continue: a statement corrects a
counter by the difference that it had at one instant, and changes any other row only if the row is
still wrong.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeVar

import msgspec

from windlass.engine.contract import MIN_RECORD_MS, Repaired
from windlass.engine.postgres.transaction import Transaction
from windlass.engine.postgres.verbs.check import (
    Key,
    Read,
    RowRange,
    allow_long_reads,
    find,
    search,
    send,
)
from windlass.engine.postgres.verbs.disagreements import DISAGREEMENTS, Disagreement
from windlass.engine.sql.statements import Row
from windlass.errors import InvalidCursor

T = TypeVar("T")

#: The number of rows that one transaction fixes.
BITE: Final = 500
_PARAMETER: Final = re.compile(r"(?<!:):([a-z]\w*)")


class Write(Protocol):
    """Runs a function in a transaction that may change data."""

    def __call__(self, work: Callable[[Transaction], T], /) -> T: ...


class _Cursor(msgspec.Struct, array_like=True, frozen=True):
    """Where a repair continues: the disagreement, the last key of its table that was read, and how
    many errors after that key cannot be fixed."""

    step: int
    after: list[int | str] | None = None
    skip: int = 0

    @property
    def key(self) -> Key | None:
        return None if self.after is None else tuple(self.after)


def repair(read: Read, write: Write, cursor: str | None, *, change: bool) -> Repaired:
    """Fix, or with `change=False` only find, the errors of one stretch."""
    at = _read_cursor(cursor)
    wrong = DISAGREEMENTS[at.step]
    stretch, found = find(read, [wrong], at.key)
    rows = [row for _, row in found]
    if not wrong.statement:
        done = Repaired(left=tuple(map(wrong.kind.describe, rows)))
    elif not rows or not change:
        done = Repaired(fixed=tuple(map(wrong.kind.describe_fix, rows)))
    else:
        done, has_more = write(lambda tx: _fix(tx, wrong, stretch, at.skip))
        if has_more:
            then = msgspec.structs.replace(at, skip=at.skip + len(done.left))
            return msgspec.structs.replace(done, cursor=_write_cursor(then))
    return msgspec.structs.replace(done, cursor=_next_cursor(at.step, stretch))


def _fix(
    tx: Transaction, wrong: Disagreement, stretch: RowRange, skip: int
) -> tuple[Repaired, bool]:
    """Fix a bounded number of errors of a stretch; return whether there are more."""
    allow_long_reads(tx)
    tx.lock("repair")
    found = sorted(search(tx, wrong, stretch), key=repr)[skip:]
    _lock(tx, wrong, found[:BITE])
    for row in found[:BITE]:
        text, values = _bind(wrong.statement, _values(tx, row))
        send(tx, text, values)
    again = set(search(tx, wrong, stretch))
    fixed = tuple(wrong.kind.describe_fix(row) for row in found[:BITE] if row not in again)
    left = tuple(wrong.kind.describe(row) for row in found[:BITE] if row in again)
    tx.totals["repaired"] += len(fixed)
    return Repaired(fixed=fixed, left=left), len(found) > BITE


def _lock(tx: Transaction, wrong: Disagreement, rows: Sequence[Row]) -> None:
    """Lock the names that rows are about: other transactions must not change them meanwhile."""
    if wrong.lock is None:
        return
    kind, *columns = wrong.lock
    names = [tuple(row[column] for column in columns) for row in rows]
    if kind == "key":
        tx.lock_keys((task, key) for task, key in names)
    else:
        tx.lock_all((kind, *name) for name in names)


def _values(tx: Transaction, row: Row) -> Mapping[str, Any]:
    return {
        **{f"c{number}": value for number, value in enumerate(row)},
        "now": tx.now_ms,
        "lease": tx.options.lease_ms,
        "keep": max(tx.options.dead_ttl_ms, MIN_RECORD_MS),
    }


def _bind(text: str, values: Mapping[str, Any]) -> tuple[str, list[Any]]:
    """Number the parameters of a statement, and list their values."""
    names = list(dict.fromkeys(_PARAMETER.findall(text)))
    numbered = _PARAMETER.sub(lambda match: f"${names.index(match[1]) + 1}", text)
    return numbered, [values[name] for name in names]


# ---------------------------------------------------------------------------------------- cursors


def _read_cursor(cursor: str | None) -> _Cursor:
    if cursor is None:
        return _Cursor(0)
    try:
        found = msgspec.json.decode(cursor, type=_Cursor)
    except msgspec.MsgspecError:
        found = _Cursor(-1)
    if not 0 <= found.step < len(DISAGREEMENTS):
        raise InvalidCursor(
            f"Expected a cursor that repair has returned, found {cursor[:120]!r}. Begin again "
            "without one."
        )
    return found


def _write_cursor(cursor: _Cursor) -> str:
    return msgspec.json.encode(cursor).decode()


def _next_cursor(step: int, stretch: RowRange) -> str | None:
    if stretch.upto is not None:
        return _write_cursor(_Cursor(step, list(stretch.upto)))
    return _write_cursor(_Cursor(step + 1)) if step + 1 < len(DISAGREEMENTS) else None
