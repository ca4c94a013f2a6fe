"""What a fetcher counts: each run whose outcome the engine accepted, once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn, cast

import pytest
from msgspec.structs import replace

from tests.worker.faulty import Faulty, lose_reply, lose_request, once
from tests.worker.fetch.rig import SLOTS, Rig
from tests.worker.yard import until
from windlass.app import Windlass
from windlass.core.history import RUN_BUCKETS, WAIT_BUCKETS, Summary, add_counts
from windlass.core.signals import Reject, Snooze
from windlass.core.states import Reason, State
from windlass.engine.contract import Buried, Engine, Outcome, Plan, Succeeded, Verdict
from windlass.errors import EngineUnavailable, PayloadTooLarge
from windlass.worker.fetch.mailbox import Mailbox
from windlass.worker.fetch.nonces import Nonces
from windlass.worker.fetch.round_trip import Releaser
from windlass.worker.ipc.channel import RunsMeasured
from windlass.worker.ipc.shared_memory import SlotTable
from windlass.worker.run import measures as measures_module
from windlass.worker.run.measures import RunMeasures
from windlass.worker.run.slot_queue import Started


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(tmp_path, is_handed_jobs=False)
    yield rig
    rig.close()


def counted(rig: Rig) -> dict[str, int]:
    """What the fetcher has sent, without outcomes that did not occur."""
    rows = [one.counts for measured in rig.measured for one in measured.measures]
    summary = Summary(add_counts(rows))
    return {name: number for name, number in summary.outcomes.items() if number}


def times(rig: Rig) -> tuple[int, int]:
    """The number of times in both histograms: of waits, and of runs."""
    rows = [one.counts for measured in rig.measured for one in measured.measures]
    counts = add_counts(rows)
    return sum(counts[WAIT_BUCKETS:RUN_BUCKETS]), sum(counts[RUN_BUCKETS:])


def stale(rig: Rig) -> dict[str, int]:
    return {verb: n for measured in rig.measured for verb, n in measured.stale.items()}


@pytest.mark.parametrize("fault", [lose_reply, lose_request])
@pytest.mark.parametrize("on", [2, 3])
def test_a_report_that_is_repeated_counts_once(
    rig: Rig, fault: Callable[[Callable[[], Any]], Any], on: int
) -> None:
    rig.faulty.faults["turn"] = once(fault, on)
    jobs = [rig.task.enqueue(number) for number in range(3 * SLOTS)]
    rig.start()
    for job in jobs:
        rig.await_state(job.id, State.SUCCEEDED)
    rig.end_fetcher()
    assert counted(rig) == {"succeeded": len(jobs)}
    assert times(rig) == (len(jobs), len(jobs))
    assert rig.fetcher.measures.ended == {}


@pytest.mark.parametrize("fault", [lose_reply, lose_request])
@pytest.mark.parametrize(
    ("error", "name"), [(RuntimeError(), "retried"), (Reject("no"), "dead"), (Snooze(9), "snoozed")]
)
def test_each_end_that_is_repeated_counts_once(
    rig: Rig, fault: Callable[[Callable[[], Any]], Any], error: BaseException, name: str
) -> None:
    def fail() -> None:
        raise error

    lost: list[int] = []

    def lose(real: Callable[[], Any], arguments: tuple[Any, ...]) -> Any:
        is_report = isinstance(arguments[0], list) or arguments[1]
        if is_report and not lost:
            lost.append(1)
            return fault(real)
        return real()

    rig.faulty.faults |= {"turn": lose, "finish": lose}
    job = rig.app.task(name="fail")(fail).enqueue()
    rig.start()
    until(lambda: lost and rig.record(job.id).state is not State.RUNNING, "the report")
    rig.end_fetcher()
    assert counted(rig) == {name: 1}
    assert times(rig) == (1, 1)


def test_a_dead_letter_of_the_supervisor_is_not_counted_by_the_child(rig: Rig) -> None:
    """The run ends in the moment in which the supervisor ends it by force: the child has no message
    about it yet, and reports a dead letter too."""

    def fail() -> NoReturn:
        rig.starts.append(1)
        rig.gate.wait(20)
        raise Reject("no")

    rig.gate.clear()
    rig.app.task(name="fail")(fail).enqueue()
    rig.start()
    until(lambda: rig.starts, "the start")
    [claim] = rig.fetcher._slot_queue.running()
    forced = Buried(id=claim.id, token=claim.token, reason=Reason.TIMED_OUT, error=b"by force")
    assert rig.engine.finish([forced]) == [Verdict.OK]
    rig.gate.set()
    rig.end_fetcher()
    assert counted(rig) == {}
    assert stale(rig) == {}
    assert rig.fetcher.measures.ended == {}


def test_each_end_of_a_run_has_its_count(rig: Rig) -> None:
    def end(how: str) -> None:
        if how == "snooze":
            raise Snooze("1h")
        raise Reject("no") if how == "reject" else RuntimeError(how)

    task = rig.app.task(name="end", queue="mail")(end)
    states = {
        "fail": State.RETRYING, "raise": State.RETRYING, "snooze": State.SCHEDULED,
        "reject": State.DEAD,
    }  # fmt: skip
    jobs = {how: task.enqueue(how) for how in states}
    done = rig.task.enqueue(1)
    task.enqueue("never").cancel()  # has no run, and so no count
    rig.start()
    rig.await_state(done.id, State.SUCCEEDED)
    for how, job in jobs.items():
        rig.await_state(job.id, states[how])
    rig.end_fetcher()
    assert counted(rig) == {"succeeded": 1, "retried": 2, "snoozed": 1, "dead": 1}
    pairs = {(one.queue, one.task) for measured in rig.measured for one in measured.measures}
    assert pairs == {("default", "note"), ("mail", "end")}


def test_a_job_that_is_dead_without_a_run_has_no_times(rig: Rig) -> None:
    rig.task.enqueue(1)
    rig.faulty.faults["turn"] = _spoil_payloads
    rig.start()
    until(lambda: rig.engine.stats().totals.get("dead", 0) == 1, "the dead letter")
    rig.faulty.faults.clear()
    rig.end_fetcher()
    assert counted(rig) == {"dead": 1}
    assert times(rig) == (0, 0)


def _spoil_payloads(real: Callable[[], Any], arguments: tuple[Any, ...]) -> Any:
    turn = real()
    claims = tuple(replace(claim, payload=b"\xff") for claim in turn.batch.claims)
    return replace(turn, batch=replace(turn.batch, claims=claims))


def test_a_stale_outcome_counts_apart(rig: Rig) -> None:
    rig.gate.clear()
    job = rig.task.enqueue(1)
    fetcher = rig.start()
    until(lambda: rig.starts, "the start")
    rig.engine.lose(fetcher.session, "a test")
    rig.gate.set()
    until(lambda: rig.engine.stats().totals.get("stale", 0) == 1, "the rejection")
    rig.await_state(job.id, State.SUCCEEDED)  # by its second run
    rig.end_fetcher()
    assert counted(rig) == {"succeeded": 1}
    assert stale(rig) == {"succeed": 1}
    assert rig.fetcher.measures.ended == {}


def test_runs_that_are_handed_back_count_as_released(rig: Rig) -> None:
    rig.gate.clear()
    jobs = [rig.task.enqueue(number) for number in range(2)]
    rig.start()
    until(lambda: len(rig.starts) == 2, "both starts")
    rig.fetcher.hand_back()
    assert rig.ended.wait(10)
    assert counted(rig) == {"released": 2}
    assert times(rig) == (2, 2)
    assert {rig.record(job.id).state for job in jobs} == {State.READY}
    rig.table.nonces.clear_all()  # as the end of the process does


def test_a_run_that_the_supervisor_ended_is_not_counted_by_its_child(rig: Rig) -> None:
    rig.gate.clear()
    rig.task.enqueue(1)
    rig.start()
    until(lambda: rig.starts, "the start")
    [claim] = rig.fetcher._slot_queue.running()
    rig.fetcher.disown(claim.id, claim.token)
    until(lambda: rig.fetcher._disowned, "the message")
    rig.gate.set()
    until(lambda: not rig.fetcher._slot_queue.running(), "the end of the run")
    until(lambda: not rig.fetcher.measures.ended, "the fetcher to drop the outcome")
    assert counted(rig) == {}
    rig.engine.close(rig.sessions[-1], (), "a test")
    rig.table.nonces.clear_all()


def test_a_result_that_the_engine_cannot_store_counts_as_dead(rig: Rig) -> None:
    def refuse(real: Callable[[], Any], arguments: tuple[Any, ...]) -> Any:
        outcomes = arguments[1] if isinstance(arguments[0], str) else arguments[0]
        if any(getattr(outcome, "result", None) == b"7" for outcome in outcomes):
            raise PayloadTooLarge("too large")
        return real()

    rig.faulty.faults |= {"turn": refuse, "finish": refuse}
    rig.task.enqueue(7)
    done = rig.task.enqueue(1)
    rig.start()
    rig.await_state(done.id, State.SUCCEEDED)
    until(lambda: rig.engine.stats().totals.get("dead", 0) == 1, "the dead letter")
    rig.end_fetcher()
    assert counted(rig) == {"succeeded": 1, "dead": 1}


def double(number: int) -> int:
    return 2 * number


def test_a_result_that_is_refused_twice_counts_once(tmp_path: Path) -> None:
    """The engine is lost after it has stored the dead letter that replaces the result."""
    singles: list[int] = []

    def refuse(real: Callable[[], Any], arguments: tuple[Any, ...]) -> Any:
        outcomes = arguments[1] if isinstance(arguments[0], str) else arguments[0]
        if any(getattr(outcome, "result", None) == b"7" for outcome in outcomes):
            raise PayloadTooLarge("too large")
        if len(outcomes) == 1 and isinstance(outcomes[0], Succeeded):
            singles.append(1)
            if len(singles) == 1:
                raise EngineUnavailable("lost in the middle")
        return real()

    app = Windlass(f"sqlite:///{tmp_path / 'jobs.db'}")
    task = app.task(name="note")(double)
    faulty, sent = Faulty(app.engine), list[RunsMeasured]()
    faulty.faults["finish"] = refuse
    measures = RunMeasures(sent.append)
    releaser = Releaser(cast(Engine, faulty), Nonces(SlotTable.create(SLOTS)), Mailbox(), measures)
    jobs = [task.enqueue(number) for number in (7, 1)]
    claims = app.engine.turn("session", (), "1", Plan(), 2).batch.claims
    outcomes: list[Outcome] = []
    for job, claim, result in zip(jobs, claims, (b"7", b"1"), strict=True):
        assert job.id == claim.id
        outcomes.append(Succeeded(id=claim.id, token=claim.token, result=result))
        started = Started(0, claim, task, 0.0, 0, 0.0)
        measures.ended[id(outcomes[-1])] = (started, 1.0)
    with pytest.raises(EngineUnavailable):
        releaser.report_each(outcomes)
    releaser.settle(*releaser.report_each(outcomes))
    measures.send()
    summary = Summary(add_counts([one.counts for measured in sent for one in measured.measures]))
    assert (summary.outcomes["succeeded"], summary.outcomes["dead"], summary.runs) == (1, 1, 2)
    assert measures.ended == {}


def test_an_unexpected_error_counts_what_it_reports(rig: Rig) -> None:
    def fail(real: Callable[[], Any]) -> NoReturn:
        raise RuntimeError("a bug")

    rig.faulty.faults["turn"] = once(fail, on=2)
    job = rig.task.enqueue(1)
    rig.start()
    rig.await_state(job.id, State.SUCCEEDED)
    rig.end_fetcher()
    assert counted(rig) == {"succeeded": 1}


def test_a_child_sends_its_measures_while_it_runs(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measures_module, "SEND_S", 0.01)
    rig.start()
    rig.task.enqueue(1)
    until(lambda: counted(rig) == {"succeeded": 1}, "the first message")
    rig.task.enqueue(2)
    until(lambda: counted(rig) == {"succeeded": 2}, "the second message")
