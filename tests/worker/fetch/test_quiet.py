"""A quiet fetcher: it claims nothing, releases what has not started, and finishes what runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.worker.faulty import lose_request, once
from tests.worker.fetch.rig import SLOTS, Rig
from tests.worker.yard import until
from windlass.core.states import State
from windlass.engine.contract import Plan, Turn
from windlass.testing.contract.world import claim_jobs
from windlass.worker.fetch import fetcher as fetcher_module
from windlass.worker.fetch import idle_wait
from windlass.worker.run.slot_queue import SAMPLE


@pytest.fixture(params=[False, True], ids=["claims", "may be handed jobs"])
def rig(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Rig]:
    monkeypatch.setattr(fetcher_module, "REST_S", 0.05)
    rig = Rig(tmp_path, is_handed_jobs=request.param)
    yield rig
    rig.close()


def await_rounds(rig: Rig) -> None:
    """Wait until the fetcher had time to claim."""
    rounds = rig.fetcher.rounds
    until(lambda: rig.fetcher.rounds > rounds + 2, "more rounds")


def make_quiet(rig: Rig) -> None:
    """Let the fetcher be quiet. The waiter does not wait for it any more."""
    rig.fetcher.set_quiet(True)
    await_rounds(rig)
    assert rig.waiter._idle == {}


def assert_waits(rig: Rig, job_id: str) -> None:
    """The job is back in its line, uncharged, and was not started."""
    record = rig.await_state(job_id, State.READY)
    assert (record.counters.attempt, record.counters.interruptions) == (0, 0)


def test_running_jobs_finish_and_others_wait(rig: Rig) -> None:
    rig.gate.clear()
    running = [rig.task.enqueue(number) for number in range(2)]
    fetcher = rig.start()
    until(lambda: sorted(rig.starts) == [0, 1], "two starts")
    make_quiet(rig)
    later = rig.task.enqueue(2)
    rig.gate.set()
    for job in running:
        rig.await_state(job.id, State.SUCCEEDED)
    assert_waits(rig, later.id)
    assert len(rig.starts) == 2
    fetcher.set_quiet(False)
    rig.await_state(later.id, State.SUCCEEDED)


def test_a_quiet_fetcher_calls_the_engine_no_more(rig: Rig) -> None:
    rig.start()
    until(lambda: rig.waiter._idle, "a wait")
    make_quiet(rig)
    turns = rig.faulty.calls.count("turn")
    await_rounds(rig)
    assert rig.faulty.calls.count("turn") == turns
    assert rig.table.nonces.read() == []


def test_a_claim_that_is_under_way_is_released(rig: Rig) -> None:
    def become_quiet(real: Callable[[], Turn]) -> Turn:
        rig.fetcher.set_quiet(True)
        return real()

    rig.faulty.faults["turn"] = once(become_quiet)
    job = rig.task.enqueue(1)
    rig.start()
    until(lambda: "finish" in rig.faulty.calls, "a release")
    assert_waits(rig, job.id)
    assert rig.starts == []
    rig.fetcher.set_quiet(False)
    rig.await_state(job.id, State.SUCCEEDED)


def test_a_claim_is_not_repeated_after_an_outage(rig: Rig) -> None:
    def become_quiet(real: Callable[[], Any]) -> Any:
        rig.fetcher.set_quiet(True)
        return lose_request(real)

    rig.faulty.faults["turn"] = once(become_quiet)
    job = rig.task.enqueue(1)
    rig.start()
    until(lambda: "release" in rig.faulty.calls, "a release")
    assert_waits(rig, job.id)
    assert rig.faulty.calls.count("turn") == 1


def test_what_was_claimed_ahead_is_released(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetcher_module, "MAX_QUEUED_S", 60)
    for _ in range(SAMPLE):
        rig.prefetch.record(0.0001)
    rig.gate.clear()
    jobs = [rig.task.enqueue(number) for number in range(SLOTS * 3)]
    fetcher = rig.start()
    until(lambda: len(rig.starts) == SLOTS, "full slots")
    fetcher.set_quiet(True)
    for job in jobs[SLOTS:]:
        assert_waits(rig, job.id)
    rig.gate.set()
    for job in jobs[:SLOTS]:
        rig.await_state(job.id, State.SUCCEEDED)
    await_rounds(rig)
    assert len(rig.starts) == SLOTS


def test_a_job_that_was_handed_off_is_released(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A put has claimed under the nonce, and its message is still under way."""
    monkeypatch.setattr(idle_wait, "UNATTENDED_S", 60.0)
    rig = Rig(tmp_path, is_handed_jobs=True, waits=False)
    fetcher = rig.start()
    until(lambda: any(rig.rests), "a nonce that was given away")
    job = rig.task.enqueue(1)
    [nonce] = rig.table.nonces.read()
    assert len(claim_jobs(rig.engine, rig.sessions[-1], nonce, Plan(), 1).claims) == 1
    fetcher.set_quiet(True)
    assert_waits(rig, job.id)
    assert rig.table.nonces.read() == []
    rig.wakes.send(b"the message about it, which comes late")
    fetcher.set_quiet(False)
    rig.await_state(job.id, State.SUCCEEDED)
    assert rig.starts == [1]
    rig.close()


def test_a_quiet_fetcher_can_be_drained(rig: Rig) -> None:
    rig.start()
    make_quiet(rig)
    rig.fetcher.drain()
    assert rig.ended.wait(5)


def test_a_lost_session_does_not_end_the_quiet(rig: Rig) -> None:
    rig.start()
    make_quiet(rig)
    rig.fetcher.lose_session(rig.sessions[0])
    until(lambda: len(rig.sessions) == 2, "another session")
    job = rig.task.enqueue(1)
    await_rounds(rig)
    assert_waits(rig, job.id)
