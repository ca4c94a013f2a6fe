"""Describe the machine and the versions of its programs, for the page."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

import apsw
import psutil

_PROGRAMS: Final = {
    "Redis": ["redis-server", "--version"],
    "PostgreSQL": ["psql", "--version"],
    "node": ["node", "--version"],
    "ruby": ["ruby", "--version"],
}


def machine() -> dict[str, str]:
    return {
        "cores": str(os.cpu_count() or 1),
        "processor": _processor(),
        "memory": f"{psutil.virtual_memory().total / 2**30:.0f} GB",
        "system": _system(),
        "Python": platform.python_version(),
        "SQLite": apsw.sqlite_lib_version(),
        **_versions(),
    }


def _versions() -> dict[str, str]:
    found = {name: _version(command) for name, command in _PROGRAMS.items()}
    return {name: version for name, version in found.items() if version}


def _version(command: list[str]) -> str:
    if shutil.which(command[0]) is None:
        return ""
    told = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    found = re.search(r"\d+\.\d+(\.\d+)*", told)
    return found[0] if found else ""


def _processor() -> str:
    told = _read("/proc/cpuinfo")
    found = re.search(r"^model name\s*:\s*(.+)$", told, re.MULTILINE)
    return found[1].strip() if found else platform.machine()


def _system() -> str:
    found = re.search(r'^PRETTY_NAME="?([^"\n]+)', _read("/etc/os-release"), re.MULTILINE)
    kernel = platform.release().split("-")[0]
    return f"{found[1] if found else platform.system()}, kernel {kernel}"


def _read(path: str) -> str:
    file = Path(path)
    return file.read_text() if file.exists() else ""
