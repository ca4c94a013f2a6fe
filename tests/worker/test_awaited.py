"""A claim that waits in the engine when the pump's plans change: whatever it got goes back.

The engine has made the claim here, and its reply is under way: nobody but the nonce knows of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.worker.rig import Rig
from tests.worker.yard import until
from windlass.core.states import State
from windlass.engine.contract import Plan
from windlass.worker import pump as pump_module
from windlass.worker.runners import ThreadRunner

ALONE = Plan(suspects=True)


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    """A claim waits in it for as long as a test takes."""
    monkeypatch.setattr(pump_module, "POLL_S", 60.0)
    rig = Rig(tmp_path, awaits=True)
    yield rig
    rig.close()


def enqueue_suspect(rig: Rig) -> str:
    job = rig.task.enqueue(1)
    rig.engine.claim("crashed", "other", Plan(), 1)
    rig.engine.close("crashed", [job.id], "signal 11 (SIGSEGV)")
    return job.id


def make_awaited(rig: Rig, plan: Plan) -> str:
    """Let the claim that waits be made; its nonce."""
    [nonce] = rig.table.nonces.read()
    assert len(rig.engine.claim(rig.sessions[-1], nonce, plan, 1).claims) == 1
    return nonce


def assert_given_back(rig: Rig, job_id: str) -> None:
    record = rig.record(job_id)
    assert (record.state, record.counters.attempt) == (State.READY, 0)
    assert rig.starts == []


def test_a_child_for_suspects_that_ends_gives_back_what_its_claim_got(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    pump = rig.start(ALONE)
    until(lambda: "await_claim" in rig.faulty.calls, "a claim that waits")
    job_id = enqueue_suspect(rig)
    make_awaited(rig, ALONE)
    monkeypatch.setattr(pump_module, "SOLO_IDLE_S", 0.0)
    pump.look()
    assert rig.ended.wait(5)  # though a nonce is held: that of the claim which waits
    assert_given_back(rig, job_id)


def test_a_child_for_suspects_does_not_end_while_it_runs_one(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.gate.clear()
    job_id = enqueue_suspect(rig)
    pump = rig.start(ALONE)
    until(lambda: rig.starts == [1] and "wait" in rig.faulty.calls, "both")
    monkeypatch.setattr(pump_module, "SOLO_IDLE_S", 0.0)
    rounds = pump.rounds
    pump.look()
    until(lambda: pump.rounds > rounds, "a round")
    assert not rig.ended.is_set()
    rig.gate.set()
    assert rig.ended.wait(5)
    assert rig.record(job_id).state is State.SUCCEEDED


def test_nothing_is_leased_unasked_while_a_job_is_about_to_start(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody begins it here. Once it runs, it may block all of this process."""
    hints: list[tuple[ThreadRunner, int]] = []
    with monkeypatch.context() as held_up:
        held_up.setattr(pump_module, "IMPATIENCE_S", 60.0)
        held_up.setattr(ThreadRunner, "hint", lambda runner, count: hints.append((runner, count)))
        job = rig.task.enqueue(1)
        rig.start()
        until(lambda: hints and {"wait", "await_claim"} & set(rig.faulty.calls), "a rest")
        assert "await_claim" not in rig.faulty.calls
    ThreadRunner.hint(*hints[0])
    rig.await_state(job.id, State.SUCCEEDED)
    until(lambda: "await_claim" in rig.faulty.calls, "a claim that waits")


def test_a_hand_back_gives_back_what_a_claim_got_that_waits(rig: Rig) -> None:
    pump = rig.start()
    until(lambda: "await_claim" in rig.faulty.calls, "a claim that waits")
    job = rig.task.enqueue(1)
    make_awaited(rig, Plan())
    pump.hand_back()
    assert rig.ended.wait(5)
    rig.thread.join(5)
    assert_given_back(rig, job.id)
    rig.table.nonces.clear_all()  # as the end of the process does


def test_a_claim_that_waits_for_a_dead_session_is_forgotten(rig: Rig) -> None:
    pump = rig.start()
    until(lambda: "await_claim" in rig.faulty.calls, "a claim that waits")
    job = rig.task.enqueue(1)
    nonce = make_awaited(rig, Plan())
    rig.engine.close(rig.sessions[0], (), "a test")
    pump.lose_session(rig.sessions[0])
    record = rig.await_state(job.id, State.SUCCEEDED)
    assert (record.counters.attempt, rig.starts, len(rig.sessions)) == (1, [1], 2)
    assert nonce not in rig.table.nonces.read()
