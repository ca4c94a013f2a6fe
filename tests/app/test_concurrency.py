"""Concurrent enqueues: hundreds of coroutines, many threads, processes that are
forked by a server, and the last moments of an interpreter. On all engines, in real processes."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.contract.variants import fresh_url
from tests.redis_server import shared_server
from windlass import EnqueueCall, State, Task, Windlass
from windlass.engine.contract import Filter, NewJob, Placed

PRELUDE = """
import asyncio, atexit, os, sys, threading, time
from windlass import Windlass
app = Windlass({url!r})

@app.task(name="note")
def note(text: str) -> None: ...
"""


@pytest.fixture(params=["sqlite-file-normal", "redis-4", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return fresh_url(request.param, tmp_path)


@pytest.fixture
def here(url: str) -> Iterator[Windlass]:
    with Windlass(url) as app:
        yield app


@pytest.fixture
def note(here: Windlass) -> Task[..., None]:
    @here.task(name="note")
    def note(text: str) -> None: ...

    return note


def run_script(url: str, text: str) -> str:
    ran = subprocess.run(
        [sys.executable, "-c", PRELUDE.format(url=url) + text],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    return ran.stdout


def count_jobs(url: str) -> int:
    with Windlass(url) as app:
        assert app.engine.check() == []
        found, cursor = 0, None
        while True:
            page = app.engine.find(Filter(state=State.READY), cursor, 500)
            found, cursor = found + len(page.records), page.cursor
            if cursor is None:
                return found


# -------------------------------------------------------------------------------------- one process


def test_hundreds_of_coroutines_share_few_round_trips(
    here: Windlass, note: Task[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the handlers of a web application do, each with headers of its own."""
    sizes: list[int] = []
    put = here.engine.put

    def noting_put(jobs: list[NewJob]) -> list[Placed]:
        sizes.append(len(jobs))
        return put(jobs)

    monkeypatch.setattr(here.engine, "put", noting_put)

    @here.around_enqueue
    def trace(call: EnqueueCall) -> Iterator[None]:
        task = asyncio.current_task()
        call.headers["task"] = task.get_name() if task else "none"
        yield

    async def handle(number: int) -> str:
        job = await note.aenqueue(f"request {number}")
        assert (await job.ainfo()).headers["task"] == f"handler {number}"
        return job.id

    async def serve() -> list[str]:
        tasks = [asyncio.create_task(handle(n), name=f"handler {n}") for n in range(500)]
        return await asyncio.gather(*tasks)

    assert len(set(asyncio.run(serve()))) == 500
    assert sum(sizes) == 500
    assert len(sizes) <= 100  # two on a free machine, and one for each job without batches


def test_many_threads_enqueue_at_once(here: Windlass, note: Task[..., None], url: str) -> None:
    barrier = threading.Barrier(16)

    def work(thread: int) -> list[str]:
        barrier.wait(10)
        return [note.enqueue(f"{thread} {number}").id for number in range(10)]

    with ThreadPoolExecutor(16) as pool:
        ids = [job_id for some in pool.map(work, range(16)) for job_id in some]
    assert len(set(ids)) == 160
    assert count_jobs(url) == 160


def test_a_coroutine_enqueues_where_no_thread_can_be_started(
    note: Task[..., None], url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So it is, from Python 3.12 on, in functions that run at the end of the interpreter."""

    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    async def some() -> None:
        await asyncio.gather(*[note.aenqueue("late") for _ in range(10)])

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        asyncio.run(some())
    asyncio.run(some())
    assert count_jobs(url) == 20


# --------------------------------------------------------------------------------- real processes


def test_forked_servers_enqueue_by_threads_and_coroutines(url: str) -> None:
    """A server that has used the app, and then forks its workers, as gunicorn does."""
    run_script(
        url,
        """
note.enqueue("parent")
asyncio.run(note.aenqueue("parent"))

def serve():
    threads = [threading.Thread(target=note.enqueue, args=["thread"]) for _ in range(5)]
    for thread in threads: thread.start()
    async def handle():
        await asyncio.gather(*[note.aenqueue("coroutine") for _ in range(20)])
    asyncio.run(handle())
    for thread in threads: thread.join()

children = []
for _ in range(3):
    child = os.fork()
    if child == 0:
        serve()
        os._exit(0)
    children.append(child)
serve()
assert all(os.waitpid(child, 0)[1] == 0 for child in children)
""",
    )
    assert count_jobs(url) == 2 + 4 * 25


LEAVING = """
def leave():
    try:
        note.enqueue("plain")
        asyncio.run(note.aenqueue("coroutine"))
    except Exception as error:
        print(f"{type(error).__name__}: {error}")
atexit.register(leave)
"""


def test_functions_at_exit_can_enqueue(url: str) -> None:
    assert run_script(url, f"{LEAVING}\napp.engine") == ""
    assert count_jobs(url) == 2


def test_an_engine_that_cannot_be_loaded_at_exit_says_what_to_do() -> None:
    """The driver needs a module of Python that refuses to be imported then."""
    said = run_script(shared_server().url(), LEAVING)
    assert said.startswith("EngineError: The Redis driver cannot be loaded for 'redis://***@")
    assert "write app.engine where the app is made" in said


def test_sqlite_can_be_used_for_the_first_time_at_exit(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    assert run_script(url, LEAVING) == ""
    assert count_jobs(url) == 2


def test_threads_that_go_on_at_the_end_lose_nothing_that_was_confirmed(url: str) -> None:
    out = run_script(
        url,
        """
confirmed, enough = [], threading.Event()
def flood():
    while True:
        confirmed.append(note.enqueue("daemon").id)
        if len(confirmed) > 20: enough.set()
for _ in range(4): threading.Thread(target=flood, daemon=True).start()
enough.wait(30)
print(len(confirmed))
""",
    )
    assert count_jobs(url) >= int(out) > 20
