"""A large data set in a folder of its own, for the proof of the dashboard and for tests on it.

1. `DataSet.make` opens an engine on an empty folder: `jobs.db`, or a private Redis server whose
   data is in `dump.rdb`. `save` lets the folder keep what the engine has.
2. `DataSet.open` opens it again. `notes.json` has what the data set tells about itself.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from tests.redis_server import RedisServer

#: The variable that names the folder of a data set, for tests that are run on it. Variables that
#: begin with WINDLASS_ are settings of apps.
VARIABLE: Final = "DASHBOARD_DATA_SET"
_NOTES: Final = "notes.json"
#: How long a server may take to read or to write ten million jobs, in seconds.
_PATIENCE_S: Final = 600.0
_NAMESPACE: Final = "dashboard"


class Notes(msgspec.Struct, kw_only=True):
    """What a data set tells about itself."""

    engine: str  # sqlite or redis
    finished: int
    ready: int
    middle_ms: int = 0  # when half of the finished jobs had ended
    work_at_a_tenth: dict[str, int] = {}  # of each request, when a tenth of the jobs was there


class DataSet:
    """An engine whose data is in a folder."""

    def __init__(self, folder: Path, notes: Notes) -> None:
        self.folder = folder
        self.notes = notes
        self.server: RedisServer | None = None
        if notes.engine == "redis":
            settings = ("--dir", str(folder.resolve()), "--appendonly", "no")
            self.server = RedisServer(*settings, patience_s=_PATIENCE_S)
            self.url = self.server.url(namespace=_NAMESPACE)
        else:
            self.url = f"sqlite:///{folder.resolve()}/jobs.db?durability=normal"

    @classmethod
    def make(cls, folder: Path, notes: Notes) -> DataSet:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise FileExistsError(
                f"Expected an empty folder for the data set, found files in {folder}. Name another "
                "folder, or use this data set."
            )
        return cls(folder, notes)

    @classmethod
    def open(cls, folder: Path) -> DataSet:
        return cls(folder, msgspec.json.decode((folder / _NOTES).read_bytes(), type=Notes))

    def save(self) -> None:
        """Write everything into the folder."""
        if self.server is not None:
            before = self._info("persistence", "rdb_saves")
            self.server.tell("BGSAVE")
            self._await(lambda: self._info("persistence", "rdb_saves") > before)
        (self.folder / _NOTES).write_bytes(msgspec.json.encode(self.notes))

    def close(self) -> None:
        if self.server is not None:
            self.server.end()

    @property
    def memory_bytes(self) -> int:
        """What the server needs; 0 without one."""
        return self._info("memory", "used_memory_rss") if self.server else 0

    def stored_bytes(self) -> int:
        return sum(path.stat().st_size for path in self.folder.iterdir())

    def _info(self, part: str, field: str) -> int:
        assert self.server is not None
        told = self.server.tell("INFO", part).decode()
        (value,) = re.findall(rf"^{field}:(\d+)", told, re.MULTILINE)
        return int(value)

    @staticmethod
    def _await(is_done: Callable[[], bool]) -> None:
        ends_s = time.monotonic() + _PATIENCE_S
        while not is_done():
            assert time.monotonic() < ends_s, "the server does not finish its snapshot"
            time.sleep(0.2)
