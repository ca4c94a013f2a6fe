"""The files of a SQLite engine, and the rules for their folder.

Next to `jobs.db` are `jobs.db.lock` (one writer at a time) and the folders `jobs.db.wake` (sockets
of waiting workers) and `jobs.db.ends` (sockets of callers that wait for jobs to end). All of them
belong to one user: files 0600, folders 0700.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from windlass.errors import EngineError

#: File systems on which SQLite's locks or shared memory are unreliable.
NETWORK_FILE_SYSTEMS: Final = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "ceph", "glusterfs", "lustre", "fuse.sshfs"}
)
_LONGEST_SOCKET_PATH: Final = 100


class FileLocation:
    """Paths of the files of one database."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lock_path = path.with_name(path.name + ".lock")
        self.wake_path = path.with_name(path.name + ".wake")
        self.ends_path = path.with_name(path.name + ".ends")

    def prepare(self) -> None:
        """Create the database file if it does not exist, readable by its owner only."""
        folder = self.path.parent
        if not folder.is_dir():
            raise EngineError(
                f"The folder {folder} for the SQLite database does not exist. "
                "Create it, or give another path in the url."
            )
        if self.path.is_dir():
            raise EngineError(
                f"Expected a file for the SQLite database, found the folder {self.path}. "
                f"Give a path in it, for example {self.path / 'jobs.db'}."
            )
        refuse_network_file_system(folder)
        # Never open an existing database directly: closing it would cancel the locks that SQLite
        # holds on it in this process. O_EXCL only opens a new file, which no process uses yet.
        try:
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        except FileExistsError:
            return
        except OSError as error:
            raise EngineError(
                f"The SQLite database {self.path} cannot be created ({error.strerror}). "
                "Give a path in a folder that this user may write to."
            ) from error

    def identity(self) -> tuple[int, int] | None:
        """Identify the file by `stat`: opening the file would cancel SQLite's locks."""
        try:
            found = self.path.stat()
        except OSError:  # also when a file has replaced the folder
            return None
        return found.st_dev, found.st_ino

    def measure_disk(self) -> tuple[int, int]:
        """Return how many bytes of the disk are used, by all programs, and how many there are."""
        import shutil  # slow to import, and seldom needed

        try:
            disk = shutil.disk_usage(self.path.parent)
        except OSError as error:
            raise EngineError(
                f"The disk of {self.path} cannot be measured ({error.strerror}). Check the folder."
            ) from error
        return disk.used, disk.used + disk.free


class SocketPaths:
    """Paths of sockets in a folder; long paths go through a descriptor of the folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._descriptor: int | None = None

    def of(self, name: str) -> str:
        plain = str(self._folder / name)
        if len(os.fsencode(plain)) <= _LONGEST_SOCKET_PATH:
            return plain
        if self._descriptor is None:
            self._descriptor = os.open(self._folder, os.O_RDONLY)
        return f"/proc/self/fd/{self._descriptor}/{name}"

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)


def refuse_network_file_system(folder: Path) -> None:
    kind = file_system_of(folder)
    if kind in NETWORK_FILE_SYSTEMS:
        raise EngineError(
            f"{folder} is on a network file system ({kind}), where SQLite may corrupt its file. "
            "Use a local disk, or a Redis or PostgreSQL url for several machines."
        )


def file_system_of(folder: Path) -> str:
    """Return the file system type of `folder`, or "" if the system does not report it."""
    try:
        lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    target = str(folder.resolve())
    best, kind = "", ""
    for line in lines:
        before, _, after = line.partition(" - ")
        mount = before.split()[4].encode().decode("unicode_escape")
        inside = target == mount or target.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= len(best):
            best, kind = mount, after.split()[0]
    return kind
