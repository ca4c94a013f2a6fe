"""The SQLite engine: each operation of the contract is one transaction on one file.

`windlass.engine.sql.engine` has most operations, `verbs/` those that this engine does in its own
way. This class opens the transaction, settles its bookkeeping and wakes idle sessions after the
commit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, TypeVar

import apsw
import msgspec

from windlass.engine.contract import (
    Batch,
    Capability,
    EngineOptions,
    EngineSpace,
    Finding,
    JobEnd,
    Migrated,
    NewJob,
    Outcome,
    Placed,
    Plan,
    Repaired,
    Tended,
    Turn,
    Verdict,
    Waiter,
    WakeUp,
)
from windlass.engine.sql.engine import SqlEngine
from windlass.engine.sql.statements import Statements
from windlass.engine.sql.verbs import admin, finish
from windlass.engine.sql.wakeup import Found
from windlass.engine.sqlite.database import Database
from windlass.engine.sqlite.files import FileLocation
from windlass.engine.sqlite.result_wakeup import SQLiteResultWakeup
from windlass.engine.sqlite.statements import SQLiteStatements, migrations
from windlass.engine.sqlite.transaction import Transaction
from windlass.engine.sqlite.verbs import check, claim, put, repair
from windlass.engine.sqlite.verbs.claim import ClaimPreview
from windlass.engine.sqlite.verbs.finish import succeed_batch
from windlass.engine.sqlite.wakeup import SQLiteWakeup
from windlass.errors import EngineError, FormatTooNew

T = TypeVar("T")

#: Identifies a windlass database in the file header; windlass never changes other databases.
APPLICATION_ID: Final = 0x57494E44  # "WIND"
NEWEST_FORMAT: Final = max(number for number, _ in migrations())


class SQLiteEngine(SqlEngine[Transaction]):
    """Jobs in one SQLite file, or in memory when `path` is None."""

    def __init__(
        self, path: Path | None, options: EngineOptions, *, durability: str = "full"
    ) -> None:
        place = None if path is None else FileLocation(path.absolute())
        self.clock_offset_ms = 0
        self._options = options
        self._database = Database(place, durability, options.timeout_ms)
        self._wakeup = SQLiteWakeup(place.wake_path if place else None)
        self._result_wakeup = SQLiteResultWakeup(place.ends_path if place else None)
        self._has_unreported_loss = False  # `tend` must still report that the file was replaced
        self._database.on_new_file = self._reset_for_new_file

    @property
    def location(self) -> str:
        return f"sqlite {self._database.location}"

    @property
    def capabilities(self) -> frozenset[Capability]:
        if self._database.place is None:
            return frozenset({Capability.STRICT_ORDER})
        return frozenset(Capability) - {Capability.HANDOFF, Capability.TRANSACTIONAL}

    # ----------------------------------------------------------------------------- hot paths

    def put(self, jobs: Sequence[NewJob]) -> list[Placed]:
        return self._write(lambda tx: put.put_all(tx, jobs))

    def finish(self, outcomes: Sequence[Outcome]) -> list[Verdict]:
        return self._write(lambda tx: finish.finish(tx, outcomes, succeed_batch))

    def turn(
        self,
        session: str,
        outcomes: Sequence[Outcome],
        nonce: str,
        plan: Plan,
        limit: int,
        *,
        is_last: bool = False,
    ) -> Turn:
        """Finish claims and claim jobs. `is_last` has no effect: this engine has no hand-off."""
        if not outcomes and self._database.place is not None:
            idle = self._read(lambda db, now: _idle(db.connection, session, nonce, plan, now))
            if idle is not None:
                return Turn(verdicts=(), batch=idle)

        def work(tx: Transaction) -> Turn:
            verdicts = tuple(finish.finish(tx, outcomes, succeed_batch))
            return Turn(verdicts=verdicts, batch=claim.claim(tx, session, nonce, plan, limit))

        return self._write(work)

    # ------------------------------------------------------------------------------- upkeep

    def tend(self, known: Sequence[str] | None = None) -> Tended:
        named = None if known is None else set(known)
        tended = self._write(lambda tx: admin.tend(tx, named))
        if not self._has_unreported_loss:
            return tended
        self._has_unreported_loss = False
        return msgspec.structs.replace(tended, emptied=True)

    # --------------------------------------------------------------------------------- copies

    def open_transactions(self) -> frozenset[str]:
        return frozenset()

    # -------------------------------------------------------------------------------- reading

    def watch(self, ids: Sequence[str], on_end: Callable[[str], None]) -> list[JobEnd | None]:
        self._result_wakeup.listen(on_end)  # before the read, so that no end is lost between
        return self.ends(ids)

    def check(self) -> list[str]:
        return self._read(lambda db, _now: check.check(db.connection))

    def repair(self, cursor: str | None = None, *, change: bool = False) -> Repaired:
        step = int(cursor or 0)
        found = self._read(lambda db, _now: repair.find(db.connection, step))
        has_more = False
        if change and found.fixed:
            found, has_more = self._write(lambda tx: repair.apply(tx, step))
        then = step if has_more else step + 1
        further = str(then) if then < len(repair.STEPS) else None
        return msgspec.structs.replace(found, cursor=further)

    def is_used(self) -> bool:
        place = self._database.place
        try:
            return place is None or place.path.is_file()
        except OSError:  # no permission for the folder, or the name is too long
            return False

    def examine(self) -> list[Finding]:
        from windlass.engine.sqlite import doctor  # slow to import, and seldom needed

        return list(doctor.examine(self._database, _check_owner))

    def space(self) -> EngineSpace:
        place = self._database.place
        return EngineSpace(0, 0) if place is None else EngineSpace(*place.measure_disk())

    # ------------------------------------------------------------------------------- waiting

    def wait(self, waiters: Sequence[Waiter], timeout_ms: int) -> list[WakeUp]:
        return self._wakeup.wait(waiters, timeout_ms, self._look)

    def _look(self, plans: Iterable[Plan]) -> Found:
        """Promote due jobs, and find the plans that have something to claim."""
        found = self._read(lambda db, now: ClaimPreview.at(db.connection, now).find(plans))
        if found.due_in_ms == 0:
            next_in_ms = self._write(claim.promote_and_reap)
            return Found(found.ready, next_in_ms)
        return found

    def nudge(self) -> None:
        self._wakeup.nudge()

    # ---------------------------------------------------------------------- format and shutdown

    def migrate_jobs(self, cursor: str | None = None) -> Migrated:
        """Move nothing: `migrate` migrates the whole file in one step."""
        return Migrated()

    def migrate(self) -> int:
        database = self._database
        files = database.files  # read first: another thread may detect a new file meanwhile
        version = database.read(_stored_version)
        if version != NEWEST_FORMAT:
            version = database.write(_migrate)
        database.known_file = files
        return version

    def shutdown(self) -> None:
        self._wakeup.close()
        self._result_wakeup.close()
        self._database.close()
        self._database.known_file = -1

    def _reset_for_new_file(self) -> None:
        """Close the sockets of the old file, and make `tend` report the loss."""
        self._wakeup.close()
        self._result_wakeup.close()
        self._has_unreported_loss = True

    # --------------------------------------------------------------------------- transactions

    def _now_ms(self) -> int:
        return time.time_ns() // 1_000_000 + self.clock_offset_ms

    def _read_now(self, work: Callable[[Statements, int], T]) -> T:
        return self._read(work)

    def _read(self, work: Callable[[SQLiteStatements, int], T]) -> T:
        if self._database.known_file != self._database.files:
            self.migrate()
        return self._database.read(
            lambda connection: work(SQLiteStatements(connection), self._now_ms())
        )

    def _write(self, work: Callable[[Transaction], T]) -> T:
        if self._database.known_file != self._database.files:
            self.migrate()

        def transaction(connection: apsw.Connection) -> tuple[T, Transaction]:
            tx = Transaction(connection, self._now_ms(), self._options)
            value = work(tx)
            tx.settle()
            return value, tx

        value, tx = self._database.write(transaction)
        if tx.made_ready:
            self._wakeup.wake(tx.made_ready, tx.ready_tasks)
        if tx.ended:
            self._result_wakeup.publish(tx.ended)
        return value


def _idle(
    connection: apsw.Connection, session: str, nonce: str, plan: Plan, now_ms: int
) -> Batch | None:
    """Reply to a claim that has nothing to do, without the write lock; None if there is work."""
    look = ClaimPreview.at(connection, now_ms)
    if look.has_work(plan) or look.holds(session, nonce):
        return None
    return Batch(gone=True) if claim.is_gone(connection, session) else look.idle_batch(plan)


def _stored_version(connection: apsw.Connection) -> int:
    """Read the stored format; 0 for an empty file or another program's database."""
    is_ours = connection.pragma("application_id") == APPLICATION_ID
    return int(connection.pragma("user_version")) if is_ours else 0


def _check_owner(connection: apsw.Connection) -> int:
    """Return the stored format; refuse a file of another program or of a newer windlass."""
    version = _stored_version(connection)
    if version > NEWEST_FORMAT:
        raise FormatTooNew(
            f"The database was written by a newer windlass (format {version}; this one knows up "
            f"to {NEWEST_FORMAT}). Upgrade windlass here, or give another database in the url."
        )
    owner = int(connection.pragma("application_id"))
    tables = connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()[0][0]
    if owner != APPLICATION_ID and tables:
        raise EngineError(
            f"The file {connection.filename} is a SQLite database of another program, and was left "
            "as it is. Give the path of a new file, or of a windlass database, in the url, as in "
            "sqlite:///jobs.db."
        )
    return version


def _migrate(connection: apsw.Connection) -> int:
    """Apply the missing migrations."""
    version = _check_owner(connection)
    for number, text in migrations():
        if number > version:
            connection.execute(text)
            connection.pragma("user_version", number)
    connection.pragma("application_id", APPLICATION_ID)
    return NEWEST_FORMAT
