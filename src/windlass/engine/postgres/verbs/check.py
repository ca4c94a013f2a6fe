"""`check`: verify that indexes, counters and records agree, while workers run.

1. Each query of `disagreements` is one statement. So it sees the data as of one instant, and
   reports nothing that is only being changed. Every row that it finds becomes a sentence.
2. A query reads its table in stretches, each in a transaction of its own. A long transaction would
   keep the server from removing old versions of rows, and claims would slow down. Only the counters
   of records are compared by one statement for a whole table.
3. `check` reports only what a query finds twice. A partition that is emptied at this moment looks
   empty to a statement that began before.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from windlass.engine.postgres.connections import PLANNER
from windlass.engine.postgres.pipeline import Reply
from windlass.engine.postgres.statements import PostgresStatements
from windlass.engine.postgres.transaction import Start
from windlass.engine.postgres.verbs.disagreements import (
    DISAGREEMENTS,
    PARTS,
    Disagreement,
    TableWalk,
)
from windlass.engine.sql.statements import Row

T = TypeVar("T")
Key = tuple[Any, ...]

#: A stretch has this many rows.
STRETCH: Final = 10_000
#: How long a transaction of a check may take, in seconds.
_LONGEST_S: Final = 1_800


class Read(Protocol):
    """Runs a function in a transaction that only reads."""

    def __call__(self, work: Callable[[PostgresStatements, Start], T], /) -> T: ...


class RowRange(NamedTuple):
    """A stretch of a table: the rows after one key, up to another. None is the end of the table."""

    after: Key | None
    upto: Key | None


_END_OF_STRETCH: Final = """
SELECT {key} FROM windlass.{table} WHERE {stretch} ORDER BY {key} OFFSET {others} LIMIT 1
"""

#: The disagreements of one table, whose queries share a transaction for each stretch.
_GROUPS: Final = (
    *([wrong] for wrong in DISAGREEMENTS if wrong.walk is None),
    *(
        [wrong for wrong in DISAGREEMENTS if wrong.walk == walk]
        for walk in dict.fromkeys(wrong.walk for wrong in DISAGREEMENTS)
        if walk is not None
    ),
)


def check(read: Read) -> list[str]:
    return [sentence for group in _GROUPS for sentence in _sentences(read, group)]


def _sentences(read: Read, group: Sequence[Disagreement]) -> Iterator[str]:
    after: Key | None = None
    while True:
        stretch, found = find(read, group, after)
        yield from (wrong.kind.describe(row) for wrong, row in found)
        after = stretch.upto
        if after is None:
            return


def find(
    read: Read, group: Sequence[Disagreement], after: Key | None
) -> tuple[RowRange, list[tuple[Disagreement, Row]]]:
    """Return the next stretch of a table, and the wrong rows in it."""

    def look(db: PostgresStatements, _start: Start) -> tuple[RowRange, list[Any]]:
        allow_long_reads(db)
        stretch = _next_stretch(db, group[0].walk, after)
        return stretch, _search_all(db, group, stretch)

    def look_again(db: PostgresStatements, _start: Start) -> list[Any]:
        allow_long_reads(db)
        return _search_all(db, group, stretch)

    stretch, found = read(look)
    if found:
        again = set(read(look_again))
        found = [item for item in found if item in again]
    return stretch, found


def _search_all(
    db: PostgresStatements, group: Sequence[Disagreement], stretch: RowRange
) -> list[tuple[Disagreement, Row]]:
    sent = [(wrong, _send_search(db, wrong, stretch)) for wrong in group]
    return [(wrong, row) for wrong, cursor in sent for row in db.fetch(cursor)]


def allow_long_reads(db: PostgresStatements) -> None:
    """Let the statements of this transaction read whole tables, and take their time."""
    db.pipeline.connection.deadline = time.monotonic() + _LONGEST_S
    db.start_text(f"SET LOCAL statement_timeout = {_LONGEST_S * 1000}")
    db.start_text("SET LOCAL plan_cache_mode = auto")
    for name in PLANNER:
        db.start_text(f"SET LOCAL {name} = on")


def search(db: PostgresStatements, wrong: Disagreement, stretch: RowRange) -> list[Row]:
    """List the wrong rows of a stretch."""
    return db.fetch(_send_search(db, wrong, stretch))


def _send_search(db: PostgresStatements, wrong: Disagreement, stretch: RowRange) -> Reply:
    if wrong.walk is None:
        return send(db, wrong.query)
    text, values = _within(wrong.walk, stretch)
    query = wrong.query.replace("{table}", wrong.walk.table).replace("{stretch}", text)
    return send(db, query, values)


def send(db: PostgresStatements, text: str, values: Sequence[Any] = ()) -> Reply:
    """Send a statement that the server plans for its values, and only once."""
    for name, part in PARTS.items():
        text = text.replace(name, part)
    return db.start_text(text, values)


def _next_stretch(db: PostgresStatements, walk: TableWalk | None, after: Key | None) -> RowRange:
    if walk is None:
        return RowRange(None, None)
    text, values = _within(walk, RowRange(after, None))
    query = _END_OF_STRETCH.format(key=walk.key, table=walk.table, stretch=text, others=STRETCH - 1)
    found = db.fetch(send(db, query, values))
    return RowRange(after, found[0] if found else None)


def _within(walk: TableWalk, stretch: RowRange) -> tuple[str, list[Any]]:
    """The condition for rows of a stretch, with its parameters."""
    texts, values = ["true"], list[Any]()
    for sign, key in ((">", stretch.after), ("<=", stretch.upto)):
        if key is not None:
            numbers = (f"${len(values) + number}" for number in range(1, len(key) + 1))
            texts.append(f"({walk.key}) {sign} ({', '.join(numbers)})")
            values += key
    return " AND ".join(texts), values
