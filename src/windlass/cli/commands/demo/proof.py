"""The proof at the end of the demo: compare records of the engine with the ledger of the tasks.

The engine must account for every start in the ledger: the first one, a retry after a failure, or a
run that the kill interrupted, perhaps before it wrote its line. A job is lost if it has not ended,
or if the engine says that it succeeded and the ledger does not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from windlass.core.states import State
from windlass.engine.contract import Engine, JobRecord


class Proof(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of a demo. `problems` are the findings of `check`, and `exit_code` is the exit
    code of the worker."""

    jobs: int
    states: dict[str, int]
    lost: int
    starts: int
    retries: int
    cut_short: int
    unwritten: int  # starts in the engine that were killed before they wrote their line
    unexplained: int
    problems: tuple[str, ...]
    exit_code: int

    @property
    def holds(self) -> bool:
        return not (self.lost or self.unexplained or self.problems or self.exit_code)

    def lines(self) -> Iterator[str]:
        states = ", ".join(f"{number} {state}" for state, number in sorted(self.states.items()))
        yield f"jobs enqueued      {self.jobs}"
        yield f"final states       {states} (the dead ones are intended)"
        yield f"lost               {self.lost}"
        yield (
            f"starts             {self.starts} = {self.jobs} first ones + {self.retries} retries "
            f"after failures + {self.cut_short} again after the kill"
            + (f" - {self.unwritten} killed too early to be written" if self.unwritten else "")
            + (f" + {self.unexplained} unexplained" if self.unexplained else "")
        )
        yield f"worker's exit code {self.exit_code}"
        yield f"windlass check     {'; '.join(self.problems) or 'records and indexes agree'}"


def prove(engine: Engine, ids: Sequence[str], ledger: Path, exit_code: int) -> Proof:
    records = [record for record in engine.get(ids) if record is not None]
    lines = [line.split() for line in ledger.read_text(encoding="utf-8").splitlines()]
    started = Counter(line[0] for line in lines if line[1] == "start")
    ended = Counter(line[0] for line in lines if line[1] == "end")
    surplus = [started[record.id] - _accounted(record) for record in records]
    return Proof(
        jobs=len(ids),
        states=dict(Counter(str(record.state) for record in records)),
        lost=len(ids) - len(records) + sum(_is_lost(record, ended) for record in records),
        starts=sum(started[job_id] for job_id in ids),
        retries=sum(_retries(record) for record in records),
        cut_short=sum(_cut_short(record) for record in records),
        unwritten=-sum(number for number in surplus if number < 0),
        unexplained=sum(number for number in surplus if number > 0),
        problems=tuple(engine.check()),
        exit_code=exit_code,
    )


def _accounted(record: JobRecord) -> int:
    """Return the number of starts according to the engine."""
    return 1 + _retries(record) + _cut_short(record)


def _retries(record: JobRecord) -> int:
    return max(0, record.counters.attempt - 1)


def _is_lost(record: JobRecord, ended: Counter[str]) -> bool:
    if record.state is State.SUCCEEDED:
        return not ended[record.id]
    return not record.state.is_final


def _cut_short(record: JobRecord) -> int:
    counters = record.counters
    return counters.crashes + counters.losses + counters.interruptions
