"""Claims and reports of remote workers, for all requests of an instance.

1. `report` decides on reports and finishes them, in one call of the engine.
2. `turn` reports and claims in one call of the engine, then waits for a job if the request may
   wait: a report never waits.
3. A claim takes jobs that must run alone only for an idle worker, one at a time.
4. A client that has left, or whose access token was revoked while it waited, claims nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import msgspec

from windlass.engine.contract import Outcome, Plan, Turn
from windlass.errors import EngineError
from windlass.http.access import Principal
from windlass.http.problems import Problem, ProblemType
from windlass.http.worker_protocol.adoption import RemoteAdoption
from windlass.http.worker_protocol.claim_facts import KnownClaims
from windlass.http.worker_protocol.deliveries import Deliveries
from windlass.http.worker_protocol.long_polls import ClaimResult, LongPolls, Poll
from windlass.http.worker_protocol.messages import (
    MAX_CLAIMS,
    ClaimedJob,
    JobReport,
    ReportVerdict,
)
from windlass.http.worker_protocol.remote_sessions import (
    RemoteSession,
    RemoteSessions,
    session_gone,
)
from windlass.http.worker_protocol.report_decisions import DecidedReport, ReportDecisions, Reporter

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from windlass.http.gateway import Gateway
    from windlass.http.routes import ApiRequest


#: The number of sessions whose latest answer is remembered.
MAX_ANSWERED: Final = 10_000


class WantedClaim(msgspec.Struct, frozen=True, kw_only=True):
    """What a request wants to claim."""

    session: RemoteSession
    principal: Principal
    number: int
    limit: int
    wait_s: float

    @property
    def is_idle(self) -> bool:
        """Whether the worker has nothing to do: it asks for as many jobs as it has slots."""
        return self.limit >= min(self.session.info.slots, MAX_CLAIMS)

    @property
    def reporter(self) -> Reporter:
        return Reporter(self.session, self.principal)

    @property
    def plans(self) -> list[Plan]:
        session = self.session
        return [session.plan, session.alone] if self.is_idle else [session.plan]


class Claimed(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of the engine to a claim, and the messages for the worker."""

    verdicts: tuple[ReportVerdict, ...] = ()
    jobs: tuple[ClaimedJob, ...] = ()
    next_in_ms: int | None = None
    is_found: bool = False  # the claim leased jobs, even if none of them is handed out
    is_full: bool = False  # there may be more

    @property
    def next_due_s(self) -> float | None:
        return None if self.next_in_ms is None else self.next_in_ms / 1000


class ClientLeft(Exception):
    """The client has left before its claim was made."""


