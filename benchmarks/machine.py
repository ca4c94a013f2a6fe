"""The machine on which figures are taken."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess

import apsw

from benchmarks.page import Machine
from tests.postgres_server import find_program


def machine() -> Machine:
    return Machine(
        cores=os.cpu_count() or 1,
        python=platform.python_version(),
        system=platform.system(),
        sqlite=apsw.sqlite_lib_version(),
        redis=redis_version(),
        postgres=postgres_version(),
    )


def redis_version() -> str:
    """Of the server that is started here; nothing where there is none."""
    executable = shutil.which("redis-server")
    if executable is None:
        return ""
    told = subprocess.run([executable, "--version"], capture_output=True, text=True, check=True)
    return told.stdout.split("v=")[1].split()[0]


def postgres_version() -> str:
    """The same of PostgreSQL."""
    try:
        executable = find_program("postgres")
    except FileNotFoundError:
        return ""
    told = subprocess.run([executable, "--version"], capture_output=True, text=True, check=True)
    return told.stdout.split()[2]
