"""`with app.worker()`: a worker inside this process, on every engine."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from tests.worker.yard import until
from windlass import Context, Reject, Retry, SettingError, Windlass
from windlass.core.ids import release_of
from windlass.core.states import State
from windlass.fleet import WorkerCommand, WorkerState, read_fleet
from windlass.worker.embedded import EmbeddedWorker

MEMORY = "sqlite:///:memory:"


def add(a: int, b: int) -> int:
    return a + b


async def add_async(a: int, b: int) -> int:
    await asyncio.sleep(0.01)
    return a + b


def test_it_runs_jobs_and_takes_leave(url: str) -> None:
    app = Windlass(url)
    plain, coroutine = app.task(name="plain")(add), app.task(name="coroutine")(add_async)
    with app.worker(slots=3):
        until(lambda: read_fleet(app.engine), "it to be known")
        [seen] = read_fleet(app.engine)
        assert (seen.pid, seen.slots) == (os.getpid(), 3)
        jobs = [task.enqueue(number, 1) for number in range(10) for task in (plain, coroutine)]
        assert sum(job.result(timeout=20) for job in jobs) == 110
        late = plain.enqueue(1, 1)
    assert late.info().state in (State.SUCCEEDED, State.READY), "none is left running"
    assert app.engine.sessions() == []
    assert app.engine.check() == []
    app.close()


def test_attempts_and_workers_have_the_release(url: str) -> None:
    app = Windlass(url, release="v1.4.2")

    def fail_once(context: Context) -> None:
        if context.attempt == 1:
            raise RuntimeError("once")

    task = app.task(name="fail_once", takes_context=True, retry=Retry(base=0.001))(fail_once)
    with app.worker():
        job = task.enqueue()
        job.result(timeout=20)
        until(app.workers, "it to be known")
        [worker] = app.workers()
    assert worker.release == worker.children[0].release == "v1.4.2"
    assert job.info().release == "v1.4.2"
    [record] = app.engine.get([job.id])
    assert record is not None
    assert [release_of(entry.session) for entry in record.failures] == ["v1.4.2"]
    app.close()


def command(
    app: Windlass, command: WorkerCommand, caplog: pytest.LogCaptureFixture, words: str
) -> None:
    """Command the only worker, and wait until it obeys."""
    until(app.workers, "it to be known")
    caplog.clear()
    [told] = app.command_workers([app.workers()[0].name], command)
    assert told.pid == os.getpid()
    until(lambda: words in caplog.text, f"{command} to be obeyed")


@pytest.mark.parametrize(
    ("given", "words"),
    [("quiet", "quiet on command"), ("stop", "embedded worker stopped on command")],
)
def test_it_claims_nothing_more_on_command(
    url: str, caplog: pytest.LogCaptureFixture, given: WorkerCommand, words: str
) -> None:
    """Its running job finishes: the report of the outcome could claim the next job."""
    caplog.set_level(logging.INFO, "windlass.worker")
    app = Windlass(url, lease="1s")
    begun, go_on = Event(), Event()

    def wait() -> bool:
        begun.set()
        return go_on.wait(20)

    task, plain = app.task(name="wait")(wait), app.task(name="plain")(add)
    with app.worker(slots=3):
        running = task.enqueue()
        assert begun.wait(20)
        command(app, given, caplog, words)
        time.sleep(0.5)  # the heartbeat's thread has told the fetcher
        waiting = plain.enqueue(1, 1)
        go_on.set()
        assert running.result(timeout=20)
        time.sleep(0.5)  # more than a heartbeat, in which the worker could claim
        assert waiting.info().state is State.READY
        if given == "quiet":
            command(app, "run", caplog, "resumed on command")
            assert waiting.result(timeout=20) == 2
        else:
            app.command_workers([app.workers()[0].name], "run")
            time.sleep(0.5)
            assert waiting.info().state is State.READY
            assert app.workers()[0].state is WorkerState.STOPPING
    with app.worker():
        assert waiting.result(timeout=20) == 2
    app.close()


def test_jobs_in_memory_are_run_and_kept() -> None:
    app = Windlass(MEMORY)
    task = app.task(name="plain")(add)
    with app.worker():
        job = task.enqueue(1, 2)
        assert job.result(timeout=20) == 3
    assert job.result() == 3
    with app.worker():
        assert task.enqueue(2, 2).result(timeout=20) == 4


def threads() -> set[threading.Thread]:
    """All but the one that writes for the engine, which comes and goes."""
    return {thread for thread in threading.enumerate() if "sqlite" not in thread.name}


def test_no_thread_is_left() -> None:
    app = Windlass(MEMORY, timeout="1h")
    task = app.task(name="plain")(add)
    before = threads()
    with app.worker(slots=2):
        jobs = [task.enqueue(number, 1) for number in range(20)]
        assert {job.result(timeout=20) for job in jobs} == set(range(1, 21))
    until(lambda: threads() <= before, "all threads to end")


def test_only_the_queues_named_are_served() -> None:
    app = Windlass(MEMORY)
    task = app.task(name="plain")(add)
    with app.worker(queues=["mail"]):
        left = task.enqueue(1, 1)
        assert task.using(queue="mail").enqueue(1, 1).result(timeout=20) == 2
        assert left.info().state is State.READY
    with pytest.raises(TypeError, match=r"queues must be a list of names.*\['mail'\]"):
        app.worker(queues="mail")
    with pytest.raises(SettingError, match="at least 1 for slots"):
        app.worker(slots=0)


def test_lifespan_and_middleware_are_those_of_the_app() -> None:
    seen: list[str] = []

    async def lifespan() -> AsyncIterator[str]:
        seen.append("entered")
        yield "state"
        seen.append("left")

    app = Windlass(MEMORY, lifespan=lifespan)

    @app.around_run
    def around(ctx: Context) -> Iterator[None]:
        seen.append("around")
        yield

    @app.task(name="tell", takes_context=True)
    def tell(ctx: Context) -> str:
        return str(ctx.state)

    with app.worker():
        assert tell.enqueue().result(timeout=20) == "state"
    assert seen == ["entered", "around", "left"]


def test_an_error_in_the_lifespan_comes_through() -> None:
    def lifespan() -> Iterator[None]:
        raise OSError("no database")
        yield

    app = Windlass(MEMORY, lifespan=lifespan)
    before = threads()
    with pytest.raises(OSError, match="no database") as raised, app.worker():
        pass
    assert "before the first job" in raised.value.__notes__[0]
    until(lambda: threads() <= before, "all threads to end")


@pytest.mark.parametrize("kind", ["plain", "coroutine"])
def test_what_outlasts_the_grace_is_handed_back(kind: str) -> None:
    app = Windlass(MEMORY, shutdown_grace=0.1)
    begun, end = Event(), Event()

    @app.task(name="plain")
    def plain() -> None:
        begun.set()
        end.wait(20)

    @app.task(name="coroutine")
    async def coroutine() -> None:
        begun.set()
        await asyncio.sleep(20)

    with app.worker():
        job = app.tasks[kind].enqueue()
        assert begun.wait(20)
        begin = time.monotonic()
    assert time.monotonic() - begin < 4, "it does not wait for it"
    end.set()
    info = job.info()
    assert (info.state, info.attempts) == (State.READY, 0)
    assert app.engine.sessions() == []


def test_it_lives_for_many_leases() -> None:
    """A plain task that sleeps, and a coroutine: beats come from another thread."""
    app = Windlass(MEMORY, lease=0.3)

    @app.task(name="sleep")
    def sleep() -> str:
        time.sleep(1)
        return "slept"

    with app.worker():
        job = sleep.enqueue()
        assert job.result(timeout=20) == "slept"
    assert job.info().attempts == 1


def test_an_error_in_the_block_comes_through_when_jobs_have_ended() -> None:
    app = Windlass(MEMORY)
    begun = Event()

    @app.task(name="slow")
    def slow() -> str:
        begun.set()
        time.sleep(0.2)
        return "done"

    def stop_early() -> None:
        with app.worker():
            slow.enqueue()
            assert begun.wait(20)
            raise Reject("enough")

    with pytest.raises(Reject):
        stop_early()
    assert app.engine.stats().queues == {"default": {State.SUCCEEDED: 1}}


def test_what_it_leaves_to_others_is_named(caplog: pytest.LogCaptureFixture) -> None:
    app = Windlass(MEMORY)
    app.task(name="plain")(add)
    alone = app.task(name="alone", run_in="process")(add)
    with app.worker():
        job = alone.enqueue(1, 2)
    assert job.info().state is State.READY
    [line] = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert line.endswith("leaving them to worker processes: alone")


def test_it_is_entered_once() -> None:
    worker = Windlass(MEMORY).worker()
    with worker:
        pass
    with pytest.raises(RuntimeError, match="make another one"), worker:
        pass


def test_a_run_that_is_handed_back_can_learn_of_it() -> None:
    app = Windlass(MEMORY, shutdown_grace=0)
    begun, learnt = Event(), Event()

    @app.task(name="patient", takes_context=True)
    def patient(ctx: Context) -> None:
        begun.set()
        until(lambda: ctx.cancelled, "the news")
        learnt.set()

    with app.worker():
        patient.enqueue()
        assert begun.wait(20)
    assert learnt.wait(20)


def test_what_blocks_the_loop_is_named(caplog: pytest.LogCaptureFixture) -> None:
    app = Windlass(MEMORY)

    @app.task(name="blocker")
    async def blocker() -> None:
        until(lambda: "blocked the event loop" in caplog.text, "the news")

    with app.worker():
        job = blocker.enqueue()
        job.result(timeout=20)
    assert f"job {job.id} of task blocker has blocked the event loop" in caplog.text


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_worker_whose_fetcher_is_gone_says_so_and_lets_go_of_its_jobs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    app = Windlass(MEMORY, shutdown_grace=0.1)
    worker = EmbeddedWorker(app, (), 1)

    def break_down() -> None:
        raise SystemExit

    with worker:
        worker._fetcher._mailbox.command(break_down)
        until(lambda: not worker.is_running(), "the end of its beats")
        assert "stopped reporting: its fetcher thread has ended" in caplog.text


def test_what_leaves_the_loop_in_the_background_does_not_end_it() -> None:
    app = Windlass(MEMORY)
    left: list[asyncio.Task[None]] = []

    async def leave() -> None:
        raise SystemExit

    @app.task(name="saboteur")
    async def saboteur() -> None:
        left.append(asyncio.create_task(leave()))

    coroutine = app.task(name="coroutine")(add_async)
    with app.worker():
        saboteur.enqueue().result(timeout=20)
        until(left[0].done, "the exit")
        assert isinstance(left[0].exception(), SystemExit)
        assert coroutine.enqueue(1, 1).result(timeout=20) == 2


def test_a_lifespan_that_is_lost_at_once_ends_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the thread that enters the block knows that everything is prepared."""
    left = Event()

    async def collapse() -> None:
        raise OSError("the connection is gone")

    async def lifespan() -> AsyncIterator[None]:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(collapse())
                yield
        finally:
            asyncio.get_running_loop().call_later(0.05, left.set)

    def send_and_wait(coroutine: Any, loop: asyncio.AbstractEventLoop) -> Future[Any]:
        future = send(coroutine, loop)
        assert left.wait(20)
        return future

    send = asyncio.run_coroutine_threadsafe
    monkeypatch.setattr(asyncio, "run_coroutine_threadsafe", send_and_wait)
    app = Windlass(MEMORY, lifespan=lifespan)
    worker = EmbeddedWorker(app, (), 1)
    with worker:
        assert worker._ended.wait(5), "the fetcher was told"


SCRIPT = """
from windlass import Windlass

app = Windlass("sqlite:///jobs.db")


@app.task
def double(number: int) -> int:
    return 2 * number


if __name__ == "__main__":
    with app.worker():
        print(double.enqueue(21).result(timeout=20))
"""


def test_a_script_serves_its_own_tasks(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    ran = subprocess.run(
        [sys.executable, "script.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (ran.stdout, ran.stderr, ran.returncode) == ("42\n", "", 0)


EXIT = """
import sys
from windlass import Windlass


def lifespan():
    sys.exit(7)
    yield


with Windlass("sqlite:///:memory:", lifespan=lifespan).worker():
    pass
"""


def test_a_lifespan_that_exits_ends_the_program() -> None:
    ran = subprocess.run([sys.executable, "-c", EXIT], check=False, timeout=30)
    assert ran.returncode == 7
