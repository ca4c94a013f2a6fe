"""Tests that need a separate process: forks, process exit, and imports."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from windlass import AppNotFound, State, Windlass
from windlass.engine.contract import Filter

PRELUDE = """
import asyncio, os, sys, threading
from windlass import Windlass
app = Windlass("sqlite:///jobs.db")

@app.task(name="note")
def note(text: str) -> None: ...

def run_forked(function):
    pid = os.fork()
    if pid == 0:
        try:
            function()
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
"""


def run_script(folder: Path, text: str) -> str:
    script = folder / "script.py"
    script.write_text(PRELUDE + text)
    ran = subprocess.run(
        [sys.executable, script.name],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def count_jobs(folder: Path) -> int:
    with Windlass(f"sqlite:///{folder}/jobs.db") as app:
        records = app.engine.find(Filter(state=State.READY), limit=10_000).records
        assert app.engine.check() == []
        return len(records)


def test_enqueueing_works_after_a_fork(tmp_path: Path) -> None:
    run_script(
        tmp_path,
        """
note.enqueue("parent")
run_forked(lambda: note.enqueue("child"))
run_forked(lambda: run_forked(lambda: note.enqueue("grandchild")))
note.enqueue("parent")
""",
    )
    assert count_jobs(tmp_path) == 4


def test_coroutines_enqueue_after_a_fork(tmp_path: Path) -> None:
    run_script(
        tmp_path,
        """
asyncio.run(note.aenqueue("parent"))
run_forked(lambda: asyncio.run(note.aenqueue("child")))
asyncio.run(note.aenqueue("parent"))
""",
    )
    assert count_jobs(tmp_path) == 3


def test_a_fork_at_any_moment_leaves_the_child_free(tmp_path: Path) -> None:
    """Other threads of the parent hold every lock now and then; no lock is held in the child, and
    what the parent had accepted is not sent twice."""
    out = run_script(
        tmp_path,
        """
stop = threading.Event()
made = 0
def flood():
    async def some():
        await asyncio.gather(*[note.aenqueue("parent") for _ in range(50)])
    global made
    while not stop.is_set():
        asyncio.run(some())
        made += 50
thread = threading.Thread(target=flood)
thread.start()
for _ in range(10):
    run_forked(lambda: asyncio.run(note.aenqueue("child")))
stop.set()
thread.join()
print(made + 10)
""",
    )
    assert count_jobs(tmp_path) == int(out)


def test_a_fork_waits_for_an_import_under_way(tmp_path: Path) -> None:
    """Otherwise the child waits forever: the importing thread does not exist in it."""
    run_script(
        tmp_path,
        """
import sys, time
begun, seen = threading.Event(), []
class Slow:
    def find_spec(self, name, path, target=None):
        if name == "windlass.engine.sqlite.engine":
            begun.set()
            time.sleep(0.5)
            seen.append(name)
sys.meta_path.insert(0, Slow())
thread = threading.Thread(target=lambda: note.enqueue("parent"))
thread.start()
begun.wait()
def child():
    signal.alarm(20)
    assert seen
    note.enqueue("child")
import signal
run_forked(child)
thread.join()
""",
    )
    assert count_jobs(tmp_path) == 2


@pytest.mark.parametrize(
    "lock",
    [
        # A fork waits for a thread that opens an engine, for ten seconds.
        pytest.param("windlass.engine.fork_safety.opening", marks=pytest.mark.slow),
        "app.batcher._changed",
    ],
)
def test_a_lock_of_the_parent_does_not_hold_the_child(tmp_path: Path, lock: str) -> None:
    run_script(
        tmp_path,
        f"""
import windlass.engine.fork_safety
asyncio.run(note.aenqueue("parent"))
app.close()
held, done = threading.Event(), threading.Event()
def hold():
    with {lock}:
        held.set()
        done.wait()
thread = threading.Thread(target=hold)
thread.start()
held.wait()
import signal
def child():
    signal.alarm(20)
    asyncio.run(note.aenqueue("child"))
