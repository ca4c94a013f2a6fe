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

#: The smallest share of a limit at which a child is replaced. Each child has a random share.
LEAST_SHARE = 0.9
#: How long `ps` may take to report the memory of a process, in seconds.
ASK_S = 1.0
#: The unit of the peak memory that the system reports.
_MAXRSS_UNIT = 1 if sys.platform == "darwin" else 1024


class ChildProcess:
    """A child process: a fresh interpreter, never a fork. It gets only the descriptors passed
    here."""

    def __init__(self, options: WorkerOptions, worker_started_ms: int, *, is_solo: bool) -> None:
        self.is_solo = is_solo
        self.session = ""  # empty before the first session
        self.expired = ""  # the last session that expired
        self.was_killed = False
        self.is_retiring = False  # being replaced, and not counted as one of the processes
        self.is_leaving = False  # claims no more, because the worker needs fewer children
        self.is_patient = False  # retires without a deadline
        self.has_heard = False  # has confirmed `DrainChild`
        self.has_limits = False  # may have runs with a limit
        self.disowned: set[int] = set()  # generations of runs that have lost their jobs
        self.retries: list[tuple[float, Retried]] = []  # timed out then, reported after the end
        self.failure: str | None = None
        self._peak_bytes = 0  # known after the end of the process
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
        self.introduction = b""  # empty before the child is ready
        self.introduced = ""  # the session that was described to the engine
        self.send(Start(options, slots, is_solo, worker_started_ms))

    def _start(self) -> subprocess.Popen[bytes]:
        """Start the process. Leak no descriptor on failure, because the supervisor retries
        often."""
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
        self.on_unsent = None  # breaks a reference cycle, so that shared memory is freed at once
        self.channel.close()
        self.wakes.close()

    def send(self, command: Command) -> None:
        """Send a command. Ignore a child that is gone or does not read."""
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
        """Return whether the process has ended. Uses `os.wait4`, because `subprocess` drops the
        resource usage."""
        if self._process.returncode is None:
            with suppress(ChildProcessError):
                pid, status, usage = os.wait4(self.pid, os.WNOHANG)
                if pid:
                    self._process.returncode = os.waitstatus_to_exitcode(status)
                    self._peak_bytes = usage.ru_maxrss * _MAXRSS_UNIT
        return self._process.poll() is not None

    def is_running(self) -> bool:
        """Return whether the process has neither ended nor been stopped by a signal."""
        return self._process.returncode is None and not _is_stopped(self.pid)

    def memory(self) -> int | None:
        """Return the resident memory in bytes; None if unknown, or after the end of the process."""
        return None if self._process.returncode is not None else memory_of(self.pid)

    def kill(self) -> None:
        """Kill the process. Its running jobs do not become suspects."""
        self.was_killed = True
        self._process.kill()

    def cause(self) -> str:
        """Describe the cause of the end, for the log. For a signal, include the peak memory: the
        out-of-memory killer may have sent it."""
        code = self._process.returncode
        if code >= 0:
            return f"exit code {code}"
        return f"{_name_signal(-code)}, at up to {describe_bytes(self._peak_bytes)} of memory"

    def suspects(self) -> tuple[str, ...]:
        """Return the jobs that ran when the process ended; none if the supervisor killed it, or if
        a run had exceeded its limit: then that run is the reason, and has lost its job."""
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
    would interrupt imports. The child unblocks the signal when its handler is set."""
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
    """Return whether a signal has stopped the process; False without /proc."""
    fields = stat_of(pid)
    return fields is not None and fields[STATE] in (b"T", b"t")


def memory_of(pid: int) -> int | None:
    """Return the resident memory of a process in bytes; None if unknown."""
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
