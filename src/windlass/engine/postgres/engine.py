"""The PostgreSQL engine: each operation of the contract is one transaction on one schema.

`windlass.engine.sql.engine` has most operations, `verbs/` those that this engine does in its own
way. This class opens the transaction, settles its bookkeeping and wakes idle sessions after the
commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from functools import partial
from typing import TypeVar

import msgspec
import psycopg
from psycopg import errors

from windlass.engine.contract import (
    BITE,
    Batch,
    Beat,
    Capability,
    ChangeCode,
    Dialect,
    EngineOptions,
    EngineSpace,
    Finding,
    JobEnd,
    Migrated,
    NewJob,
    Outcome,
    Placed,
    Plan,
    Pulse,
    PutCode,
    Repaired,
    Revival,
    SqlGenerator,
    SqlStatement,
    Tended,
    Turn,
    Verdict,
    Waiter,
    WakeUp,
    check_held,
)
from windlass.engine.postgres import migrate
from windlass.engine.postgres.callers_transaction import run_within
from windlass.engine.postgres.connections import (
    IDLE_MS,
    UNPREPARED,
    Connections,
    DeadlineConnection,
)
from windlass.engine.postgres.pipeline import Pipeline, pipelined
from windlass.engine.postgres.result_wakeup import PostgresResultWakeup
from windlass.engine.postgres.statements import PostgresStatements, statements_for
from windlass.engine.postgres.suspended_calls import SuspendedCalls
from windlass.engine.postgres.task_connections import TaskConnections
from windlass.engine.postgres.transaction import Start, Transaction
from windlass.engine.postgres.url import PostgresAddress
from windlass.engine.postgres.verbs import check, claim, counters, hot, put, repair, ring
from windlass.engine.postgres.verbs.finish import succeed_batch
from windlass.engine.postgres.wakeup import PostgresWakeup
from windlass.engine.sql.engine import SqlEngine
from windlass.engine.sql.statements import Row, Statements
from windlass.engine.sql.verbs import admin, finish, sessions
from windlass.engine.sql.wakeup import Found
from windlass.errors import EngineError, InvalidConnection

T = TypeVar("T")
#: Sends the first statements of a transaction, together with its BEGIN.
SendFirst = Callable[[PostgresStatements], None]


class PostgresEngine(SqlEngine[Transaction]):
    """Jobs in one schema of a PostgreSQL database."""

    def __init__(self, address: PostgresAddress, options: EngineOptions) -> None:
        self.clock_offset_ms = 0
        self._address = address
        self._options = options
        self._connections = Connections(
            address, most=options.most_calls, timeout_ms=options.timeout_ms
        )
        self._task_connections = TaskConnections(address)
        self._wakeup = PostgresWakeup(self._connections)
        self._result_wakeup = PostgresResultWakeup(self._connections)
        self._suspended_calls = SuspendedCalls(self._connections, options.timeout_ms)
        self._identity = ""  # of the tables that this object has used last
        self._assumed: hot.Assumptions | None = None  # from the last transaction
        self._heads = hot.LineHeads()
        self._has_unreported_loss = False  # `tend` must still report that the tables were replaced

    @property
    def location(self) -> str:
        return self._connections.location

    @property
    def capabilities(self) -> frozenset[Capability]:
        return frozenset(Capability) - {Capability.HANDOFF}

    # ----------------------------------------------------------------------------- hot paths

    def put(self, jobs: Sequence[NewJob]) -> list[Placed]:
        assumed = self._assumed
        if assumed is None:
            return self._write(lambda tx: put.put_all(tx, jobs))
        if not hot.is_plain(jobs, assumed.queues):
            return self._put_keyed(jobs, assumed.queues)
        start, settings = self._run_short(lambda db: hot.put(db, self._clock, assumed.queues, jobs))
        if settings() != [(assumed.queues,)]:
            return self._write(lambda tx: put.put_all(tx, jobs))
        self._wakeup.wake(*put.news_of(jobs, start.now_ms))
        return [Placed(job.id, PutCode.CREATED) for job in jobs]

    def _put_keyed(self, jobs: Sequence[NewJob], queues: str) -> list[Placed]:
        """Put jobs in two round trips: the first one asks what decides about them."""
        asked: list[put.Inquiry] = []

        def first(db: PostgresStatements) -> None:
            asked[:] = [put.ask(db, jobs, queues, self._clock)]

        def work(tx: Transaction) -> list[Placed]:
            return put.put_all(tx, jobs, asked[0] if tx.queues == queues else None)

        return self._write(work, first)

    def finish(self, outcomes: Sequence[Outcome]) -> list[Verdict]:
        if not hot.are_plain_successes(outcomes):
            return self._write(lambda tx: finish.finish(tx, outcomes, succeed_batch))
        if not outcomes:
            return []
        _, ended = self._run_short(lambda db: hot.start_successes(db, self._clock, outcomes))
        return self._judge(outcomes, ended.rows())

    def _judge(self, outcomes: Sequence[Outcome], ended: Iterable[Row]) -> list[Verdict]:
        """The verdicts on successes, given those that were current."""
        keys = set(ended)
        others = [outcome for outcome in outcomes if (outcome.id, outcome.token) not in keys]
        self._result_wakeup.publish([job_id for job_id, _ in keys])
        if not others:
            return [Verdict.OK] * len(outcomes)
        verdicts = iter(self._write(lambda tx: finish.finish(tx, others, succeed_batch)))
        return [
            Verdict.OK if (outcome.id, outcome.token) in keys else next(verdicts)
            for outcome in outcomes
        ]

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
        assumed = self._assumed
        short = None if assumed is None else self._plan_claim(assumed, session, nonce, plan, limit)
        if (
            short is not None
            and hot.are_plain_successes(outcomes)
            and (outcomes or not short.is_idle)
        ):
            return self._turn_short(outcomes, short)
        if not outcomes:
            return Turn(verdicts=(), batch=self._claim(session, nonce, plan, limit, short))

        def work(tx: Transaction) -> Turn:
            verdicts = tuple(finish.finish(tx, outcomes, succeed_batch))
            return Turn(verdicts=verdicts, batch=claim.claim(tx, session, nonce, plan, limit))

        turn = self._write(work)
        self._note(is_idle=not turn.batch.claims)
        return turn

    def _plan_claim(
        self, assumed: hot.Assumptions, session: str, nonce: str, plan: Plan, limit: int
    ) -> hot.ShortClaim | None:
        """The claim of a turn in one round trip; None if the claim needs the long way."""
        lines = hot.lines_for(plan, assumed) if limit > 0 else None
        if lines is None:
            return None
        return hot.ShortClaim(
            session=session,
            nonce=nonce,
            plan=plan,
            limit=limit,
            lease_ms=self._options.lease_ms,
            queues=assumed.queues,
            lines=lines,
            heads=self._heads.recall(lines),
            wants_heads=self._heads.are_wanted,
            is_idle=assumed.is_idle and len(lines) != 1,
        )

    def _turn_short(self, outcomes: Sequence[Outcome], short: hot.ShortClaim) -> Turn:
        start, started = self._run_short(
            lambda db: hot.start_turn(db, self._clock, outcomes, short)
        )
        reply = started.read()
        self._heads.note(short, reply)
        verdicts = tuple(self._judge(outcomes, reply.ended)) if outcomes else ()
        if start.is_lease_news(self._options.lease_ms, reply.now_ms):
            self._write(lambda tx: tx.note_seen())
        if not reply.claims:
            return Turn(verdicts=verdicts, batch=self._claim_otherwise(short))
        self._note(only_line=None if short.plan.queues else reply.only_line, is_idle=False)
        next_in_ms = reply.look.next_in_ms(reply.now_ms, start.reap_after_ms)
        batch = Batch(
            claims=reply.claims,
            next_in_ms=0 if reply.is_cut_short else next_in_ms,
            suspects=reply.look.has_suspects and self._has_suspects(short.plan),
        )
        return Turn(verdicts=verdicts, batch=batch)

    def _has_suspects(self, plan: Plan) -> bool:
        return self._read(lambda db, start: _preview(db, start).idle_batch(plan).suspects)

    def _claim_otherwise(self, short: hot.ShortClaim) -> Batch:
        """Claim after a claim in one round trip took nothing; perhaps other lines have jobs."""
        if short.plan.queues or not short.only_line:
            return self._claim(short.session, short.nonce, short.plan, short.limit)
        self._note(only_line="")
        return self._turn_short((), short._replace(lines=(), heads={})).batch

    def _claim(
        self,
        session: str,
        nonce: str,
        plan: Plan,
        limit: int,
        short: hot.ShortClaim | None = None,
    ) -> Batch:
        """Claim jobs; first only read, since most claims of idle workers find nothing. `short` is
        the same claim in one round trip, if that was not tried yet."""

        def look(db: PostgresStatements, start: Start) -> tuple[bool, Batch | None]:
            preview = _preview(db, start)
            return preview.next_in_ms == 0, claim.idle(db, session, nonce, plan, preview)

        is_due, idle = self._read(look)
        if idle is not None:
            self._note(is_idle=True)
            return idle
        if short is not None and not is_due:
            return self._turn_short((), short).batch
        batch = self._write(lambda tx: claim.claim(tx, session, nonce, plan, limit))
        self._note(is_idle=not batch.claims)
        return batch

    def _note(self, *, only_line: str | None = None, is_idle: bool | None = None) -> None:
        """Remember what a claim has found: it decides how the next one begins."""
        assumed = self._assumed
        if assumed is not None:
            self._assumed = assumed._replace(
                only_line=assumed.only_line if only_line is None else only_line,
                is_idle=assumed.is_idle if is_idle is None else is_idle,
            )

    # ------------------------------------------------------------- transactions of the caller

    @property
    def dialect(self) -> Dialect:
        return Dialect.POSTGRESQL

    def put_within(self, jobs: Sequence[NewJob]) -> SqlGenerator[list[Placed]]:
        start = yield from self._start_within()
        placed: list[Placed] = []
        for chunk in put.chunks(jobs):
            placed += yield from self._within_caller(start, partial(_put_chunk, chunk))
        return placed

    def finish_within(self, outcomes: Sequence[Outcome]) -> SqlGenerator[list[Verdict]]:
        start = yield from self._start_within()
        yield SqlStatement(self._sql("limit_idle"), (f"{IDLE_MS}ms",))
        verdicts = yield from self._within_caller(
            start, lambda tx: finish.finish(tx, outcomes, succeed_batch)
        )
        return verdicts

    def find_verdicts(self, outcomes: Sequence[Outcome]) -> list[Verdict]:
        return self._write(lambda tx: [finish.find_verdict(tx, outcome) for outcome in outcomes])

    def announce_ends(self, ids: Sequence[str]) -> None:
        self._result_wakeup.publish(ids)

    def transaction(self) -> AbstractContextManager[psycopg.Connection[Row]]:
        return self._task_connections.transaction()

    def atransaction(self) -> AbstractAsyncContextManager[psycopg.AsyncConnection[Row]]:
        return self._task_connections.atransaction()

    def _start_within(self) -> SqlGenerator[Start]:
        """Begin on a connection of the caller, which must be to the tables of this engine."""
        if not self._identity:
            self._read(lambda _db, _start: None)  # makes the tables, if they are missing
        rows = yield SqlStatement(self._sql("begin_within"), (self._clock,))
        if not rows:
            raise migrate.of_empty_meta(self._schema)
        start = Start(*rows[0])
        if start.format != migrate.NEWEST_FORMAT:
            migrate.refuse_format(start.format, self._schema)
        if start.identity != self._identity:
            self._read(lambda _db, _start: None)  # the tables may have been made again
        if start.identity != self._identity:
            raise InvalidConnection(
                f"Expected a connection to the database of {self.location}, found one to another "
                f"database, which has a schema {self._schema} of windlass too. Give a connection "
                "to the database that the url of the app names."
            )
        return start

    def _sql(self, name: str) -> str:
        return statements_for(self._schema)[name].decode()

    def _within_caller(self, start: Start, work: Callable[[Transaction], T]) -> SqlGenerator[T]:
        return run_within(self._schema, start, self._options, self._clock, work)

    # ------------------------------------------------------------------------------- sessions

    def beat(self, beats: Sequence[Beat]) -> list[Pulse]:
        """Beat in two transactions if others have locked some of the sessions: a child that was
        suspended in a call may keep its session locked, and must not cost the others their
        leases."""
        check_held(beats)
        locked: set[str] = set()

        def work(tx: Transaction) -> list[Pulse]:
            names = [beat.session for beat in beats]
            rows = tx.rows("lock_free_sessions", names) if len(beats) > 1 else ()
            locked.clear()
            locked.update(session for (session,) in rows)
            return sessions.beat(tx, [beat for beat in beats if beat.session not in locked])

        free = iter(self._write(work))
        if not locked:
            return list(free)
        others = [beat for beat in beats if beat.session in locked]
        late = iter(self._write(lambda tx: sessions.beat(tx, others)))
        return [next(late if beat.session in locked else free) for beat in beats]

    # ----------------------------------------------------------------------------- operators

    def revive(self, revivals: Sequence[Revival]) -> list[ChangeCode]:
        def work(tx: Transaction) -> list[ChangeCode]:
            put.lock_keys_of(tx, [revival.id for revival in revivals])
            return admin.revive(tx, revivals)

        return self._write(work)

    def tend(self, known: Sequence[str] | None = None) -> Tended:
        named = None if known is None else set(known)
        self._suspended_calls.look()  # first: the transaction below may wait for their locks

        large: list[ring.Slot] = []

        def work(tx: Transaction) -> Tended:
            slots = ring.list_slots(tx)
            large[:] = [slot for slot in slots if slot.is_large and not slot.has_records]
            purged = ring.purge(tx, slots)
            more = counters.fold(tx)
            tended = admin.tend(tx, named)
            tx.run("forget_waiters", BITE)
            forgotten = tx.change("forget_watches", BITE)
            return msgspec.structs.replace(
                tended,
                purged=tended.purged + purged,
                more=tended.more or more or BITE in (purged, forgotten),
            )

        tended = self._write(work)
        emptied = sum(map(self._empty_slot, large))
        tended = msgspec.structs.replace(
            tended, purged=tended.purged + emptied, ended_calls=self._suspended_calls.report()
        )
        if not self._has_unreported_loss:
            return tended
        self._has_unreported_loss = False
        return msgspec.structs.replace(tended, emptied=True)

    def _empty_slot(self, slot: ring.Slot) -> int:
        """Empty a partition, if no other transaction uses it at this moment; else later."""

        def attempt(connection: DeadlineConnection) -> int:
            try:
                return self._commit(connection, lambda tx: ring.empty(tx, slot))[0]
            except errors.LockNotAvailable:
                return 0

        return self._run(attempt)

    # --------------------------------------------------------------------------------- copies

    def open_transactions(self) -> frozenset[str]:
        return frozenset(self._read(lambda db, _: [str(*row) for row in db.rows("list_writers")]))

    # -------------------------------------------------------------------------------- reading

    def watch(self, ids: Sequence[str], on_end: Callable[[str], None]) -> list[JobEnd | None]:
        self._result_wakeup.watch(ids, on_end)  # before the read, so that no end is lost between
        return self.ends(ids)

    def check(self) -> list[str]:
        return check.check(self._read)

    def repair(self, cursor: str | None = None, *, change: bool = False) -> Repaired:
        return repair.repair(self._read, self._write, cursor, change=change)

    def is_used(self) -> bool:
        return self._connections.run(lambda db: migrate.stored_format(db, self._schema)) > 0

    def examine(self) -> list[Finding]:
        from windlass.engine.postgres import doctor  # slow to import, and seldom needed

        return doctor.examine(self._connections, self.clock_offset_ms)

    def space(self) -> EngineSpace:
        return self._connections.run(migrate.measure_space)

    # ------------------------------------------------------------------------------- waiting

    def wait(self, waiters: Sequence[Waiter], timeout_ms: int) -> list[WakeUp]:
        return self._wakeup.wait(waiters, timeout_ms, self._look)

    def _look(self, plans: Iterable[Plan]) -> Found:
        """Promote due jobs, and find the plans that have something to claim."""
        found = self._read(lambda db, start: _preview(db, start).find(plans))
        if found.due_in_ms == 0:
            next_in_ms = self._write(claim.promote_and_reap)
            return Found(found.ready, next_in_ms)
        return found

    def nudge(self) -> None:
        self._wakeup.nudge()

    # ---------------------------------------------------------------------- format and shutdown

    def migrate_jobs(self, cursor: str | None = None) -> Migrated:
        """Bring the whole schema forward. No job is moved."""
        return Migrated(steps=migrate.upgrade(self._connections, self._schema))

    def migrate(self) -> int:
        return self._connections.run(lambda db: migrate.prepare(db, self._schema))

    def migration_sql(self, after: int | None = None) -> str:
        """Return the SQL of `migrate_jobs`; after a given format without asking the server."""
        if after is None:
            after = self._connections.run(lambda db: migrate.stored_format(db, self._schema))
        return migrate.migration_sql(self._schema, after)

    def shutdown(self) -> None:
        self._wakeup.close()
        self._result_wakeup.close()
        self._connections.close()
        self._task_connections.close()

    # --------------------------------------------------------------------------- transactions

    @property
    def _schema(self) -> str:
        return self._address.schema

    @property
    def _clock(self) -> str:
        """What statements add to the clock of the server, in milliseconds."""
        return str(self.clock_offset_ms)

    def _read_now(self, work: Callable[[Statements, int], T]) -> T:
        return self._read(lambda db, start: work(db, start.now_ms))

    def _read(self, work: Callable[[PostgresStatements, Start], T]) -> T:
        def attempt(connection: DeadlineConnection) -> T:
            return self._within(connection, "begin_read", work)

        return self._run(attempt)

    def _write(self, work: Callable[[Transaction], T], first: SendFirst | None = None) -> T:
        value, tx = self._run(lambda connection: self._commit(connection, work, first))
        if tx.made_ready:
            self._wakeup.wake(tx.made_ready, tx.ready_tasks)
        if tx.ended:
            self._result_wakeup.publish(tx.ended)
        return value

    def _commit(
        self,
        connection: DeadlineConnection,
        work: Callable[[Transaction], T],
        first: SendFirst | None = None,
    ) -> tuple[T, Transaction]:
        """Run a write transaction with its bookkeeping."""

        def write(db: PostgresStatements, start: Start) -> tuple[T, Transaction]:
            tx = Transaction(db, start, self._options, self._clock)
            value = work(tx)
            tx.settle()
            return value, tx

        return self._within(connection, "begin_write", write, first)

    def _run_short(self, statements: Callable[[PostgresStatements], T]) -> tuple[Start, T]:
        """Send the statements of a transaction together with its commit, and read their replies
        afterwards."""

        def attempt(connection: DeadlineConnection) -> tuple[Start, T]:
            with self._rolled_back(connection):
                with pipelined(connection) as pipeline:
                    db = self._begin(pipeline, "begin_write")
                    begun = db.start("begin", self._clock, migrate.NEWEST_FORMAT)
                    started = statements(db)
                    db.start("commit")
                return self._check(begun.rows()), started

        return self._run(attempt)

    def _run(self, attempt: Callable[[DeadlineConnection], T]) -> T:
        """Run a transaction, and make the tables first if they are missing."""
        try:
            return self._connections.run(attempt)
        except UNPREPARED:
            self.migrate()
        try:
            return self._connections.run(attempt)
        except UNPREPARED as error:
            raise EngineError(
                f"Tables of the schema {self._schema} have been changed or removed ({error}). "
                "Restore it from a backup, or drop it to begin with an empty one.",
                location=self.location,
            ) from error

    def _within(
        self,
        connection: DeadlineConnection,
        begin: str,
        work: Callable[[PostgresStatements, Start], T],
        first: SendFirst | None = None,
    ) -> T:
        """Run a transaction on a connection, and roll it back if `work` raises."""
        with self._rolled_back(connection), pipelined(connection) as pipeline:
            db = self._begin(pipeline, begin)
            begun = db.later("begin", self._clock, migrate.NEWEST_FORMAT)
            if first is not None:
                first(db)
            value = work(db, self._check(begun()))
            db.start("commit")
        return value

    def _begin(self, pipeline: Pipeline, begin: str) -> PostgresStatements:
        is_pooled = self._address.is_pooled
        db = PostgresStatements(pipeline, self._schema, prepare=not is_pooled)
        db.start(begin)
        for statement in self._connections.settings("SET LOCAL") if is_pooled else ():
            db.start_text(statement)
        return db

    @contextmanager
    def _rolled_back(self, connection: DeadlineConnection) -> Iterator[None]:
        """Roll back a transaction that raises. A broken connection cannot; the server does it."""
        try:
            yield
        except BaseException:
            if connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
                try:
                    connection.execute("ROLLBACK")
                except (psycopg.Error, TimeoutError):
                    connection.close()
            raise

    def _check(self, begun: Sequence[Row]) -> Start:
        """Read the row of `begin`. Note that the tables are others than before: the stored jobs are
        lost."""
        if not begun:
            raise migrate.of_empty_meta(self._schema)
        start = Start(*begun[0])
        if self._identity and self._identity != start.identity:
            self._has_unreported_loss = True
        self._identity = start.identity
        if self._assumed is None or self._assumed.queues != start.queues:
            self._assumed = hot.Assumptions(start.queues)
        return start


def _put_chunk(jobs: Sequence[NewJob], tx: Transaction) -> list[Placed]:
    return put.put_all(tx, jobs)


def _preview(db: Statements, start: Start) -> claim.Preview:
    return claim.Preview(db, start.now_ms, start.reap_after_ms, start.queues)
