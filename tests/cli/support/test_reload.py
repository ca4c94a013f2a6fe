"""`windlass worker --reload`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from threading import Thread

import pytest

from tests.cli.shell import Shell
from windlass.cli.support.reload import changed, snapshot

TASKS = """
from windlass import Windlass

app = Windlass("sqlite:///jobs.db?durability=normal")


@app.task
def tell() -> str:
    return "{}"
"""


def test_sources_are_watched_and_nothing_else(tmp_path: Path) -> None:
    for name in ("a.py", "b/c.py", ".git/d.py", "env/e.py", "__pycache__/f.py", "notes.txt"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
    (tmp_path / "env" / "pyvenv.cfg").touch()
    before = snapshot([tmp_path])
    assert set(before) == {str(tmp_path / "a.py"), str(tmp_path / "b/c.py")}
    assert changed(before, snapshot([tmp_path])) == []
    (tmp_path / "a.py").write_text("x = 1")
    (tmp_path / "b/c.py").unlink()
    (tmp_path / "g.py").touch()
    names = [os.path.basename(path) for path in changed(before, snapshot([tmp_path]))]
    assert names == ["a.py", "c.py", "g.py"]


def test_not_together_with_a_burst(shell: Shell) -> None:
    ran = shell.type("worker", "tasks:app", "--burst", "--reload")
    assert ran.code == 2
    assert "--burst or --reload" in ran.err


@pytest.mark.slow
def test_a_change_counts_and_a_mistake_waits_for_its_repair(shell: Shell) -> None:
    source = shell.folder / "tasks.py"
    source.write_text(TASKS.format("first"))
    heard: list[str] = []
    with shell.start("worker", "tasks:app", "--reload", "-p", "1") as worker:
        assert worker.stderr is not None
        listener = Thread(target=heard.extend, args=(worker.stderr,))
        listener.start()
        assert ask(shell) == "first"
        source.write_text(TASKS.format("second, and longer"))
        await_words(heard, "tasks.py changed: restarting.")
        until(lambda: ask(shell) == "second, and longer")
        await_words(heard, "stopping on SIGUSR1: jobs have 2 s to finish")
        source.write_text("this is no Python")
        await_words(heard, "The worker failed to start")
        source.write_text(TASKS.format("third"))
        until(lambda: ask(shell) == "third")
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(30) == 0
        listener.join()


#: Hears signals for a moment, and then says how many came that are no echo of the first.
HEARING = """
import signal, sys, time
heard = []
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda number, frame: heard.append(time.monotonic()))
print("up", flush=True)
while not heard or time.monotonic() < heard[0] + 1:
    time.sleep(0.01)
print(sum(at - heard[0] > 0.25 for at in heard[1:]), flush=True)
"""
#: A reloader that looks seldom.
RELOADING = f"""
import sys
from windlass.cli.support import reload
reload.LOOK_S = 0.6
reloader = reload.Reloader([], [])
reloader._command = [sys.executable, "-c", {HEARING!r}]
sys.exit(reloader.run())
"""


def test_a_signal_from_the_terminal_is_not_heard_twice() -> None:
    """The terminal sends it to both; the second one would hand back what runs."""
    command = [sys.executable, "-c", RELOADING]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as reloader:
        assert reloader.stdout is not None
        assert reloader.stdout.readline() == "up\n"
        os.killpg(reloader.pid, signal.SIGINT)
        assert reloader.stdout.read() == "0\n"
        assert reloader.wait(20) == 0


def test_every_signal_is_passed_on() -> None:
    command = [sys.executable, "-c", RELOADING]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as reloader:
        assert reloader.stdout is not None
        assert reloader.stdout.readline() == "up\n"
        reloader.send_signal(signal.SIGTERM)
        time.sleep(0.4)  # so much later it is no echo
        reloader.send_signal(signal.SIGTERM)
        assert reloader.stdout.read() == "1\n"
        assert reloader.wait(20) == 0


def ask(shell: Shell) -> str:
    ran = shell.type("enqueue", "tasks.tell", "--wait", WINDLASS_APP="tasks:app")
    return ran.out.split("\n")[1].strip('"')


def await_words(heard: list[str], words: str) -> None:
    until(lambda: any(words in line for line in heard))


def until(find: Callable[[], bool]) -> None:
    end = time.monotonic() + 40
    while not find():
        assert time.monotonic() < end
        time.sleep(0.05)
