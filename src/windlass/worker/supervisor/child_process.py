"""One child, seen from the supervisor: its process, its channel and its slot table."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from random import uniform
from time import monotonic

from windlass.core.quantities import describe_bytes
from windlass.engine.contract import Retried
from windlass.worker.ipc.channel import BufferedChannel, Command, Report, Start, open_pair
from windlass.worker.ipc.process_identity import STATE, stat_of
from windlass.worker.ipc.shared_memory import SlotTable
from windlass.worker.ipc.wake_socket import WakeSender, open_wake_pair
from windlass.worker.options import WorkerOptions

#: Some children are replaced when they have reached this share of a limit, others later.
LEAST_SHARE = 0.9
#: How long `ps` may take to report the memory of a process, in seconds.
ASK_S = 1.0
#: The unit of the peak memory that the system reports.
_MAXRSS_UNIT = 1 if sys.platform == "darwin" else 1024


class ChildProcess:
    """A fresh interpreter, never a fork: it shares only what the supervisor passes to it here."""

    def __init__(self, options: WorkerOptions, worker_started_ms: int, *, is_solo: bool) -> None:
        self.is_solo = is_solo
        self.session = ""  # until it has one
        self.was_killed = False
        self.is_retiring = False  # being replaced, and not counted as one of the processes
        self.is_patient = False  # retires without a deadline
        self.has_heard = False  # has confirmed `DrainChild`
        self.has_limits = False  # may have runs with a limit
        self.disowned: set[int] = set()  # runs whose jobs were taken from it, by generation
        self.retries: list[tuple[float, Retried]] = []  # to report when it is gone, and since when
        self.failure: str | None = None
        self._peak_bytes = 0  # known when it has ended
        self.started_at = monotonic()
        self.share = uniform(LEAST_SHARE, 1.0)
        slots = 1 if is_solo else options.slots
        self.table = SlotTable.create(slots)
        self.channel: BufferedChannel[Report]
        self.wakes: WakeSender
        self.on_unsent: Callable[[], None] | None = None  # called when a message is buffered
        try:
            self._process = self._start()
        finally:
            self.table.close_descriptor()
        self.introduction = b""  # until it is ready
        self.introduced = ""  # the session that was described to the engine
        self.send(Start(options, slots, is_solo, worker_started_ms))

    def _start(self) -> subprocess.Popen[bytes]:
        """Start the process. A failed start is retried often, so it must leak no descriptor."""
        self.channel, theirs = open_pair()
        self.wakes, woken = open_wake_pair()
        try:
            with theirs, woken:
                return _start(theirs.fileno(), self.table.descriptor, woken.fileno())
        except BaseException:
            self.close_channels()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    def close_channels(self) -> None:
        self.on_unsent = None  # it refers to this object, whose memory is freed with it
        self.channel.close()
        self.wakes.close()

    def send(self, command: Command) -> None:
        """Send a command, without an error for a child that is gone or does not read."""
        self._send(partial(self.channel.send, command))

    def flush(self) -> None:
        """Send buffered commands."""
        self._send(self.channel.flush)

    def _send(self, send: Callable[[], None]) -> None:
        try:
            send()
        except OSError:
            return
        if self.channel.has_unsent and self.on_unsent is not None:
            self.on_unsent()

    def has_ended(self) -> bool:
        """Whether the process has ended. `os.wait4` instead of `subprocess`, which would drop the
        resource usage."""
        if self._process.returncode is None:
            with suppress(ChildProcessError):
                pid, status, usage = os.wait4(self.pid, os.WNOHANG)
                if pid:
                    self._process.returncode = os.waitstatus_to_exitcode(status)
                    self._peak_bytes = usage.ru_maxrss * _MAXRSS_UNIT
        return self._process.poll() is not None

    def is_running(self) -> bool:
        """Whether the process has neither ended nor been stopped by a signal."""
        return self._process.returncode is None and not _is_stopped(self.pid)

    def memory(self) -> int | None:
        """The resident memory, in bytes; None when the process has ended, or when unknown."""
        return None if self._process.returncode is not None else _memory_of(self.pid)

    def kill(self) -> None:
        """Kill the process. Its running jobs do not become suspects."""
        self.was_killed = True
        self._process.kill()

    def cause(self) -> str:
        """The cause of its end, for the log. With a signal the text includes the peak memory: the
        out-of-memory killer may have sent the signal."""
        code = self._process.returncode
        if code >= 0:
            return f"exit code {code}"
        return f"{_name_signal(-code)}, at up to {describe_bytes(self._peak_bytes)} of memory"

    def suspects(self) -> tuple[str, ...]:
        """The jobs that ran when the process ended. There are none if a run had exceeded its limit
        before: then that run is the reason, and its job was taken from it."""
        return () if self.was_killed or self.disowned else tuple(self.table.occupied())


def _start(control: int, table: int, wakes: int) -> subprocess.Popen[bytes]:
    with _blocked(signal.SIGINT):
        return subprocess.Popen(
            [
                sys.executable,
                "-m",
                "windlass.worker.child.main",
                str(control),
                str(table),
                str(wakes),
                str(os.getpid()),
            ],
            stdin=subprocess.DEVNULL,
            pass_fds=(control, table, wakes),
        )


@contextmanager
def _blocked(number: signal.Signals) -> Iterator[None]:
    """Block a signal here and in the new process. A terminal sends Ctrl-C to a child too, where it
    would interrupt imports. The child unblocks the signal when it has a handler."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {number})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _name_signal(number: int) -> str:
    try:
        return f"signal {number} ({signal.Signals(number).name})"
    except ValueError:
        return f"signal {number}"


def _is_stopped(pid: int) -> bool:
    """Whether a signal has stopped the process; False where there is no /proc."""
    fields = stat_of(pid)
    return fields is not None and fields[STATE] in (b"T", b"t")


def _memory_of(pid: int) -> int | None:
    with suppress(OSError, ValueError, IndexError):
        pages = int(Path(f"/proc/{pid}/statm").read_bytes().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    return None if Path("/proc/self/statm").exists() else _ask_memory_of(pid)


def _ask_memory_of(pid: int) -> int | None:
    """Ask `ps` where there is no /proc, as on macOS."""
    with suppress(OSError, ValueError, subprocess.SubprocessError):
        command = ["ps", "-o", "rss=", "-p", str(pid)]
        return int(subprocess.check_output(command, timeout=ASK_S)) * 1024
    return None
