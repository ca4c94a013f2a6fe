"""Insert jobs into the outbox, in the transaction of the caller: `using(connection=...)`.

The outbox does not know other jobs. So whether a key is taken is decided when a worker relays the
job.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from windlass.engine.contract import (
    Dialect,
    NewJob,
    Placed,
    PutCode,
    SqlGenerator,
    SqlStatement,
    check_times,
)
from windlass.outbox.record import encode
from windlass.outbox.tables import statements
from windlass.outbox.url import OutboxUrl

#: Rows of one statement on SQLite, which allows a bounded number of values.
ROWS: Final = 100


class Outbox:
    """The outbox of an app, for its producers: it takes jobs as an engine with
    `Capability.TRANSACTIONAL` does."""

    def __init__(self, url: OutboxUrl) -> None:
        self._insert = statements(url)["insert"]
        self.url = url
        self.location = f"the outbox in {url.location}"
        self.dialect = url.dialect

    def put_within(self, jobs: Sequence[NewJob]) -> SqlGenerator[list[Placed]]:
        for job in jobs:
            check_times(job)
        ids, bodies = [job.id for job in jobs], [encode(job) for job in jobs]
        if self.dialect is Dialect.POSTGRESQL:
            yield SqlStatement(self._insert, (ids, bodies))
        else:
            for at in range(0, len(ids), ROWS):
                yield self._insert_rows(ids[at : at + ROWS], bodies[at : at + ROWS])
        return [Placed(id, PutCode.CREATED) for id in ids]

    def _insert_rows(self, ids: Sequence[str], bodies: Sequence[bytes]) -> SqlStatement:
        marks = ", ".join(f"(${at}, ${at + 1})" for at in range(1, 2 * len(ids), 2))
        values = [value for row in zip(ids, bodies, strict=True) for value in row]
        return SqlStatement(f"{self._insert} {marks}", tuple(values))
