"""What a child measures of its runs: how they ended, how long their jobs waited and ran.

1. A runner notes each run that ends in `ended`, before it reports the outcome.
2. The fetcher settles outcomes when the engine has answered. A run counts only when the engine has
   accepted its outcome, so that no retry of a report and no reassigned job counts twice. A repeated
   outcome counts too: no other process reports the runs of this child, except for ends by force
   (`is_stored`). Rejected outcomes are counted apart.
3. The fetcher sends the growth to the supervisor every few seconds, and at the end of the child. A
   child that is killed loses only the growth that it has not sent.

The fetcher settles a batch at once: that costs half as much as run by run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from time import monotonic
from typing import Any, Final, TypeAlias

from windlass.core.history import OUTCOMES, Tally
from windlass.core.queues.labels import queue_of
from windlass.core.states import Event
from windlass.engine.contract import (
    Buried,
    JobRecord,
    Measure,
    Outcome,
    Progressed,
    Released,
    Retried,
    Snoozed,
    Succeeded,
    Unroutable,
    Verdict,
)
from windlass.task import Task
from windlass.worker.ipc.channel import RunsMeasured
from windlass.worker.run.slot_queue import Started

#: How often a child sends its measures, in seconds.
SEND_S: Final = 2.0
#: The most measures in one message.
MOST_SENT: Final = 100

#: The positions of outcomes in a measure. An outcome without a position is not the end of a run.
POSITIONS: Final[dict[type[Outcome], int]] = {
    Succeeded: OUTCOMES.index("succeeded"),
    Retried: OUTCOMES.index("retried"),
    Buried: OUTCOMES.index("dead"),
    Snoozed: OUTCOMES.index("snoozed"),
    Released: OUTCOMES.index("released"),
}
#: The names of rejected outcomes.
VERBS: Final[dict[type[Outcome], str]] = {
    Succeeded: Event.SUCCEED,
    Retried: Event.RETRY,
    Buried: Event.BURY,
    Snoozed: Event.SNOOZE,
    Released: Event.RELEASE,
    Unroutable: Event.UNROUTABLE,
    Progressed: Event.PROGRESS,
}

#: A run that has ended, and when it ended, by the monotonic clock.
Ended: TypeAlias = tuple[Started, float]
#: The times of runs that ended in the same way: how long their jobs waited, and ran.
Times: TypeAlias = tuple[list[float], list[float]]


class RunMeasures:
    """The measures of one child since the last message. `send` sends a message to the supervisor.
    Runners write `ended`; everything else is used by the fetcher only."""

    def __init__(self, send: Callable[[RunsMeasured], None]) -> None:
        #: Runs with an outcome that is not settled, by the `id` of the outcome. The outcome exists
        #: as long as its entry. Writing an item of a dict is atomic.
        self.ended: dict[int, Ended] = {}
        self._send = send
        self._tallies: dict[tuple[str, str], Tally] = {}
        self._stale: dict[str, int] = {}
        self._due = monotonic() + SEND_S

    # -------------------------------------------------------------------------------- settling

    def settle(self, outcomes: Sequence[Outcome], verdicts: Sequence[Verdict]) -> None:
        """Count outcomes with these verdicts of the engine."""
        if verdicts.count(Verdict.OK) < len(verdicts):
            self._count_stale(outcomes, verdicts)
        groups: dict[tuple[str, str, type[Outcome]], Times] = {}
        task: Task[..., Any] | None = None
        line = ""
        kind: type[Outcome] = Outcome
        waits_s: list[float] = []
        runs_s: list[float] = []
        for outcome, ended in zip(outcomes, self._take_ended(outcomes), strict=True):
            if ended is None:
                continue
            started, ended_at = ended
            claim, since = started.claim, started.since
            # Most runs are of the same group as the one before: that is cheaper than a lookup.
            if started.task is not task or claim.queue != line or type(outcome) is not kind:
                task, line, kind = started.task, claim.queue, type(outcome)
                waits_s, runs_s = groups.setdefault((line, claim.task, kind), ([], []))
            if kind is Buried and _has_no_run(outcome):
                self._tally_of(claim.queue, claim.task).add(POSITIONS[Buried], None, None)
                continue
            waits_s.append(claim.waited_ms / 1000 + since - started.queued_at)
            runs_s.append(ended_at - since)
        for (line, name, kind), times_s in groups.items():
            if kind in POSITIONS and times_s[0]:
                self._tally_of(line, name).add_runs(POSITIONS[kind], *times_s)

    def _take_ended(self, outcomes: Iterable[Outcome]) -> Iterable[Ended | None]:
        """Remove the runs of outcomes, and return them, None for an outcome without a run."""
        return map(self.ended.pop, map(id, outcomes), repeat(None))

    def forget(self, outcomes: Iterable[Outcome]) -> None:
        """Count nothing for outcomes that are not reported."""
        for outcome in outcomes:
            self.ended.pop(id(outcome), None)

    def replace(self, outcome: Outcome, by: Outcome) -> None:
        """Let the run of an outcome that the engine cannot store end with another one."""
        ended = self.ended.pop(id(outcome), None)
        if ended is not None:
            self.ended[id(by)] = ended

    def _count_stale(self, outcomes: Sequence[Outcome], verdicts: Sequence[Verdict]) -> None:
        """Count rejected outcomes, and forget their runs."""
        for outcome, verdict in zip(outcomes, verdicts, strict=True):
            if verdict is Verdict.STALE:
                self.ended.pop(id(outcome), None)
                verb = VERBS[type(outcome)]
                self._stale[verb] = self._stale.get(verb, 0) + 1

    def _tally_of(self, line: str, task: str) -> Tally:
        key = (queue_of(line), task)
        tally = self._tallies.get(key)
        if tally is None:
            tally = self._tallies[key] = Tally()
        return tally

    # --------------------------------------------------------------------------------- sending

    def send_if_due(self) -> None:
        if (self._tallies or self._stale) and monotonic() >= self._due:
            self.send()

    def send(self) -> None:
        """Send the growth since the last message, if there is any."""
        tallies, self._tallies = self._tallies, {}
        stale, self._stale = self._stale, {}
        self._due = monotonic() + SEND_S
        measures = tuple(
            Measure(queue=queue, task=task, counts=tuple(tally.counts))
            for (queue, task), tally in tallies.items()
        )
        for at in range(0, len(measures), MOST_SENT):
            self._send(RunsMeasured(measures[at : at + MOST_SENT]))
        if stale:
            self._send(RunsMeasured(stale=stale))


def is_stored(outcome: Outcome, record: JobRecord | None) -> bool:
    """Whether a job stores the error of this failed attempt. For a repeated outcome, this tells
    whether the child or the supervisor has ended the run: their errors differ."""
    if record is None or not isinstance(outcome, Retried | Buried):
        return False
    event = VERBS[type(outcome)]
    errors = [failure.error for failure in record.failures if failure.event == event]
    return errors[-1:] == [outcome.error]


def _has_no_run(outcome: Outcome) -> bool:
    return isinstance(outcome, Buried) and not outcome.started
