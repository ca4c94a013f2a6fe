"""The fetcher against an engine whose calls fail, take effect and fail, or refuse one outcome.

The engine is a real one, on a file, with faults put in front of it; so are the runners.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from threading import Event
from time import monotonic
from typing import Any, NoReturn

import pytest

from tests.worker.faulty import lose_reply, lose_request, once
from tests.worker.fetch.rig import SLOTS, Rig
from tests.worker.yard import until
from windlass.core.failures import FailureText
from windlass.core.states import Counters, Reason, State
from windlass.engine.contract import BATCH_BYTES, Outcome, Plan, Retried, Succeeded, Verdict
from windlass.errors import EngineError, EngineUnavailable, PayloadTooLarge
from windlass.job import Job
from windlass.testing.contract.world import claim_jobs
from windlass.worker.fetch import fetcher as fetcher_module
from windlass.worker.fetch.mailbox import Mailbox
from windlass.worker.fetch.nonces import Nonces
from windlass.worker.run.slot_queue import SAMPLE, Lease, SlotQueue


@pytest.fixture(params=[False, True], ids=["claims", "may be handed jobs"])
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(tmp_path, is_handed_jobs=request.param)
    yield rig
    rig.close()


@pytest.mark.parametrize("fault", [lose_reply, lose_request])
@pytest.mark.parametrize("on", [1, 2])
def test_a_call_whose_reply_is_unknown_is_repeated_and_everything_runs_once(
    rig: Rig, fault: Callable[[Callable[[], Any]], Any], on: int
) -> None:
    rig.faulty.faults["turn"] = once(fault, on)
    jobs = [rig.task.enqueue(number) for number in range(12)]
    rig.start()
    for job in jobs:
        counters = rig.await_state(job.id, State.SUCCEEDED).counters
        assert (counters.attempt, counters.starts) == (1, 1)
    assert sorted(rig.starts) == list(range(12))
    assert rig.engine.stats().totals.get("stale", 0) == 0
    assert rig.sessions == ["session-0"]
    # The one that failed was followed by a sign of life before it was repeated.
    failed_at = [n for n, name in enumerate(rig.faulty.calls) if name == "turn"][on - 1]
    assert rig.faulty.calls[failed_at + 1 : failed_at + 3] == ["beat", "turn"]


def test_the_lease_counts_from_the_first_try(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The repeat finds what that has claimed, and need not have renewed anything."""
    sent_at: list[float] = []
    confirmed: list[float] = []

    def lose_slowly(real: Callable[[], Any]) -> NoReturn:
        real()
        sent_at.append(monotonic())
        raise EngineUnavailable("the reply was lost")

    rig.faulty.faults["turn"] = once(lose_slowly)
    monkeypatch.setattr(Lease, "confirm", lambda _lease, moment: confirmed.append(moment))
    job = rig.task.enqueue(1)
    rig.start()
    until(lambda: confirmed, "a claim")
    assert confirmed[0] < sent_at[0]
    rig.table.confirm_beat(monotonic())  # nothing else says that the session lives
    rig.await_state(job.id, State.SUCCEEDED)


