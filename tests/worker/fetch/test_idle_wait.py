"""An idle fetcher whose nonce the waiter has: a job claimed under it runs or is released.

A claim was made under the nonce here, and the message about it is under way or lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.worker.fetch.rig import SLOTS, Rig
from tests.worker.yard import until
from windlass.core.states import Counters, State
from windlass.engine.contract import Claim, Plan
from windlass.testing.contract.world import claim_jobs
from windlass.worker.fetch import fetcher as fetcher_module
from windlass.worker.fetch import idle_wait
from windlass.worker.ipc.wake_socket import LOOK
from windlass.worker.run.runners import ThreadRunner

ALONE = Plan(suspects=True)


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    """A rig whose fetcher waits for as long as a test takes."""
    monkeypatch.setattr(idle_wait, "UNATTENDED_S", 60.0)
    rig = Rig(tmp_path, is_handed_jobs=True, waits=False)
    yield rig
    rig.close()


def enqueue_suspect(rig: Rig) -> str:
    job = rig.task.enqueue(1)
    claim_jobs(rig.engine, "crashed", "other", Plan(), 1)
    rig.engine.close("crashed", [job.id], "signal 11 (SIGSEGV)")
    return job.id


def make_awaited(rig: Rig, plan: Plan) -> str:
    """Let the claim that waits be made; its nonce."""
    [nonce] = rig.table.nonces.read()
    assert len(claim_jobs(rig.engine, rig.sessions[-1], nonce, plan, 1).claims) == 1
    return nonce


def assert_given_back(rig: Rig, job_id: str) -> None:
    record = rig.record(job_id)
    assert (record.state, record.counters.attempt) == (State.READY, 0)
    assert rig.starts == []


def test_a_child_for_suspects_that_ends_gives_back_what_its_claim_got(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.start(ALONE)
    until(lambda: any(rig.rests), "a nonce that was given away")
    job_id = enqueue_suspect(rig)
    make_awaited(rig, ALONE)
    monkeypatch.setattr(fetcher_module, "SOLO_IDLE_S", 0.0)
    rig.woken.nudge()
    assert rig.ended.wait(5)  # though a nonce is held: that of the claim which waits
    assert_given_back(rig, job_id)


def test_a_child_for_suspects_does_not_end_while_it_runs_one(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.gate.clear()
    job_id = enqueue_suspect(rig)
    fetcher = rig.start(ALONE)
    until(lambda: rig.starts == [1], "a start")
    monkeypatch.setattr(fetcher_module, "SOLO_IDLE_S", 0.0)
    rounds = fetcher.rounds
    fetcher.report_progress(
        Claim(
            id="none",
            token="",
            task="",
            queue="",
            priority=0,
            payload=b"",
            counters=Counters(),
            created_ms=0,
        ),
        b"",
    )
    until(lambda: fetcher.rounds > rounds, "a round")
    assert not rig.ended.is_set()
    rig.gate.set()
    assert rig.ended.wait(5)
    assert rig.record(job_id).state is State.SUCCEEDED


def test_nothing_is_leased_unasked_while_a_job_is_about_to_start(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No runner starts the job here. A job that runs may block the whole process."""
    hints: list[tuple[ThreadRunner, int]] = []
    with monkeypatch.context() as held_up:
        held_up.setattr(fetcher_module, "MAX_QUEUED_S", 60.0)
        held_up.setattr(ThreadRunner, "hint", lambda runner, count: hints.append((runner, count)))
        job = rig.task.enqueue(1)
        rig.start()
        until(lambda: hints and rig.rests, "a rest")
        assert not any(rig.rests)
    ThreadRunner.hint(*hints[0])
    rig.await_state(job.id, State.SUCCEEDED)
    until(lambda: any(rig.rests), "a nonce that was given away")


def test_a_hand_back_gives_back_what_a_claim_got_that_waits(rig: Rig) -> None:
    fetcher = rig.start()
    until(lambda: any(rig.rests), "a nonce that was given away")
    job = rig.task.enqueue(1)
    make_awaited(rig, Plan())
    fetcher.hand_back()
    assert rig.ended.wait(5)
    rig.thread.join(5)
    assert_given_back(rig, job.id)
    rig.table.nonces.clear_all()  # as the end of the process does


def test_a_claim_that_waits_for_a_dead_session_is_forgotten(rig: Rig) -> None:
    fetcher = rig.start()
    until(lambda: any(rig.rests), "a nonce that was given away")
    job = rig.task.enqueue(1)
    nonce = make_awaited(rig, Plan())
    rig.engine.close(rig.sessions[0], (), "a test")
    fetcher.lose_session(rig.sessions[0])
    record = rig.await_state(job.id, State.SUCCEEDED)
    assert (record.counters.attempt, rig.starts, len(rig.sessions)) == (1, [1], 2)
    assert nonce not in rig.table.nonces.read()


def test_a_job_under_the_nonce_is_found_when_the_message_is_lost(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The waiter is stuck, or its message was lost: after a while the fetcher claims by itself."""
    rig.start()
    until(lambda: any(rig.rests), "a nonce that was given away")
    job = rig.task.enqueue(1)
    make_awaited(rig, Plan())
    monkeypatch.setattr(idle_wait, "UNATTENDED_S", 0.0)
    rig.woken.nudge()
    assert rig.await_state(job.id, State.SUCCEEDED).counters.starts == 1


def test_a_message_that_cannot_be_read_has_the_fetcher_look(rig: Rig) -> None:
    """It belongs to an earlier nonce."""
    rig.start()
    until(lambda: any(rig.rests), "a nonce that was given away")
    job = rig.task.enqueue(1)
    rig.wakes.send(b"of an earlier nonce")
    assert rig.await_state(job.id, State.SUCCEEDED).counters.starts == 1


def has_started(rig: Rig, number: int) -> bool:
    return number in rig.starts


def test_a_busy_fetcher_tells_the_waiter_once(rig: Rig) -> None:
    rig.gate.clear()
    fetcher = rig.start()
    until(lambda: any(rig.rests), "a nonce that was given away")
    for number in range(SLOTS):
        rig.task.enqueue(number)
        rig.wakes.send(LOOK)
        until(partial(has_started, rig, number), "a start")
    told = len(rig.rests)
    rounds = fetcher.rounds
    until(lambda: fetcher.rounds > rounds, "a round")
    assert len(rig.rests) == told
    rig.gate.set()
    until(lambda: rig.rests[-1], "a nonce that was given away")
