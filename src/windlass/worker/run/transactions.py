"""Jobs that end in a transaction with the writes of their task: `ctx.transaction()`.

1. The block begins a transaction, on a connection of the worker or of the task.
2. The end of the block ends the job in that transaction, fenced by the token, and commits. If the
   claim is over, the block rolls back, and the engine later rejects the outcome.
3. If the connection breaks before the reply to the commit, `find_verdict` asks the engine for the
   outcome. Until then nothing is decided: the code must not run twice, and no success may be
   reported whose writes are not there.
4. `take_committed` gives the fetcher the outcomes that are committed already. It does not report
   them again.
"""

from __future__ import annotations

import asyncio
import time
from asyncio import CancelledError
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, suppress
from logging import getLogger
from types import TracebackType
from typing import Any, Final, NoReturn, TypeVar

from windlass.client.connections.connection import CallerConnection
from windlass.client.connections.recognition import read_connection
from windlass.context import Context
from windlass.core.failures import clear_frames
from windlass.core.signals import Interrupted
from windlass.engine.contract import (
    Claim,
    Engine,
    Outcome,
    Progressed,
    Succeeded,
    TransactionVerbs,
    Verdict,
    transaction_verbs,
)
from windlass.errors import ClaimLost, EncodeError, EngineError, NoTransaction, OnceRefused
from windlass.interrupt_shield import shield
from windlass.task import Task
from windlass.transaction import JobTransaction
from windlass.worker.logs.events import LogEvent

T = TypeVar("T")

log = getLogger("windlass.worker")

#: The wait before the engine is asked again for the outcome of a commit, in seconds: at first, and
#: at most.
_FIRST_PAUSE_S: Final = 0.05
_MOST_PAUSE_S: Final = 2.0

#: Makes the outcome of a run from its value: `Succeeded`, or another one for a value that cannot be
#: stored.
Conclude = Callable[[object], Outcome]


class Transactions:
    """The transactions of all jobs of one process."""

    def __init__(self, verbs: TransactionVerbs) -> None:
        self.verbs = verbs
        self._committed: set[tuple[str, str]] = set()

    def note_committed(self, outcome: Outcome) -> None:
        self._committed.add((outcome.id, outcome.token))

    def take_committed(self, outcomes: Iterable[Outcome]) -> list[Outcome]:
        """Return the outcomes that were committed, each of them once."""
        if not self._committed:
            return []
        taken = [
            outcome
            for outcome in outcomes
            if not isinstance(outcome, Progressed)
            and (outcome.id, outcome.token) in self._committed
        ]
        self._committed.difference_update((outcome.id, outcome.token) for outcome in taken)
        return taken

    def announce(self, outcomes: Iterable[Outcome]) -> None:
        """Wake the callers that wait for these jobs. If that fails, they poll."""
        with suppress(EngineError):
            self.verbs.announce_ends([outcome.id for outcome in outcomes])

    def find_verdict(self, outcome: Outcome) -> Verdict:
        """Ask the engine for the outcome of a commit, until the engine answers."""
        pause_s, is_logged = _FIRST_PAUSE_S, False
        while True:
            try:
                return self.verbs.find_verdicts([outcome])[0]
            except EngineError as error:
                if not is_logged:
                    log.warning(LogEvent.COMMIT_UNKNOWN, outcome.id, error)
                is_logged = True
                time.sleep(pause_s)
                pause_s = min(2 * pause_s, _MOST_PAUSE_S)


def transactions_of(engine: Engine) -> Transactions | None:
    """The transactions of an engine that has them."""
    verbs = transaction_verbs(engine)
    return None if verbs is None else Transactions(verbs)


def check_tasks(tasks: Iterable[Task[..., Any]], engine: Engine) -> None:
    """Refuse tasks with `transaction=True` for an engine without transactions."""
    names = sorted(task.name for task in tasks if task.in_transaction)
    if names and transaction_verbs(engine) is None:
        raise NoTransaction(
            f"Expected an engine that can end jobs in a transaction of their task, found "
            f"{engine.location}. These tasks have transaction=True: {', '.join(names)}. Keep the "
            "jobs in the PostgreSQL database that the tasks write to (postgresql://...); or leave "
            "out transaction=True, and make the writes safe to repeat: store ctx.job_id with them "
            "in a unique column."
        )


