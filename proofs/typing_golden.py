"""A wrong argument to `enqueue` is a mypy error; `result()` has the function's type."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.worker.yard import PROJECT


def prove(folder: Path) -> Iterator[str]:
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "tests/typing", f"--basetemp={folder}/pytest"],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout
    yield run.stdout.strip().splitlines()[-1]
