"""Processes for the `windlass` command with its imports already loaded.

A new interpreter spends most of the time of a short command on imports. So one process loads them
once, and forks for each command:

1. `Forks` starts it, passes the arguments, folder, environment and standard streams of a command,
   and returns its exit code.
2. Run as a program, this file is that process. Each fork takes over the passed streams and runs the
   console script, from its first line to the exit of its interpreter.

Variables that an interpreter reads at its start, such as PYTHONPATH, have no effect in a fork.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final

SCRIPT: Final = Path(sys.executable).parent / "windlass"
#: Longer than any command needs; only a broken command takes this long.
DEADLINE_S: Final = 60.0
#: More than the size of all arguments and the environment of a command, in bytes.
MOST_BYTES: Final = 200_000
#: The imports of commands, including the lazy ones.
LOADED: Final = (
    *("importlib.metadata", "platform", "rich.live", "rich.progress", "rich.table", "tomllib"),
    *("windlass.cli.root", "windlass.engine.redis.engine", "windlass.engine.sqlite.engine"),
    "windlass.worker.supervisor.supervisor",
)


class Forks:
    """The process with the loaded command; it ends with this process."""

    def __init__(self) -> None:
        self._connection, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._connection.settimeout(DEADLINE_S)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )

    def run(
        self,
        arguments: Sequence[str],
        folder: Path,
        environment: dict[str, str],
        streams: Sequence[int],
    ) -> int:
        """The exit code of the command; negative for a signal."""
        request = json.dumps([[str(SCRIPT), *arguments], str(folder), environment])
        socket.send_fds(self._connection, [request.encode()], streams)
        return int(self._connection.recv(MOST_BYTES))

    def end(self) -> None:
        self._connection.close()
        os.killpg(self._process.pid, signal.SIGKILL)  # a hanging command would remain
        self._process.wait()


@cache
def shared_forks() -> Forks:
    forks = Forks()
    atexit.register(forks.end)
    return forks


# ------------------------------------------------------------------------------------- the process


def fork_for_requests(connection: socket.socket) -> None:
    """Fork for each request. Returns in a fork that is set up for its command."""
    while True:
        request, streams, _, _ = socket.recv_fds(connection, MOST_BYTES, 3)
        if not request:
            sys.exit()
        pid = os.fork()
        if pid == 0:
            connection.close()
            command, folder, environment = json.loads(request)
            return become(command, folder, environment, streams)
        for stream in streams:
            os.close(stream)
        _, status = os.waitpid(pid, 0)
        connection.send(str(os.waitstatus_to_exitcode(status)).encode())


def become(
    command: list[str], folder: str, environment: dict[str, str], streams: Sequence[int]
) -> None:
    for standard, stream in enumerate(streams):
        os.dup2(stream, standard)
        os.close(stream)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    sys.argv = command
    sys.path[0] = str(Path(command[0]).parent)


if __name__ == "__main__":
    for module in LOADED:
        importlib.import_module(module)
    gc.freeze()  # the collection at the exit of a fork would copy all pages
    fork_for_requests(socket.socket(fileno=int(sys.argv[1])))
    runpy.run_path(sys.argv[0], run_name="__main__")