class RunEnding:
    """Ends one run in a transaction. `outcome` is what to report after that."""

    def __init__(
        self, transactions: Transactions, claim: Claim, context: Context, conclude: Conclude
    ) -> None:
        self.transactions = transactions
        self.claim = claim
        self.outcome: Outcome | None = None
        self.is_open = False
        self._context = context
        self._conclude = conclude
        self._is_committed = False

    # ------------------------------------------------------------------------------- for the task

    def begin(self, connection: object) -> JobTransaction[Any, Any]:
        """A block on a connection of the task, or on one of the worker if it is None."""
        adapter = None if connection is None else read_connection("connection", connection)
        return _Block(self, connection, adapter)

    def check_may_begin(self) -> None:
        if self.is_open:
            raise NoTransaction(
                f"Job {self.claim.id} is in a transaction already, in which it will end. Use its "
                "connection: ctx.connection in a task with transaction=True."
            )
        if self._is_committed:
            raise NoTransaction(
                f"Job {self.claim.id} has ended with an earlier transaction of this run. Let one "
                "block be the end of the task, and write everything in it."
            )
        if self.outcome is not None:
            raise ClaimLost(self.claim.id)

    def check_may_store_step(self) -> None:
        """Refuse a step that would outlive writes which the transaction rolls back."""
        if self.is_open:
            raise OnceRefused(
                f"ctx.once() was called in the transaction of job {self.claim.id}. A completed "
                "step is stored at once, even if the transaction is rolled back, so its writes "
                "could be lost. Call it before `with ctx.transaction()`, and not in a task with "
                "transaction=True. Writes in the transaction need no guard."
            )
        if self._is_committed:
            raise OnceRefused(
                f"ctx.once() was called after job {self.claim.id} has ended with its transaction. "
                "Call it before the block."
            )

    # ------------------------------------------------------------------------------ for the block

    def make_end(self, value: object) -> Succeeded:
        """The end of the job with this result. Raises if the result cannot be stored."""
        outcome = self._conclude(value)
        if isinstance(outcome, Succeeded):
            return outcome
        self.outcome = outcome
        raise EncodeError(
            f"The result of {self.claim.task} cannot be stored, so its transaction was rolled "
            f"back. `windlass job show {self.claim.id}` shows why.",
            task=self.claim.task,
        )

    def outcomes(self, end: Succeeded) -> Sequence[Outcome]:
        """The end of the job after its last progress, which may not be reported yet."""
        report = self._context.last_report
        if report is None:
            return (end,)
        return (Progressed(id=end.id, token=end.token, progress=report), end)

    def check(self, verdicts: Sequence[Verdict], end: Succeeded) -> None:
        """Check the verdicts of the engine before the commit."""
        if set(verdicts) != {Verdict.OK}:
            self.lose(end)

    def settle_unknown(self, verdict: Verdict, end: Succeeded, error: BaseException) -> None:
        """Decide on a commit that raised an error, by what the engine knows."""
        if verdict is Verdict.OK:
            raise error  # nothing was committed, and the job can fail as usual
        if verdict is Verdict.STALE:
            self.lose(end)

    def lose(self, end: Succeeded) -> NoReturn:
        """Keep the outcome: the engine will reject it, which is logged."""
        self.outcome = end
        raise ClaimLost(self.claim.id)

    def commit(self, end: Succeeded) -> None:
        self.outcome = end
        self._is_committed = True
        self.transactions.note_committed(end)

    # --------------------------------------------------------------------------- for the pipeline

    def close(self, error: BaseException | None = None) -> Outcome | None:
        """The outcome of the run, after its function has returned or raised; None if the pipeline
        decides."""
        outcome = self.outcome
        if error is None or outcome is None:
            return outcome
        if self._is_committed and not isinstance(error, Interrupted | CancelledError):
            with suppress(BaseException):  # a log handler of the app may fail
                claim = self.claim
                log.error(LogEvent.JOB_FAILED_AFTER_END, claim.id, claim.task, exc_info=error)
        clear_frames(error)
        return outcome


