"""Run `make demo` and `make test` in a fresh clone, and measure the time."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from tests.worker.yard import PROJECT


def prove(folder: Path) -> Iterator[str]:
    clone = folder / "windlass"
    subprocess.run(["git", "clone", "--quiet", str(PROJECT), str(clone)], check=True)
    for target in ("demo", "test"):
        started = time.monotonic()
        run = subprocess.run(
            ["make", target],
            cwd=clone,
            env={name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"},
            capture_output=True,
            text=True,
            check=False,
        )
        elapsed = time.monotonic() - started
        assert run.returncode == 0, run.stdout[-5_000:] + run.stderr[-5_000:]
        last = [line for line in run.stdout.splitlines() if line.strip()][-1]
        yield f"make {target}: {elapsed:.0f} s, installing included; it ended with: {last.strip()}"
