"""The worker of a demo, as a process."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

#: How long the worker may take to stop, in seconds.
STOP_S: Final = 10.0


def start_worker(app: str, log: Path) -> subprocess.Popen[bytes]:
    """Start a worker with its own process group: the demo alone stops it, also when Ctrl-C sends a
    signal to all processes of the terminal."""
    command = [sys.executable, "-m", "windlass", "worker", app, "-p", "2", "-c", "8"]
    with log.open("wb") as file:
        return subprocess.Popen(command, stdout=file, stderr=file, start_new_session=True)


def stop(worker: subprocess.Popen[bytes]) -> int:
    """Stop the worker, and kill it after a time-out; return its exit code."""
    worker.send_signal(signal.SIGTERM)
    try:
        return worker.wait(timeout=STOP_S)
    except subprocess.TimeoutExpired:
        worker.kill()
        return worker.wait()


def describe_exit(exit_code: int, log: Path) -> str:
    if exit_code == 0:
        return "the worker got SIGTERM and ended cleanly"
    return f"the worker did not end cleanly: its exit code is {exit_code}, and its log is {log}"