def test_nothing_is_claimed_without_a_nonce_to_spare(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass.worker.fetch.fetcher.REST_S", 0.1)
    monkeypatch.setattr(Nonces, "left", lambda _nonces: 0)
    job = rig.task.enqueue(1)
    rig.start()
    rounds = rig.fetcher.rounds
    until(lambda: rig.fetcher.rounds > rounds + 1, "the fetcher to go round")
    assert rig.record(job.id).state is State.READY
    monkeypatch.undo()
    rig.await_state(job.id, State.SUCCEEDED)


def test_outcomes_are_kept_while_the_engine_is_away(rig: Rig) -> None:
    rig.gate.clear()
    job = rig.task.enqueue(1)
    rig.start()
    until(lambda: rig.starts == [1], "the start")
    away = Event()
    away.set()

    def fail_while_away(real: Callable[[], Any], arguments: tuple[Any, ...]) -> Any:
        return lose_request(real) if away.is_set() else real()

    for verb in ("turn", "finish", "beat", "wait"):
        rig.faulty.faults[verb] = fail_while_away
    rig.gate.set()
    tried = len(rig.faulty.calls)
    until(lambda: len(rig.faulty.calls) > tried + 3, "some tries")
    assert rig.record(job.id).state is State.RUNNING
    away.clear()
    rig.await_state(job.id, State.SUCCEEDED)
    assert rig.starts == [1]


def test_a_drain_gives_back_what_an_unknown_reply_may_have_claimed(rig: Rig) -> None:
    in_hand = Event()

    def keep_losing(real: Callable[[], Any], arguments: tuple[Any, ...]) -> NoReturn:
        real()
        in_hand.set()
        raise EngineUnavailable("the reply was lost")

    rig.faulty.faults["turn"] = keep_losing
    job = rig.task.enqueue(1)
    fetcher = rig.start()
    assert in_hand.wait(20)
    assert rig.record(job.id).state is State.RUNNING
    fetcher.drain()
    assert rig.ended.wait(20)
    record = rig.record(job.id)
    assert (record.state, record.counters.attempt, record.counters.starts) == (State.READY, 0, 0)
    assert rig.starts == []


def test_a_hand_back_while_the_engine_is_away_does_not_hang(rig: Rig) -> None:
    rig.gate.clear()
    rig.task.enqueue(1)
    fetcher = rig.start()
    until(lambda: rig.starts == [1], "the start")
    for verb in ("turn", "finish", "wait", "beat"):
        rig.faulty.faults[verb] = lambda real, arguments: lose_request(real)
    rig.gate.set()
    until(lambda: rig.faulty.calls[-1:] == ["beat"], "the fetcher in trouble")
    fetcher.hand_back()
    assert rig.ended.wait(5)
    rig.thread.join(5)
    # The supervisor closes the session of a process that has ended.
    rig.engine.close(rig.sessions[-1], (), "handed back")
    rig.table.nonces.clear_all()


def test_a_drain_while_the_engine_is_away_waits_for_nothing_when_nothing_is_in_hand(
    rig: Rig,
) -> None:
    for verb in ("turn", "wait", "beat", "release"):
        rig.faulty.faults[verb] = lambda real, arguments: lose_request(real)
    fetcher = rig.start()
    until(lambda: "turn" in rig.faulty.calls, "the fetcher in trouble")
    fetcher.drain()
    assert rig.ended.wait(5)
    rig.table.nonces.clear_all()


def test_a_drain_while_the_engine_is_away_waits_for_what_runs(rig: Rig) -> None:
    rig.gate.clear()
    job = rig.task.enqueue(1)
    fetcher = rig.start()
    until(lambda: rig.starts == [1], "the start")
    for verb in ("turn", "finish", "wait", "beat"):
        rig.faulty.faults[verb] = lambda real, arguments: lose_request(real)
    fetcher.drain()
    rig.gate.set()
    until(lambda: rig.faulty.calls[-1:] == ["beat"], "the fetcher in trouble")
    assert not rig.ended.is_set()
    rig.faulty.faults.clear()
    assert rig.ended.wait(20)
    assert rig.record(job.id).state is State.SUCCEEDED


def test_an_outcome_that_the_engine_chokes_on_does_not_hold_up_the_others(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    jobs = [rig.task.enqueue(number) for number in range(SLOTS)]

    def choke(real: Callable[[], Any], arguments: tuple[Any, ...]) -> Any:
        outcomes: list[Outcome] = next(part for part in arguments if isinstance(part, list))
        if any(isinstance(one, Succeeded) and one.id == jobs[0].id for one in outcomes):
            raise RuntimeError("an unexpected error")
        return real()

    rig.faulty.faults = {"turn": choke, "finish": choke}
    with caplog.at_level(logging.ERROR):
        rig.start()
        for job in jobs[1:]:
            rig.await_state(job.id, State.SUCCEEDED)
        assert rig.task.enqueue(99).result(timeout=20) == 99
    assert f"cannot report the result of job {jobs[0].id}" in caplog.text
    # It is not known to its child any more; the next beat that says so gives it back.
    rig.faulty.faults.clear()
    rig.engine.close(rig.sessions[0], (), "the end of the test")


def test_claims_that_cannot_be_given_back_are_told_of_without_their_token(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    nonces: list[str] = []

    def choke(real: Callable[[], Any], arguments: tuple[Any, ...]) -> NoReturn:
        nonces.append(arguments[-1] if len(arguments) == 2 else arguments[2])
        raise ValueError("a bug")

    rig.faulty.faults |= {"turn": choke, "release": choke}
    rig.start()
    until(lambda: "could not release claims" in caplog.text, "the news")
    rig.faulty.faults.clear()
    assert f"could not release claims of session {rig.sessions[0]}" in caplog.text
    assert all(nonce not in caplog.text for nonce in nonces)


def test_outcomes_survive_an_error_before_their_call(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.gate.clear()
    jobs = [rig.task.enqueue(number) for number in range(SLOTS)]
    rig.start()
    until(lambda: len(rig.starts) == SLOTS, "full slots: the next claim comes with an outcome")
    real, calls = Nonces.announce, iter(range(100))

    def fail_first(nonces: Nonces) -> str:
        if next(calls) == 0:
            raise IndexError("no place is left")
        return real(nonces)

    monkeypatch.setattr(Nonces, "announce", fail_first)
    rig.gate.set()
    for job in jobs:
        rig.await_state(job.id, State.SUCCEEDED)
    assert next(calls) > 0


def test_a_nudge_that_fails_holds_up_nobody(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    nudges: list[None] = []

    def fail() -> NoReturn:
        nudges.append(None)
        raise OSError("something closed the descriptor")

    monkeypatch.setattr("windlass.worker.fetch.fetcher.REST_S", 0.1)
    fetcher = rig.start()
    monkeypatch.setattr(fetcher._idle_wait, "nudge", fail)
    until(lambda: rig.rests, "a rest")
    rig.gate.clear()
    job = rig.task.enqueue(1)
    until(lambda: rig.starts == [1], "the start")
    rounds = fetcher.rounds
    until(lambda: fetcher.rounds > rounds, "a rest while it runs")
    rig.gate.set()
    assert job.result(timeout=20) == 1
    fetcher.drain()
    assert rig.ended.wait(20)
    assert nudges


def test_a_dead_session_is_left_and_its_outcomes_are_refused(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    rig.gate.clear()
    job = rig.task.enqueue(1)
    fetcher = rig.start()
    until(lambda: rig.starts == [1], "the start")
    with caplog.at_level(logging.WARNING):
        rig.engine.close(rig.sessions[0], (), "a test")
        fetcher.lose_session(rig.sessions[0])
        until(lambda: len(rig.sessions) == 2, "another session")
        until(lambda: rig.starts == [1, 1], "the same job under it")
        rig.gate.set()
        record = rig.await_state(job.id, State.SUCCEEDED)
        until(lambda: "rejected 1 stale result, the jobs" in caplog.text, "the refusal")
    assert (record.counters.starts, record.counters.interruptions) == (2, 1)
    assert rig.engine.stats().totals["stale"] == 1


def test_a_claim_under_a_dead_session_finds_out_by_itself(rig: Rig) -> None:
    rig.gate.clear()
    rig.task.enqueue(1)
    rig.start()
    until(lambda: rig.starts == [1], "the start")
    rig.engine.close(rig.sessions[0], (), "a test")
    rig.gate.set()
    assert rig.task.enqueue(2).result(timeout=20) == 2
    assert len(rig.sessions) == 2


def test_suspects_are_told_of_and_left_to_a_child_of_their_own(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetcher_module, "SOLO_IDLE_S", 0.3)
    jobs = [rig.task.enqueue(number) for number in range(2)]
    claim_jobs(rig.engine, "crashed", "nonce", Plan(), 2)
    rig.engine.close("crashed", [job.id for job in jobs], "signal 11 (SIGSEGV)")
    rig.start()
    assert rig.saw_suspects.wait(20)
    assert rig.starts == []
    rig.end_fetcher()
    rig.start(Plan(suspects=True))
    assert rig.ended.wait(20)  # by itself, for want of more
    assert sorted(rig.starts) == [0, 1]
    assert {rig.record(job.id).state for job in jobs} == {State.SUCCEEDED}


def test_claims_that_arrive_after_the_end_of_their_session_are_not_started(rig: Rig) -> None:
    def end_session_meanwhile(real: Callable[[], Any]) -> Any:
        turn = real()
        rig.engine.close(rig.sessions[0], (), "a test")
        rig.fetcher.lose_session(rig.sessions[0])
        return turn

    rig.faulty.faults["turn"] = once(end_session_meanwhile)
    job = rig.task.enqueue(1)
    rig.start()
    rig.await_state(job.id, State.SUCCEEDED)
    assert rig.starts == [1]
    assert rig.engine.stats().totals.get("stale", 0) == 0


def test_a_drain_releases_at_once_what_was_claimed_ahead(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetcher_module, "MAX_QUEUED_S", 60)
    for _ in range(SAMPLE):
        rig.prefetch.record(0.0001)
    rig.gate.clear()
    jobs = [rig.task.enqueue(number) for number in range(12)]
    fetcher = rig.start()
    until(lambda: len(rig.starts) == SLOTS, "full slots")
    fetcher.drain()
    until(lambda: _count(rig, jobs, State.READY) == 12 - SLOTS, "the others given back")
    rig.gate.set()
    assert rig.ended.wait(20)
    assert _count(rig, jobs, State.SUCCEEDED) == len(rig.starts) == SLOTS
    assert rig.record(jobs[-1].id).counters.starts == 0


def test_a_round_trip_is_bounded_and_a_hand_back_is_not(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetcher_module, "MAX_TURN", 3)
    monkeypatch.setattr(fetcher_module, "MAX_QUEUED_S", 60)
    monkeypatch.setattr(
        SlotQueue, "longest_running_s", lambda self: 0.0
    )  # however slow the machine is
    for _ in range(SAMPLE):
        rig.prefetch.record(0.0001)
    sizes: list[tuple[int, int]] = []

    def note(real: Callable[[], Any], arguments: tuple[Any, ...]) -> Any:
        sizes.append((len(arguments[1]), arguments[4]))
        return real()

    rig.faulty.faults["turn"] = note
    rig.gate.clear()
    jobs = [rig.task.enqueue(number) for number in range(10)]
    fetcher = rig.start()
    until(lambda: _count(rig, jobs, State.RUNNING) == 10, "all in hand")
    for verb in ("turn", "finish", "wait", "beat"):
        rig.faulty.faults[verb] = lambda real, arguments: lose_request(real)
    rig.gate.set()
    until(
        lambda: len(rig.starts) == 10 and not fetcher._slot_queue.in_hand(),
        "all done, none reported",
    )
    del rig.faulty.faults["finish"]
    fetcher.hand_back()
    assert rig.ended.wait(5)
    assert _count(rig, jobs, State.SUCCEEDED) == 10
    assert max(most for _, most in sizes) == 3
    assert max(number for number, _ in sizes) <= 3
    rig.engine.close(rig.sessions[-1], (), "handed back")
    rig.table.nonces.clear_all()


def _count(rig: Rig, jobs: Sequence[Job[int]], state: State) -> int:
    return [rig.record(job.id).state for job in jobs].count(state)


# ------------------------------------------------------------------- jobs that others have ended


def test_a_fetcher_ends_without_a_run_whose_job_was_taken_from_it(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    rig.gate.clear()
    stuck, other = rig.task.enqueue(1), rig.task.enqueue(2)
    fetcher = rig.start()
    until(lambda: len(rig.starts) == 2, "both starts")
    token = rig.table.nonces.read()[0]
    fetcher.disown(stuck.id, token)
    fetcher.disown("unknown", token)  # and what it does not run does no harm
    fetcher.drain()
    assert not rig.ended.wait(0.3)  # the other one runs
    [held] = rig.table.nonces.read()
    assert held == token
    with caplog.at_level(logging.WARNING):
        rig.gate.set()
        rig.await_state(other.id, State.SUCCEEDED)
        assert rig.ended.wait(20)
    assert "stale" not in caplog.text
    assert rig.record(stuck.id).state is State.RUNNING  # until its process is gone
    assert rig.table.nonces.read() == [token]  # or a beat would give it back
    outcome = Retried(id=stuck.id, token=token, delay_ms=60_000, error=b"")
    assert rig.engine.finish([outcome]) == [Verdict.OK]
    rig.table.nonces.clear_all()


def test_a_hand_back_gives_back_what_arrives_with_it(rig: Rig) -> None:
    """The claim never started, so its job is not charged."""
    job = rig.task.enqueue(1)

    def hand_back_meanwhile(real: Callable[[], Any], arguments: tuple[Any, ...]) -> Any:
        turn = real()
        rig.fetcher.hand_back()
        return turn

    rig.faulty.faults["turn"] = hand_back_meanwhile
    rig.start()
    assert rig.ended.wait(20)
    record = rig.record(job.id)
    assert (record.state, record.counters) == (State.READY, Counters())
    assert rig.starts == []
    rig.table.nonces.clear_all()  # as the end of the process does


def test_a_hand_back_leaves_out_what_was_taken(rig: Rig) -> None:
    rig.gate.clear()
    stuck, other = rig.task.enqueue(1), rig.task.enqueue(2)
    fetcher = rig.start()
    until(lambda: len(rig.starts) == 2, "both starts")
    token = rig.table.nonces.read()[0]
    rig.engine.finish([Retried(id=stuck.id, token=token, delay_ms=60_000, error=b"")])
    fetcher.disown(stuck.id, token)
    fetcher.hand_back()
    assert rig.ended.wait(20)
    assert rig.record(other.id).state is State.READY
    assert rig.record(stuck.id).state is State.RETRYING
    assert rig.engine.stats().totals.get("stale", 0) == 0
    rig.table.nonces.clear_all()  # as the end of the process does


def test_a_cancelled_job_that_waits_in_line_is_given_back(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetcher_module, "MAX_QUEUED_S", 60)
    for _ in range(SAMPLE):
        rig.prefetch.record(0.0001)
    rig.gate.clear()
    jobs = [rig.task.enqueue(number) for number in range(SLOTS + 2)]
    fetcher = rig.start()
    until(lambda: _count(rig, jobs, State.RUNNING) == SLOTS + 2, "all of them claimed")
    assert jobs[-1].cancel()
    fetcher.cancel([jobs[-1].id])
    record = rig.await_state(jobs[-1].id, State.CANCELLED)
    assert record.counters.starts == 0


def test_jobs_that_run_alone_are_sent_away_and_told_of_at_once(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetcher_module, "SUSPECTS_S", 60)
    alone = rig.app.task(name="alone", run_in="process")(_alone)
    rig.start()
    alone.enqueue()
    assert rig.saw_suspects.wait(20)
    rig.saw_suspects.clear()
    job = alone.enqueue()
    assert rig.saw_suspects.wait(20)
    record = rig.record(job.id)
    assert (record.state, record.suspect, record.counters.starts) == (State.READY, True, 0)
    rig.end_fetcher()
    rig.start(Plan(suspects=True))
    assert rig.await_state(job.id, State.SUCCEEDED).counters.starts == 1


def _alone() -> None: ...


def test_a_result_that_the_engine_never_stores_ends_its_job_alone(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    """Also when the engine is away in the middle of it."""
    rig.gate.clear()
    jobs = [rig.task.enqueue(number) for number in range(3)]

    def choke(real: Callable[[], Any], arguments: tuple[Any, ...]) -> Any:
        outcomes: list[Outcome] = next(part for part in arguments if isinstance(part, list))
        if any(isinstance(one, Succeeded) and one.id == jobs[2].id for one in outcomes):
            raise PayloadTooLarge("so large a value is never stored")
        return real()

    def choke_once_away(real: Callable[[], Any], arguments: tuple[Any, ...]) -> Any:
        choke(lambda: None, arguments)
        rig.faulty.faults["finish"] = choke
        return lose_reply(real)

    rig.start()
    until(lambda: len(rig.starts) == 3, "all running")
    rig.faulty.faults |= {"turn": choke, "finish": choke_once_away}
    rig.gate.set()
    record = rig.await_state(jobs[2].id, State.DEAD)
    assert record.reason is Reason.BAD_RESULT
    (failure,) = record.failures
    assert FailureText.unpack(failure.error).name == "PayloadTooLarge"
    assert record.fingerprint == FailureText.unpack(failure.error).fingerprint
    for job in jobs[:2]:
        rig.await_state(job.id, State.SUCCEEDED)
    told = f"the result of job {jobs[2].id} is too large for the engine"
    until(lambda: told in caplog.text, "a word about it")


def test_a_refusal_is_not_called_an_outage(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    def refuse(_real: Callable[[], Any]) -> NoReturn:
        raise EngineError("the rights of this user do not suffice")

    rig.faulty.faults["turn"] = once(refuse)
    job = rig.task.enqueue(1)
    rig.start()
    rig.await_state(job.id, State.SUCCEEDED)
    assert "engine refused a call, retrying: the rights" in caplog.text
    assert "lost connection to engine" not in caplog.text


def test_a_round_trip_takes_a_bounded_number_of_bytes() -> None:
    mailbox = Mailbox()
    for number in range(10):
        mailbox.report(succeeded(number, BATCH_BYTES // 4))
    mailbox.report(succeeded(10, 3 * BATCH_BYTES))
    mailbox.report(succeeded(11, 1))
    taken = []
    while outcomes := mailbox.collect(400):
        taken.append(len(outcomes))
    assert taken == [4, 4, 2, 1, 1]


def succeeded(number: int, size: int) -> Succeeded:
    result = b"x" * size
    return Succeeded(id=f"job-{number}", token="token", result=result, result_ttl_ms=1)