class _Block(JobTransaction[Any, Any]):
    """The block of `ctx.transaction()`."""

    _block: AbstractContextManager[Any]
    _async_block: AbstractAsyncContextManager[Any]

    def __init__(
        self, ending: RunEnding, connection: object, adapter: CallerConnection | None
    ) -> None:
        super().__init__()
        self._ending = ending
        self._verbs = ending.transactions.verbs
        self._connection = connection
        self._adapter = adapter

    # ----------------------------------------------------------------------------------- blocking

    def __enter__(self) -> Any:
        _refuse_event_loop()
        self._ending.check_may_begin()
        adapter, verbs = self._adapter, self._verbs
        self._block = verbs.transaction() if adapter is None else adapter.transaction(verbs)
        begun = self._block.__enter__()
        self._ending.is_open = True
        return self._begun(begun)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with shield():
            self._ending.is_open = False
            if error is None:
                self._end()
            else:
                self._block.__exit__(kind, error, traceback)

    def _end(self) -> None:
        ending = self._ending
        try:
            end = ending.make_end(self.result)
            steps = self._verbs.finish_within(ending.outcomes(end))
            ending.check(self._caller.run(self._verbs, steps), end)
        except BaseException as error:
            self._block.__exit__(type(error), error, error.__traceback__)
            raise
        try:
            self._block.__exit__(None, None, None)
        except BaseException as error:  # noqa: BLE001  # raised again unless the engine knows better
            ending.settle_unknown(ending.transactions.find_verdict(end), end, error)
        ending.commit(end)

    # -------------------------------------------------------------------------------------- async

    async def __aenter__(self) -> Any:
        self._ending.check_may_begin()
        adapter, verbs = self._adapter, self._verbs
        self._async_block = verbs.atransaction() if adapter is None else adapter.atransaction(verbs)
        begun = await self._async_block.__aenter__()
        self._ending.is_open = True
        return self._begun(begun)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._ending.is_open = False
        if error is None:
            await put_off_cancellation(self._aend())
        else:
            await self._async_block.__aexit__(kind, error, traceback)

    async def _aend(self) -> None:
        ending = self._ending
        try:
            end = ending.make_end(self.result)
            steps = self._verbs.finish_within(ending.outcomes(end))
            ending.check(await self._caller.arun(self._verbs, steps), end)
        except BaseException as error:
            await self._async_block.__aexit__(type(error), error, error.__traceback__)
            raise
        try:
            await self._async_block.__aexit__(None, None, None)
        except BaseException as error:  # noqa: BLE001  # raised again unless the engine knows better
            verdict = await asyncio.to_thread(ending.transactions.find_verdict, end)
            ending.settle_unknown(verdict, end, error)
        ending.commit(end)

    # --------------------------------------------------------------------------------------- both

    def _begun(self, begun: Any) -> Any:
        """The value of the block: the connection of the task, or one of the worker."""
        is_given = self._adapter is not None
        self._caller = self._adapter or read_connection("connection", begun)
        self._caller.ends_job = True
        return self._connection if is_given else begun


async def put_off_cancellation(work: Awaitable[T]) -> T:
    """Await work that must not be interrupted. Raise a cancellation after the work."""
    task = asyncio.ensure_future(work)
    cancelled: CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except CancelledError as error:
            if task.cancelled():
                raise
            cancelled = error
        except BaseException:  # noqa: BLE001  # raised by `result` below
            continue
    value = task.result()
    if cancelled is not None:
        raise cancelled
    return value


def _refuse_event_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise NoTransaction(
        "`with ctx.transaction()` would block the event loop. In a coroutine, write `async with "
        "ctx.transaction() as connection:`."
    )
