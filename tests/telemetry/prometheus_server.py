"""A private Prometheus for the tests: a free port, its own folder.

`make prometheus` unpacks it below build/, because the package of Debian would start a service.
Without it, tests that need it are skipped on a laptop, and fail in continuous integration.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any, Final

import pytest

from tests.redis_server import free_port
from tests.worker.yard import PROJECT, until

UNPACKED: Final = PROJECT / "build" / "prometheus" / "usr" / "bin"
ABSENT: Final = (
    "There is no Prometheus here. Run `make prometheus`, which unpacks it on Debian and Ubuntu, or "
    "install prometheus and promtool."
)


def find_program(name: str) -> str:
    """The path of a program of Prometheus."""
    found = shutil.which(name, path=f"{os.environ['PATH']}{os.pathsep}{UNPACKED}")
    if found is None and not os.environ.get("CI"):
        pytest.skip(ABSENT)
    assert found is not None, ABSENT
    return found


class PrometheusServer:
    """One server process."""

    def __init__(self, folder: Path, config: Path) -> None:
        self._log = folder / "prometheus.log"
        self._url = f"http://127.0.0.1:{free_port()}"
        with self._log.open("wb") as output:
            self._process = subprocess.Popen(
                [
                    find_program("prometheus"),
                    f"--config.file={config}",
                    f"--storage.tsdb.path={folder / 'data'}",
                    f"--web.listen-address={self._url.removeprefix('http://')}",
                ],
                stdout=output,
                stderr=output,
            )
        try:
            until(self._is_ready, "Prometheus")
        except BaseException:
            self.end()
            raise

    def _is_ready(self) -> bool:
        assert self._process.poll() is None, self._log.read_text()
        try:
            with urllib.request.urlopen(f"{self._url}/-/ready") as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def ask(self, path: str, **parameters: str) -> Any:
        """The data of an answer of its API."""
        query = urllib.parse.urlencode(parameters)
        with urllib.request.urlopen(f"{self._url}/api/v1/{path}?{query}") as answer:
            return json.load(answer)["data"]

    def query(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """The labels and values of an expression, now."""
        found = self.ask("query", query=expression)["result"]
        return [(one["metric"], float(one["value"][1])) for one in found]

    def end(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
