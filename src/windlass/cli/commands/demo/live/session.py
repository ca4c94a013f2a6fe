"""`windlass demo --serve`: the shop under load, and its dashboard, until Ctrl-C.

1. Listen on a loopback address, try the engine, and print the address.
2. Make the past hour of the shop (`past`).
3. Start a worker as a process, and a thread that enqueues jobs (`LoadProducer`).
4. Serve the HTTP API with the dashboard until SIGINT, SIGTERM or SIGHUP.
5. End the producer and the worker, and print how to remove the data.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from threading import Event, Thread
from types import FrameType
from typing import TYPE_CHECKING, Final

from windlass.app import Windlass
from windlass.cli.commands.demo.place import choose_url, print_removal, removed_on_error
from windlass.cli.commands.demo.worker_process import describe_exit, start_worker, stop
from windlass.cli.commands.serve import bind
from windlass.cli.support.output import console, say, tell
from windlass.core.quantities import count
from windlass.engine.clock import read_clock
from windlass.errors import EngineError

if TYPE_CHECKING:
    from socket import socket

#: The app of the shop.
APP: Final = "windlass.cli.commands.demo.live.tasks:app"
#: How often a job arrives that kills its process, in seconds.
POISON_S: Final = 180
#: How long the server waits for the worker, in seconds.
START_S: Final = 10.0
#: Whether a signal has come: Python drops an exception that is raised while it deletes an object.
_is_interrupted = Event()


def run_live(port: int) -> int:
    """Run the live demo until a signal; return the exit code."""
    _end_on_every_signal()
    try:
        return _listen_and_run(port)
    except KeyboardInterrupt:  # before there was anything to end
        return 0


def _listen_and_run(port: int) -> int:
    from windlass.http.server import Address, url_of

    with bind(Address("127.0.0.1", port)) as listening:
        folder = Path(tempfile.mkdtemp(prefix="windlass-demo-"))
        url = os.environ["WINDLASS_URL"] = _choose_url(folder)
        with removed_on_error(folder):
            from windlass.cli.commands.demo.live import tasks

            read_clock(tasks.app.engine)
        os.environ["WINDLASS_RELEASE"] = tasks.NEW_RELEASE
        tell(f"{url_of(listening)}/")
        say("The dashboard of the demo is at this address. Ctrl-C stops the demo.")
        with tasks.app:
            exit_code = _run(tasks.app, listening, folder)
    print_removal(console(), url, folder)
    return exit_code


def _choose_url(folder: Path) -> str:
    """The url of an empty place. A power loss may take the last jobs of a demo."""
    url = choose_url(os.environ.get("WINDLASS_URL", ""), folder)
    return f"{url}?durability=normal" if url.startswith("sqlite:") else url


def _run(app: Windlass, listening: socket, folder: Path) -> int:
    """Make the past, then run all parts; return the exit code."""
    worker = None
    try:
        _make_past(app)
        _raise_if_interrupted()
        worker = start_worker(APP, folder / "worker.log")
        _await_worker(app, worker)
        _raise_if_interrupted()
        with LoadProducer(app, worker):
            _serve(app, listening)
    except KeyboardInterrupt:  # before the server handled signals
        pass
    finally:
        exit_code = _end(worker, folder / "worker.log")
    return exit_code


def _end(worker: subprocess.Popen[bytes] | None, log: Path) -> int:
    """End the worker, and let no further signal interrupt that; return the exit code."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    if worker is None:
        return 0
    exit_code = stop(worker)
    if exit_code == -signal.SIGTERM:
        exit_code = 0  # it was still starting, and had no children
    say(f"The demo has ended: {describe_exit(exit_code, log)}.")
    return 0 if exit_code == 0 else 1


def _make_past(app: Windlass) -> None:
    from windlass.cli.commands.demo.live.past import seed_past

    started = time.monotonic()
    past = seed_past(app)
    elapsed_s = time.monotonic() - started
    say(f"Made the past hour of a shop in {elapsed_s:.1f} s: {count(past.jobs, 'job')}.")
    say("A worker runs, and jobs keep arriving: two or three a second, in waves.")


def _await_worker(app: Windlass, worker: subprocess.Popen[bytes]) -> None:
    """Wait until the worker is live: otherwise the server finds an alert first, that there is no
    worker."""
    deadline = time.monotonic() + START_S
    while not app.workers() and worker.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)


def _serve(app: Windlass, listening: socket) -> None:
    """Serve until a signal. Any program of this machine may use the API: it has only the demo."""
    from windlass.http.api import create_api
    from windlass.http.gateway import ApiOptions
    from windlass.http.server import run_server
    from windlass.worker.logs.setup import configure_all

    configure_all("error", app.settings.log_format)
    run_server(create_api(app, ApiOptions(app_name=APP)), listening)


def _end_on_every_signal() -> None:
    """Let SIGTERM end the demo as Ctrl-C does, and the end of the terminal (SIGHUP) as SIGTERM."""
    signal.signal(signal.SIGINT, _interrupt)
    signal.signal(signal.SIGTERM, _interrupt)
    signal.signal(signal.SIGHUP, _pass_on)


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    _is_interrupted.set()
    raise KeyboardInterrupt


def _raise_if_interrupted() -> None:
    if _is_interrupted.is_set():
        raise KeyboardInterrupt


def _pass_on(_signal: int, _frame: FrameType | None) -> None:
    signal.raise_signal(signal.SIGTERM)


class LoadProducer:
    """A thread that enqueues the calls of each second, until the end of the block."""

    def __init__(self, app: Windlass, worker: subprocess.Popen[bytes]) -> None:
        self._app = app
        self._worker = worker
        self._ends = Event()
        self._thread = Thread(target=self._run, name="demo-producer", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_error: object) -> None:
        self._ends.set()
        self._thread.join()

    def _run(self) -> None:
        is_away = has_worker = False
        while not self._ends.wait(1 - time.time() % 1):
            try:
                self._enqueue(int(time.time()))
                is_away = False
            except EngineError as error:
                if not is_away:
                    say(f"Cannot enqueue, trying again every second: {error}")
                is_away = True
            if has_worker and self._worker.poll() is not None:
                say(f"The worker ended early: its exit code is {self._worker.returncode}.")
            has_worker = self._worker.poll() is None

    def _enqueue(self, second: int) -> None:
        from windlass.cli.commands.demo.live import tasks
        from windlass.cli.commands.demo.live.load import calls_of

        self._app.enqueue_many(calls_of(second))
        if second % POISON_S == 0:
            tasks.render.enqueue("broken-poster")
