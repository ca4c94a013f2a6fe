"""Workers of the examples as processes, and the programs that they need."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.worker.yard import PROJECT, until

EXAMPLES = PROJECT / "examples" / "workers"


def program(name: str) -> str:
    """The path of a program. Without it a test is skipped on a laptop, and fails in continuous
    integration."""
    found = shutil.which(name)
    if found is not None:
        return found
    if os.environ.get("CI"):
        raise FileNotFoundError(f"There is no {name} here.")
    pytest.skip(f"there is no {name} here: install it to run the example")


class ExampleWorker:
    """One worker of an example. Its log is in a file."""

    def __init__(self, command: list[str], environment: Mapping[str, str], log: Path) -> None:
        self._log = log
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                command,
                cwd=EXAMPLES,
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def log(self) -> str:
        return self._log.read_text()

    def await_line(self, text: str, times: int = 1) -> None:
        until(lambda: self.log().count(text) >= times, f"{text!r} in the log:\n{self.log()}")

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the worker, and not to the commands that it runs."""
        self.process.send_signal(number)

    def freeze(self) -> None:
        os.killpg(self.process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.killpg(self.process.pid, signal.SIGCONT)

    def wait(self, seconds: float = 20.0) -> int:
        return self.process.wait(seconds)

    def kill(self) -> None:
        """Kill the worker and all its processes."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
