"""`python -m tests.app.elsewhere MODULE [ARGUMENT ...]`: run a module without the parts of the
system that Windows lacks.

1. Import third-party modules, which keep the features of this system.
2. Remove modules, functions, signals and kinds of sockets that Windows lacks, and refuse what it
   refuses (waiting for a pipe, reading a socket as a file).
3. Run the module. The windlass that it imports sees the reduced system.

It is not Windows: file locks, paths and event loops are still those of this system.
"""

from __future__ import annotations

import importlib
import os
import runpy
import select
import signal
import socket
import stat
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any, Final

#: Third-party modules: they choose their code by the system when they are imported.
OF_OTHERS: Final = (
    *("asyncio", "concurrent.futures", "ctypes", "importlib.metadata", "inspect", "json"),
    *("logging", "mmap", "multiprocessing", "random", "secrets", "selectors", "shutil", "ssl"),
    *("subprocess", "tempfile", "threading", "tomllib", "traceback", "uuid", "zoneinfo"),
    *("apsw", "click", "click.testing", "msgspec", "rich.console", "rich.live"),
    *("psutil", "psycopg", "rich.progress", "rich.table", "rich.text"),
)
MODULES: Final = ("fcntl", "grp", "pwd", "resource", "syslog", "termios", "tty")
MISSING: Final[dict[ModuleType, tuple[str, ...]]] = {
    os: (
        *("fork", "forkpty", "register_at_fork", "set_blocking", "memfd_create", "wait3", "wait4"),
        *("WNOHANG", "killpg", "setsid", "getpgid", "getuid", "geteuid", "getgid", "uname"),
        *("sysconf", "sched_getaffinity", "fchmod", "pread", "pwrite", "sendfile", "openpty"),
        *("posix_spawn", "O_NONBLOCK", "O_CLOEXEC", "O_DIRECTORY", "O_NOFOLLOW", "pidfd_open"),
    ),
    signal: (
        *("SIGCHLD", "SIGKILL", "SIGSTOP", "SIGCONT", "SIGALRM", "SIGHUP", "SIGUSR1", "SIGUSR2"),
        *("pthread_kill", "pthread_sigmask", "setitimer", "alarm", "pause", "sigwait"),
    ),
    socket: ("AF_UNIX", "send_fds", "recv_fds"),
    select: ("poll", "epoll", "kqueue"),
}


class Missing:
    """An import hook that makes modules missing."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: object = None) -> None:
        if name in MODULES:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def take_away() -> None:
    for name in OF_OTHERS:
        importlib.import_module(name)
    for module, names in MISSING.items():
        for name in names:
            if hasattr(module, name):
                delattr(module, name)
    for name in MODULES:
        sys.modules.pop(name, None)
    sys.meta_path.insert(0, Missing())
    pair: Any = _pair
    socket.socketpair = pair
    select.select = _only_sockets(select.select)
    os.read = _no_sockets(os.read)
    os.write = _no_sockets(os.write)
    sys.platform = "win32"


def _pair() -> tuple[socket.socket, socket.socket]:
    """A pair of sockets over the loopback, as on Windows."""
    with socket.socket(socket.AF_INET) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)
        ours = socket.create_connection(listener.getsockname())
        return ours, listener.accept()[0]


def _is_socket(source: Any) -> bool:
    descriptor = source if isinstance(source, int) else source.fileno()
    return stat.S_ISSOCK(os.fstat(descriptor).st_mode)


def _only_sockets(real: Any) -> Any:
    def wait(readable: Any, writable: Any, unusual: Any, timeout: float | None = None) -> Any:
        for source in (*readable, *writable, *unusual):
            if not _is_socket(source):
                raise OSError(10038, "An operation was attempted on something that is not a socket")
        return real(readable, writable, unusual, timeout)

    return wait


def _no_sockets(real: Any) -> Any:
    def use(descriptor: int, *rest: Any) -> Any:
        if _is_socket(descriptor):
            raise OSError(9, "Bad file descriptor")
        return real(descriptor, *rest)

    return use


if __name__ == "__main__":
    take_away()
    module, *sys.argv[1:] = sys.argv[1:]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