run_forked(child)
done.set()
thread.join()
""",
    )
    assert count_jobs(tmp_path) == 2


def test_a_parent_that_closes_leaves_its_child_alone(tmp_path: Path) -> None:
    """Closing the last connection that SQLite knows removes the write-ahead log: a child that
    inherited the connections of its parent would continue to write to a removed file."""
    run_script(
        tmp_path,
        """
note.enqueue("parent")
told, tell = os.pipe()
heard, answer = os.pipe()
def child():
    note.enqueue("child, the parent is there")
    os.write(answer, b"1")
    os.read(told, 1)
    note.enqueue("child, the parent has closed")
pid = os.fork()
if pid == 0:
    child()
    os._exit(0)
os.read(heard, 1)
app.close()
os.write(tell, b"1")
assert os.waitpid(pid, 0)[1] == 0
""",
    )
    assert count_jobs(tmp_path) == 3


def test_the_end_of_the_process_sends_what_was_accepted(tmp_path: Path) -> None:
    run_script(
        tmp_path,
        """
async def main():
    calls = [asyncio.ensure_future(note.aenqueue("left behind")) for _ in range(20)]
    await asyncio.sleep(0)
asyncio.run(main())
""",
    )
    assert count_jobs(tmp_path) == 20


def test_the_end_of_the_process_does_not_wait_for_ever(tmp_path: Path) -> None:
    out = run_script(
        tmp_path,
        """
import atexit, fcntl, time
note.enqueue("first")
lock = open("jobs.db.lock", "w")
fcntl.flock(lock, fcntl.LOCK_EX)
async def main():
    asyncio.ensure_future(note.aenqueue("stuck"))
    await asyncio.sleep(0)
begin = time.monotonic()
atexit.register(lambda: print(time.monotonic() - begin))
asyncio.run(main())
begin = time.monotonic()
""",
    )
    # The handler above was registered first, so it runs after the flush.
    assert 1.5 < float(out) < 4


# ------------------------------------------------------------------------------------------ loading

LOAD = """
from windlass.app_loader import load_app
try:
    print(load_app(sys.argv[1]).settings.url)
except Exception as error:
    print(f"{type(error).__name__}: {error}")
"""

MODULE = """
from windlass import Windlass
app = Windlass("sqlite:///shop.db")
number = 7
class holder:
    app = Windlass("sqlite:///held.db")
"""


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("shop.tasks:app", "sqlite:///{folder}/shop.db"),
        ("shop.tasks:holder.app", "sqlite:///{folder}/held.db"),
        ("shop.tasks", "AppNotFound: Expected an app as module:attribute, such as shop.tasks:app"),
        (":app", "AppNotFound: Expected an app as module:attribute"),
        ("shop.tasks:", "AppNotFound: Expected an app as module:attribute"),
        (
            "shop.task:app",
            "AppNotFound: There is no module shop.task. Did you mean shop.tasks? Looked in ",
        ),
        ("shops.tasks:app", "AppNotFound: There is no module shops. "),
        ("shop.tasks:ap", "AppNotFound: shop.tasks has no ap. It holds the app app: write"),
        ("shop.empty:application", "AppNotFound: shop.empty has no application."),
        ("shop.empty:numbr", "AppNotFound: shop.empty has no numbr. Did you mean number?"),
        ("shop.tasks:number", "AppNotFound: Expected shop.tasks:number to be a windlass.Windlass"),
        ("shop.broken:app", "ModuleNotFoundError: No module named 'nothing_of_the_kind'"),
        ("shop.raising:app", "ZeroDivisionError: division by zero"),
    ],
)
def test_loading_an_app(tmp_path: Path, target: str, expected: str) -> None:
    package = tmp_path / "shop"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "tasks.py").write_text(MODULE)
    (package / "empty.py").write_text("number = 7")
    (package / "broken.py").write_text("import nothing_of_the_kind")
    (package / "raising.py").write_text("1 / 0")
    ran = subprocess.run(
        [sys.executable, "-c", f"import sys\n{LOAD}", target],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.startswith(expected.format(folder=tmp_path))


def test_an_app_that_is_not_found_is_one_of_our_errors() -> None:
    from windlass.app_loader import load_app

    with pytest.raises(AppNotFound):
        load_app("nowhere")
