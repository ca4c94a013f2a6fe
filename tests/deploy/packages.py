"""Build wheel and sdist from the tree with the installed backend, without a network."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path
from typing import Final, NamedTuple

from tests.deploy.files import PROJECT

#: The size limit of windlass itself, in bytes, without compiled files. Raise it deliberately:
#: repair, the index of queues, limits in bytes and the waiter took it from 1.6 to 1.8 MB; hooks,
#: jobs from Python, and changes and pauses of waiting jobs from 1.85 to 1.95 MB; the HTTP API, bulk
#: operations, and contract tests of documents and commands from 2.1 to 2.6 MB; history, metrics,
#: tracing, alerts and autoscaling to 2.9 MB, and the dashboard adds its pages;
#: PostgreSQL, the outbox and copies between engines to 4 MB.
MOST_OWN_BYTES: Final = 4_200_000


class Packages(NamedTuple):
    wheel: Path
    sdist: Path


def build(target: Path) -> Packages:
    """Both, from the tree."""
    _build(PROJECT, target, "sdist", "wheel")
    return Packages(next(target.glob("*.whl")), next(target.glob("*.tar.gz")))


def build_again(sdist: Path, target: Path) -> Path:
    """A wheel, from nothing but an sdist."""
    with tarfile.open(sdist) as archive:
        archive.extractall(target, filter="data")
    [folder] = target.iterdir()
    _build(folder, target, "wheel")
    return next(target.glob("*.whl"))


def _build(folder: Path, target: Path, *kinds: str) -> None:
    wanted = [part for kind in kinds for part in ("-t", kind)]
    ran = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", str(target), *wanted],
        cwd=folder,
        # An epoch of the environment would be the time of every file.
        env={name: value for name, value in os.environ.items() if name != "SOURCE_DATE_EPOCH"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def files_in_wheel(wheel: Path) -> dict[str, int]:
    """The size of each file."""
    with zipfile.ZipFile(wheel) as archive:
        return {info.filename: info.file_size for info in archive.infolist()}


def files_in_sdist(sdist: Path) -> set[str]:
    """Below its one folder."""
    with tarfile.open(sdist) as archive:
        return {member.name.partition("/")[2] for member in archive if member.isfile()}


def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith("dist-info/METADATA")]
        return Parser().parsestr(archive.read(name).decode())