class ClaimService:
    """What the handlers of the worker protocol share. One object per instance."""

    def __init__(self, gateway: Gateway) -> None:
        app = gateway.app
        self._gateway = gateway
        self.sessions = RemoteSessions(gateway)
        self.adoption = RemoteAdoption(app)
        self.polls = LongPolls(gateway)
        known = KnownClaims(app)
        self._reports = ReportDecisions(app, known, gateway.measures)
        self._deliveries = Deliveries(app, known, self.adoption, gateway.measures)
        #: The number of the latest claim of each session that this instance has answered.
        self._answered: OrderedDict[str, int] = OrderedDict()

    async def report(
        self, reports: Sequence[JobReport], reporter: Reporter
    ) -> tuple[ReportVerdict, ...]:
        return await self._gateway.call_for_worker(self._report, reports, reporter)

    async def turn(
        self, call: ApiRequest, wanted: WantedClaim, reports: Sequence[JobReport] = ()
    ) -> Claimed:
        """Report, claim, and wait for a job."""
        if self._gateway.is_draining:
            raise Problem(
                ProblemType.DRAINING,
                "This instance is shutting down, and claims no more jobs. Send the request again, "
                "with the same nonce.",
            )
        if not wanted.wait_s or (reports and self.polls.is_full):  # a report is never refused
            claimed = await self._gateway.call_for_worker(self._turn, wanted, reports)
            self._note_answer(wanted)
            return claimed
        poll = self.polls.enter(wanted.plans)
        try:
            async with _watch_client(call, poll) as has_left:
                claimed = await self._wait(call, wanted, reports, poll, has_left)
            self._note_answer(wanted)
            return claimed
        except ClientLeft:
            return Claimed()  # is not sent any more
        finally:
            poll.leave()

    async def _wait(
        self,
        call: ApiRequest,
        wanted: WantedClaim,
        reports: Sequence[JobReport],
        poll: Poll,
        has_left: Callable[[], bool],
    ) -> Claimed:
        until = time.monotonic() + wanted.wait_s
        first = claimed = await self._gateway.call_for_worker(self._turn, wanted, reports, has_left)
        while not claimed.is_found:
            if not await poll.wait(until - time.monotonic()):
                claimed = await self._claim_at_end(call, wanted, first, poll, has_left)
                break
            claimed = await self._claim_again(call, wanted, poll, has_left)
        return msgspec.structs.replace(claimed, verdicts=first.verdicts)

    async def _claim_again(
        self, call: ApiRequest, wanted: WantedClaim, poll: Poll, has_left: Callable[[], bool]
    ) -> Claimed:
        """Claim after a wake-up. When the engine fails, the group of the poll backs off. When the
        client or its session is gone, the wake-up is for the next poll."""
        if not await call.is_admitted():
            raise Problem(ProblemType.UNAUTHENTICATED, "The access token was revoked.")
        try:
            claimed = await self._gateway.call_for_worker(self._turn, wanted, (), has_left)
        except (EngineError, Problem) as error:
            if not (isinstance(error, Problem) and error.kind is ProblemType.SESSION_GONE):
                poll.settle(ClaimResult.NOTHING)
            raise
        poll.settle(_result_of(claimed))
        return claimed

    async def _claim_at_end(
        self,
        call: ApiRequest,
        wanted: WantedClaim,
        first: Claimed,
        poll: Poll,
        has_left: Callable[[], bool],
    ) -> Claimed:
        """Claim at the end of a poll. A repeat of the request through another instance may have
        claimed jobs under the same nonce. The client does not ask for them again after an empty
        answer. A client that this instance has answered all the time sends no repeats elsewhere,
        and its polls do not claim again: most polls of idle workers end like this."""
        engine_error = self.polls.engine_error
        if engine_error is None and self._answered.get(wanted.session.id) == wanted.number - 1:
            return Claimed()
        if engine_error is None:
            return await self._claim_again(call, wanted, poll, has_left)
        if not first.verdicts:
            raise engine_error
        return Claimed()

    def _note_answer(self, wanted: WantedClaim) -> None:
        session = wanted.session.id
        self._answered[session] = max(wanted.number, self._answered.pop(session, 0))
        if len(self._answered) > MAX_ANSWERED:
            self._answered.popitem(last=False)

    # --------------------------------------------------------------- in a thread of the gateway

    def _report(
        self, reports: Sequence[JobReport], reporter: Reporter
    ) -> tuple[ReportVerdict, ...]:
        decided = self._reports.decide(reports, reporter)
        outcomes = _outcomes_of(decided)
        verdicts = self._gateway.app.engine.finish(outcomes) if outcomes else ()
        return self._reports.conclude(decided, verdicts)

    def _turn(
        self,
        wanted: WantedClaim,
        reports: Sequence[JobReport],
        has_left: Callable[[], bool] = bool,
    ) -> Claimed:
        session = wanted.session
        if has_left():
            if reports:
                self._report(reports, wanted.reporter)
            raise ClientLeft
        decided = self._reports.decide(reports, wanted.reporter) if reports else []
        if wanted.principal.sees_all:
            self.adoption.adopt_if_due(session.info.tasks)
        turn = self._ask_engine(wanted, _outcomes_of(decided))
        batch = turn.batch
        if batch.gone:
            self.sessions.lose(session.id)
            raise session_gone(session.id)
        return Claimed(
            verdicts=self._reports.conclude(decided, turn.verdicts),
            jobs=self._deliveries.deliver(batch),
            next_in_ms=batch.next_in_ms,
            is_found=bool(batch.claims),
            is_full=len(batch.claims) >= wanted.limit or batch.next_in_ms == 0,
        )

    def _ask_engine(self, wanted: WantedClaim, outcomes: Sequence[Outcome]) -> Turn:
        """Claim jobs or, for an idle worker, one job that must run alone. A claim that leased
        nothing has not used up its nonce. So both have the same one, and a repeat finds either."""
        session, engine = wanted.session, self._gateway.app.engine
        nonce = session.nonce(wanted.number)
        turn = engine.turn(session.id, outcomes, nonce, session.plan, wanted.limit)
        batch = turn.batch
        if batch.claims or batch.gone or not (batch.suspects and wanted.is_idle):
            return turn
        alone = engine.turn(session.id, (), nonce, session.alone, 1)
        return Turn(verdicts=turn.verdicts, batch=alone.batch if alone.batch.claims else batch)


def _outcomes_of(decided: Sequence[DecidedReport]) -> list[Outcome]:
    return [one.outcome for one in decided if one.outcome is not None]


def _result_of(claimed: Claimed) -> ClaimResult:
    if not claimed.is_found:
        return ClaimResult.NOTHING
    return ClaimResult.MORE if claimed.is_full else ClaimResult.SOME


@asynccontextmanager
async def _watch_client(call: ApiRequest, poll: Poll) -> AsyncIterator[Callable[[], bool]]:
    """Give a function that says whether the client has left, which also ends its poll."""
    watch = asyncio.ensure_future(call.is_gone())
    watch.add_done_callback(lambda _: poll.end())
    try:
        yield watch.done
    finally:
        watch.cancel()
