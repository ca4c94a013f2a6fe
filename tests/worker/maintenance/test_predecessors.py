"""A worker that was killed with all its children, and the next one on the same machine."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from itertools import count
from time import monotonic
from typing import cast

import msgspec
import pytest

from tests.soon import is_once
from tests.worker.conftest import MakeYard
from tests.worker.faulty import Faulty
from tests.worker.yard import Yard, until
from windlass.core.ids import new_session
from windlass.core.introduction import Introduction
from windlass.core.states import Counters, State
from windlass.engine.contract import Beat, Engine, Plan
from windlass.lost_sessions import LossKind
from windlass.testing.contract.world import claim_jobs
from windlass.worker.ipc.process_identity import machine, start_of
from windlass.worker.maintenance import lost_jobs
from windlass.worker.maintenance.lost_jobs import LOOKS_S, NEVER, Predecessors

pytestmark = pytest.mark.skipif(not machine(), reason="without /proc no process is recognised")

#: From the moment in which the next worker is ready to the start of the last job, in seconds.
PROMPT_S = 2.0
NUMBER = 20
#: A namespace of pids of its own: the worker has the pid 1 in it.
APART = ("unshare", "--pid", "--fork", "--mount-proc")


def can_be_apart() -> bool:
    try:
        return subprocess.run([*APART, "true"], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def kill_and_restart(yard: Yard, label: str) -> float:
    """How long the last of many jobs waits for the next worker, from the moment on in which that
    is ready, in seconds: how long a process takes to start is a matter of the machine."""
    labels = [f"{label}-{number}" for number in range(NUMBER)]
    for name in labels:
        yard.plain(name, "sleep:60")
    worker = yard.start(slots=NUMBER)
    for name in labels:
        yard.await_start(name)
    os.killpg(worker.pid, signal.SIGKILL)
    worker.wait()
    again = yard.start(slots=NUMBER)
    again.await_log("ready")
    begin = monotonic()
    for name in labels:
        yard.await_start(name, 2)
    waited_s = monotonic() - begin
    again.destroy()
    clear(yard.app.engine)
    return waited_s


def clear(engine: Engine) -> None:
    """Leave no job of the workers that were destroyed."""
    for session in engine.sessions():
        engine.lose(session.session, "the end of a try")
    emptied = engine.purge("default")
    while emptied.cursor is not None:
        emptied = engine.purge("default", emptied.cursor)


def test_jobs_of_a_worker_that_was_killed_run_again_at_once(make_yard: MakeYard) -> None:
    yard = make_yard(lease="60s")
    numbers = count()
    assert is_once(lambda: kill_and_restart(yard, f"try-{next(numbers)}") < PROMPT_S, 3)


@pytest.mark.local
def test_a_loss_is_counted_and_told_of(make_yard: MakeYard) -> None:
    yard = make_yard(lease="60s")
    job = yard.plain("lost", "sleep:60")
    worker = yard.start()
    yard.await_start("lost")
    os.killpg(worker.pid, signal.SIGKILL)
    worker.wait()
    again = yard.start()
    yard.await_start("lost", 2)
    again.await_log(f"of worker {worker.pid}, which died on this machine: 1 job to run again")
    record = yard.record(job)
    assert record.counters == Counters(attempt=1, starts=2, losses=1)
    [entry] = record.failures
    assert entry.error == f"worker {worker.pid} on {socket.gethostname()} died".encode()
    [lost] = yard.app.lost_sessions()
    assert (lost.kind, lost.worker) == (LossKind.DIED, f"{socket.gethostname()}:{worker.pid}")
    assert [(one.id, one.state) for one in lost.jobs] == [(job.id, State.RUNNING)]


@pytest.mark.local
def test_a_job_that_kills_every_worker_runs_out(make_yard: MakeYard) -> None:
    """It runs alone from its second loss on, so that other jobs do not die with it."""
    yard = make_yard(lease="60s")
    poison = yard.plain("poison", "sleep:60")
    for number in range(1, 4):
        worker = yard.start()
        yard.await_start("poison", number)
        os.killpg(worker.pid, signal.SIGKILL)
        worker.wait()
    yard.start()
    yard.await_start("poison", 4)
    record = yard.record(poison)
    assert record.suspect
    assert record.counters == Counters(attempt=1, starts=4, losses=3)


@pytest.mark.local
@pytest.mark.skipif(not can_be_apart(), reason="to make a namespace of pids takes a right")
def test_a_worker_with_the_same_pid_in_another_namespace_keeps_its_jobs(
    make_yard: MakeYard,
) -> None:
    yard = make_yard(lease="60s")
    job = yard.plain("kept", "sleep:60")
    yard.start(within=APART)
    yard.await_start("kept")
    said = [Introduction.unpack(one.info) for one in yard.app.engine.sessions()]
    assert {one.worker for one in said} == {1}
    other = yard.start(within=APART, slots=1)
    other.await_log("ready")
    begin = monotonic()
    until(lambda: monotonic() > begin + sum(LOOKS_S), "all its looks")
    assert "which died on this machine" not in other.log()
    assert (yard.record(job).state, yard.record(job).counters.losses) == (State.RUNNING, 0)


# -------------------------------------------------------------------------- forged descriptions


def introduce(engine: Engine, said: Introduction) -> str:
    """A session that holds a job, and says this of itself."""
    session = new_session(socket.gethostname(), said.child)
    engine.beat([Beat(session=session, info=said.pack())])
    assert len(claim_jobs(engine, session, "nonce", Plan(), 1).claims) == 1
    return session


@pytest.fixture
def ended() -> tuple[int, int]:
    """The pid and the start of a process that has ended."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        start = start_of(process.pid)
    return process.pid, start


@pytest.mark.parametrize(
    ("changes", "is_lost"),
    [
        ({}, True),
        ({"machine": "another boot pid:[1]"}, False),
        ({"machine": ""}, False),
        ({"host": "elsewhere"}, False),
        ({"worker_start": 0}, False),
        ({"child_start": 0}, False),
        ({"worker": os.getpid(), "worker_start": start_of(os.getpid())}, False),
        ({"child": os.getpid(), "child_start": start_of(os.getpid())}, False),
        ({"worker": os.getpid(), "worker_start": 1}, True),
    ],
)
def test_only_what_is_dead_without_doubt_is_ended(
    yard: Yard, ended: tuple[int, int], changes: dict[str, object], is_lost: bool
) -> None:
    pid, start = ended
    dead = Introduction(
        host=socket.gethostname(),
        worker=pid,
        child=pid,
        machine=machine(),
        worker_start=start,
        child_start=start,
    )
    engine = yard.app.engine
    job = yard.plain("held")
    session = introduce(engine, msgspec.structs.replace(dead, **changes))
    predecessors = Predecessors(engine)
    looks = [predecessors.look() for _ in range(len(LOOKS_S) + 1)]
    assert looks == [*LOOKS_S, NEVER]
    assert yard.record(job).state is (State.READY if is_lost else State.RUNNING)
    assert [one.session for one in engine.sessions()] == ([] if is_lost else [session])
    engine.close(session, (), "the end of the test")


def test_where_no_process_is_recognised_it_does_not_even_ask(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lost_jobs, "machine", lambda: "")
    faulty = Faulty(yard.app.engine)
    assert Predecessors(cast(Engine, faulty)).look() == NEVER
    assert faulty.calls == []
