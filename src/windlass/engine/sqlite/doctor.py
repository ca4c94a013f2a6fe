"""`examine`: check the place and the state of a database file, with one finding per subject.

1. The place, only by `stat`: file system, permissions, free space, the files next to it. Opening
   the database file directly would cancel the locks that SQLite holds on it in this process.
2. The state that SQLite reports: version, journal, durability, unused space.
"""

from __future__ import annotations

import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import apsw

from windlass.core.quantities import describe_bytes
from windlass.engine.contract import Finding, Grade
from windlass.engine.sqlite.database import Database
from windlass.engine.sqlite.files import NETWORK_FILE_SYSTEMS, FileLocation, file_system_of
from windlass.errors import EngineError, EngineUnavailable

#: The first version without the bug by which two writers can damage the file, and the older
#: releases with a backport of the fix: https://sqlite.org/wal.html#walresetbug
_FIXED: Final = (3, 51, 3)
_FIXED_RELEASES: Final = {(3, 50): 7, (3, 44): 6}
#: File systems that lose their content when the machine stops.
_IN_MEMORY: Final = frozenset({"tmpfs", "ramfs"})
#: With less free space than the first limit, commits fail soon; with less than the second, later.
LEAST_FREE: Final = 64 * 1024 * 1024
LITTLE_FREE: Final = 1024 * 1024 * 1024
#: Report unused space inside the file when it is larger than this and than half of the file.
MUCH_UNUSED: Final = 64 * 1024 * 1024
#: A longer log means that a reader holds a transaction open, which prevents checkpoints.
LONG_LOG: Final = 256 * 1024 * 1024
_OTHERS_READ: Final = stat.S_IRGRP | stat.S_IROTH
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH

#: value of PRAGMA synchronous -> finding
_DURABILITY: Final = {
    2: Finding(
        Grade.OK,
        "durability",
        "full (survives process crash and power loss)",
    ),
    1: Finding(
        Grade.ADVICE,
        "durability",
        "normal (survives process crash; a power loss loses the last commits). To survive both, "
        "remove durability=normal from the url",
    ),
}


def examine(database: Database, check_owner: Callable[[apsw.Connection], int]) -> Iterator[Finding]:
    yield examine_version(apsw.sqlite_lib_version())
    place = database.place
    if place is None:
        yield Finding(Grade.ADVICE, "durability", "in memory: jobs are gone with this process")
        return
    if not place.path.is_file():
        text = f"there is no database {place.path} yet; the first job makes it"
        yield Finding(Grade.PROBLEM, "file", text)
        return
    yield _file_system(place)
    yield _permissions(place)
    yield examine_room(shutil.disk_usage(place.path.parent).free, place.path.parent)
    yield _log(place)
    try:
        yield Finding(Grade.OK, "format", f"{database.read(check_owner)}, which this version reads")
        yield from database.read(_inside)
    except EngineUnavailable:
        raise
    except EngineError as error:
        yield Finding(Grade.PROBLEM, "file", str(error))


def examine_version(version: str) -> Finding:
    major, minor, patch = (int(part) for part in version.split(".")[:3])
    is_backported = (major, minor) in _FIXED_RELEASES and patch >= _FIXED_RELEASES[major, minor]
    if (major, minor, patch) >= _FIXED or is_backported:
        return Finding(Grade.OK, "version", f"SQLite {version}, which has no WAL-reset bug")
    return Finding(
        Grade.PROBLEM,
        "version",
        f"SQLite {version} has the WAL-reset bug: two writers at the wrong moment damage the file. "
        "Install an apsw that contains 3.51.3 or newer: pip install --upgrade apsw",
    )


# ----------------------------------------------------------------------------------------- place


def _file_system(place: FileLocation) -> Finding:
    kind = file_system_of(place.path.parent)
    if kind in NETWORK_FILE_SYSTEMS:
        return Finding(
            Grade.PROBLEM,
            "file system",
            f"{kind} is a network file system, where SQLite may damage its file. Use a local disk, "
            "or a Redis url for several machines",
        )
    if kind in _IN_MEMORY:
        text = f"{kind} is memory: all jobs are lost when the machine restarts. Use a disk"
        return Finding(Grade.ADVICE, "file system", text)
    return Finding(Grade.OK, "file system", kind or "unknown on this system")


def _permissions(place: FileLocation) -> Finding:
    modes = {path: path.stat().st_mode for path in _files(place) if path.exists()}
    writable = [path for path, mode in modes.items() if mode & _OTHERS_WRITE]
    readable = [path for path, mode in modes.items() if mode & _OTHERS_READ]
    if writable:
        return Finding(
            Grade.PROBLEM,
            "permissions",
            f"others may write to {_names(writable)}, and so run your tasks: chmod go-rwx them",
        )
    if readable:
        return Finding(
            Grade.ADVICE,
            "permissions",
            f"others may read {_names(readable)}, and so all arguments: chmod go-rwx them",
        )
    return Finding(Grade.OK, "permissions", "no other user may read or write")


def _files(place: FileLocation) -> tuple[Path, ...]:
    return (place.path, *_sidecars(place), place.lock_path, place.wake_path)


def _sidecars(place: FileLocation) -> tuple[Path, Path]:
    path = place.path
    return path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")


def _names(paths: list[Path]) -> str:
    return ", ".join(path.name for path in paths)


def examine_room(free: int, folder: Path) -> Finding:
    described = f"{describe_bytes(free)} free in {folder}"
    if free < LEAST_FREE:
        text = f"{described}: nothing can be enqueued before long. Make room"
        return Finding(Grade.PROBLEM, "room", text)
    if free < LITTLE_FREE:
        return Finding(Grade.ADVICE, "room", f"{described}. Make room in time")
    return Finding(Grade.OK, "room", described)


def _log(place: FileLocation) -> Finding:
    log = _sidecars(place)[0]
    size = log.stat().st_size if log.exists() else 0
    if size > LONG_LOG:
        return Finding(
            Grade.ADVICE,
            "log",
            f"{log.name} has grown to {describe_bytes(size)}: a program holds a read transaction "
            "open. Find it and end it",
        )
    return Finding(Grade.OK, "log", f"{describe_bytes(size)} in {log.name}")


# ---------------------------------------------------------------------------------------- inside


def _inside(connection: apsw.Connection) -> list[Finding]:
    return [
        _journal(str(connection.pragma("journal_mode"))),
        _DURABILITY[int(connection.pragma("synchronous"))],
        _size(connection),
    ]


def _journal(mode: str) -> Finding:
    if mode == "wal":
        return Finding(Grade.OK, "journal", "WAL, as windlass sets it")
    return Finding(
        Grade.PROBLEM,
        "journal",
        f"the journal mode is {mode}; another program has changed it: readers and writers "
        "block each other. Stop everything, then set PRAGMA journal_mode = WAL",
    )


def _size(connection: apsw.Connection) -> Finding:
    page = int(connection.pragma("page_size"))
    size = page * int(connection.pragma("page_count"))
    unused = page * int(connection.pragma("freelist_count"))
    described = f"{describe_bytes(size)}, {describe_bytes(unused)} unused"
    if unused > max(MUCH_UNUSED, size // 2):
        return Finding(
            Grade.ADVICE,
            "size",
            f"{described}; new jobs fill it again. To give it back to the disk, stop everything "
            "and run VACUUM",
        )
    return Finding(Grade.OK, "size", described)
