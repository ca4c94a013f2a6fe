"""`windlass serve` as a process of its own, on a free port."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.worker.yard import PROJECT, until


class ServerProcess:
    """One instance of the API. Its log is in a file."""

    def __init__(
        self,
        app: str,
        log: Path,
        *options: str,
        environment: Mapping[str, str] | None = None,
        folder: Path = PROJECT,
        port: int = 0,
    ) -> None:
        self._log = log
        command = [sys.executable, "-m", "windlass", "serve", app, "--port", str(port), *options]
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                command,
                cwd=folder,
                env={**os.environ, **(environment or {})},
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        try:
            self.url = until(self._find_url, "the url of the server")
        except BaseException:
            self.kill()
            raise

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def log(self) -> str:
        return self._log.read_text()

    def _find_url(self) -> str:
        assert self.process.poll() is None, self.log()
        found = re.search(r"serving: (http://\S+?),", self.log())
        return found[1] if found else ""

    def stop(self, seconds: float = 20.0) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(seconds)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
