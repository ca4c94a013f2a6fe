"""Store jobs in the transaction of a caller: `task.using(connection=...)`.

1. `place_for` chooses the store: the outbox of the app, or else the engine if the engine has
   operations for transactions of a caller. Other apps refuse `connection=`.
2. `put_within` runs the statements on the connection, in the thread or coroutine of the caller.
3. In a sandbox the job is stored at once: a test usually rolls back at its end.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from windlass.client.connections.connection import CallerConnection
from windlass.engine.contract import (
    Engine,
    NewJob,
    Placed,
    SqlGenerator,
    TransactionPlace,
    transaction_verbs,
)
from windlass.engine.url import joins_transactions
from windlass.errors import InvalidConnection
from windlass.twins import Steps

if TYPE_CHECKING:
    from windlass.app import Windlass


class SqlRun(msgspec.Struct, frozen=True):
    """Run statements on the connection of the caller."""

    connection: CallerConnection
    place: TransactionPlace
    statements: SqlGenerator[Any]

    def run(self, _app: Windlass) -> Any:
        return self.connection.run(self.place, self.statements)

    def arun(self, _app: Windlass) -> Awaitable[Any]:
        return self.connection.arun(self.place, self.statements)


def put_within(
    app: Windlass, connection: CallerConnection, jobs: Sequence[NewJob]
) -> Steps[Sequence[Placed]]:
    """Store jobs in the transaction of `connection`."""
    place = place_for(app)
    placed: Sequence[Placed] = yield SqlRun(connection, place, place.put_within(jobs))
    return placed


def place_for(app: Windlass) -> TransactionPlace:
    """Return the store for jobs that are enqueued with `connection=`. Raises `InvalidConnection` if
    the app has none."""
    outbox: TransactionPlace | None = app.outbox
    place: TransactionPlace | None
    if app.is_in_sandbox:
        is_possible = outbox is not None or joins_transactions(app.settings.url)
        place = _SandboxPlace(app.engine) if is_possible else None
    else:
        place = outbox or transaction_verbs(app.engine)
    if place is None:
        raise InvalidConnection(
            "Expected an app that can store jobs in the database of the connection, found one with "
            f"the engine {app.engine.location} and without an outbox. Name that database in the "
            'setting outbox, Windlass(outbox="postgresql://...") or WINDLASS_OUTBOX, and run '
            "`windlass migrate` once; or leave out connection=."
        )
    return place


class _SandboxPlace:
    """The engine of a sandbox. Tests may use another kind of database than production."""

    dialect = None

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.location = "the sandbox"

    def put_within(self, jobs: Sequence[NewJob]) -> SqlGenerator[list[Placed]]:
        yield from ()  # no statement: the connection is only checked
        return self._engine.put(jobs)
