"""Hearing of a job while the pump rests, by whoever can run it.

The claim that waits is asked for by a thread that has no job, if there is one: what it hears of it
puts in line, and runs it without waking anybody. The pump waits for the end of that, and only then
goes on: so what both of them touch is touched by one at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from logging import getLogger
from threading import get_ident
from time import monotonic

from windlass.engine.contract import Batch, Claim
from windlass.errors import EngineError
from windlass.worker.awaiting import Awaiting
from windlass.worker.calls import Call
from windlass.worker.errands import Failed
from windlass.worker.inbox import Inbox
from windlass.worker.lease import Lease
from windlass.worker.line import Line

log = getLogger("windlass.worker")

#: After somebody was interrupted who waited in the pump's place, it waits by itself for so long.
ASKS_ITSELF_S = 1.0


class Listening:
    """Used by the pump, or in its place."""

    def __init__(
        self,
        awaiting: Awaiting,
        line: Line,
        lease: Lease,
        inbox: Inbox,
        put_in_line: Callable[[Call, Sequence[Claim]], None],
        note_away: Callable[[EngineError], None],
    ) -> None:
        self._awaiting = awaiting
        self._line = line
        self._lease = lease
        self._inbox = inbox
        self._put_in_line = put_in_line
        self._note_away = note_away
        self._asks_itself_until = 0.0
        self.acts_in: int | None = None  # the thread that does something in the pump's place
        self.heard: Batch | None = None  # what the claim got
        self.is_begun = False  # and whether that is in line

    def begin(self, call: Call, seconds: float) -> None:
        """Let a claim wait, of which nothing is heard yet, whatever became of the one before."""
        self.heard = None
        self._awaiting.begin(call, seconds)

    def listen(self, timeout_s: float) -> None:
        self.is_begun = False
        if monotonic() < self._asks_itself_until:
            self._ask(timeout_s)
            return
        offered = self._line.offered
        try:
            self._line.have_done(lambda: self._ask(timeout_s))
        except Failed as failed:
            # The code of an earlier job may have sent this into the thread. If it is an error of
            # asking, it comes again when the pump asks by itself, which it does for a while; if it
            # is one of what was heard, the claim is repeated, and gives the same in another way.
            log.debug("a thread for jobs was interrupted while it waited: %r", failed.__cause__)
            self._asks_itself_until = monotonic() + ASKS_ITSELF_S
            self.is_begun = self._line.offered > offered
            if self.heard is None:
                self._awaiting.cut_short()
        finally:
            self.acts_in = None

    def _ask(self, timeout_s: float) -> None:
        """Put in line what the claim that waits gets, as soon as it does. Until then it waits, as
        far as anybody knows: so it is not forgotten if this is interrupted."""
        self.acts_in, call = get_ident(), self._awaiting.call
        try:
            batch = self._awaiting.ask(timeout_s)
        except EngineError as error:  # then it is repeated at once
            self._note_away(error)
            return
        self.heard = batch
        # What was said meanwhile finds a claim that has not started: the pump heeds it first.
        if batch is not None and batch.claims and not (batch.gone or self._inbox.commands):
            self._lease.confirm(self._awaiting.began_at)
            self._inbox.hush()
            self._put_in_line(call, batch.claims)
            self.is_begun = True
